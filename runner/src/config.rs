//! The configuration. Flags win over variables, and variables over defaults.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use shared_protocol::SANDBOX_USER;

use crate::sys::signal;

pub const USAGE: &str = "\
runner: PID 1 of a sandbox; keeps shells alive and serves them over HTTP

  runner [--socket PATH] [options]        serve on a Unix socket
  runner --socket-fd 3 [options]          serve on a listening Unix socket that was opened for it
  runner --listen ADDR:PORT [options]     serve on TCP; needs a token
  runner [-g] [-p SIGNAL] [-e CODE]... -- COMMAND [ARG...]
                                          be a plain init: run COMMAND, forward signals, reap orphans, pass its exit status on
  runner --version
  runner --help, -h

options of a plain init, as tini has them
  -g                                      forward signals to the whole process group of COMMAND; also with TINI_KILL_PROCESS_GROUP
  -p SIGNAL                               get SIGNAL, and forward it, when the parent of the runner dies
  -e CODE                                 exit with 0 if COMMAND exits with CODE; can be given more than once
  -s                                      accepted, and always on: orphans below the runner become its children

options                                   variable               default
  --socket PATH                           COVE_RUNNER_SOCKET     /run/cove/runner.sock; $XDG_RUNTIME_DIR/cove/… if that is set
  --socket-owner UID                      COVE_RUNNER_SOCKET_OWNER  the runner's own user; for a daemon outside that is another
  --socket-fd 3                           COVE_RUNNER_SOCKET_FD
  --listen ADDR:PORT                      COVE_RUNNER_LISTEN
  --token-file PATH                       COVE_RUNNER_TOKEN      (the variable holds the token itself)
  --uid N, --gid N                        COVE_RUNNER_UID, _GID  1000, 1000; used where the runner starts as root
  --workspace DIR                         COVE_RUNNER_WORKSPACE  /workspace; where relative paths and new shells begin
  --start-dir DIR                         COVE_RUNNER_START_DIR  the workspace; where shells and runs begin, if there is such a directory
  --files-root DIR                        COVE_RUNNER_FILES_ROOT /; what file operations cannot leave
  --scratch DIR                           COVE_RUNNER_SCRATCH    the first of /run, /dev/shm, /tmp that can be written to
  --state DIR                             COVE_RUNNER_STATE      among the scratch files; where shells write their state
  --session-variables NAME[,NAME...]      COVE_RUNNER_SESSION_VARIABLES  none; variables that login files do not override
  --await-restore true|false              COVE_RUNNER_AWAIT_RESTORE  false; open no shell until POST /v1/restore says with which state
  --shell PATH                            COVE_RUNNER_SHELL      bash, from PATH
  --grace-ms N                            COVE_RUNNER_GRACE_MS   5000; between TERM and KILL when the runner is told to end
  --max-processes N                       COVE_RUNNER_MAX_PROCESSES  as many as whoever made the sandbox allows; for a kernel of its own
  --open-files N                          COVE_RUNNER_OPEN_FILES  as many as the runner may have; for each process of a command
  --commands-cgroup-fds N                 COVE_RUNNER_COMMANDS_CGROUP_FDS  0; descriptors from 4 on, each a file of a cgroup that a command enters by writing 0
  --root-namespace-fd N                   COVE_RUNNER_ROOT_NAMESPACE_FD  none; the descriptor after those, a user namespace in which commands are root
  --proc-files 0|1                        COVE_RUNNER_PROC_FILES  0; 1 if the three descriptors after those are FUSE connections, by which files of /proc are read
  --own DIR[:DIR...]                      COVE_RUNNER_OWN        none; given to the user of commands, by an engine that makes them root's
  --network-proxy-port PORT               COVE_RUNNER_NETWORK_PROXY_PORT  none; the port of the loopback whose connections the daemon takes over
";

/// The prefix of the runner's own variables, which commands do not get.
pub const OWN_VARIABLES: &str = "COVE_RUNNER_";

/// The number of an inherited socket's descriptor: the first one after the standard three, as service managers use it.
pub const INHERITED_SOCKET: i32 = 3;

/// The most files of cgroups that the runner can be started with. At most three are used: memory, processes and freezer.
const MAX_COMMANDS_CGROUP_FDS: u8 = 6;

/// The number of connections by which programs read files of `/proc`.
pub const PROC_FILES_FDS: i32 = 3;

/// What the runner was asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Serve(Box<Config>),
    Init(InitConfig),
    Version,
    Help,
}

/// What `runner -- COMMAND` runs, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InitConfig {
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Whether signals go to the command's whole process group.
    pub signals_group: bool,
    /// The signal that the runner gets when its parent dies.
    pub parent_death_signal: Option<Signal>,
    /// The exit codes of the command for which the runner exits with 0.
    pub codes_as_zero: Vec<u8>,
}

/// The variable with which tini's users ask for `-g`. Any value counts.
const GROUP_VARIABLE: &str = "TINI_KILL_PROCESS_GROUP";

/// How to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub listen: Listen,
    /// The user that owns the Unix socket and so may connect to it. If commands run as that user, the caller must keep them
    /// out of the socket's directory.
    pub socket_owner: Option<u32>,
    pub uid: u32,
    pub gid: u32,
    pub workspace: PathBuf,
    /// The directory in which shells and runs begin instead of the workspace.
    pub start_dir: Option<PathBuf>,
    pub files_root: PathBuf,
    pub scratch: Option<PathBuf>,
    /// Where shells write their state: a file system of its own, so that a large state leaves room for scripts.
    pub state: Option<PathBuf>,
    /// The names of the variables that the session was created with.
    pub session_variables: Vec<String>,
    /// Whether the shells are opened by `POST /v1/restore`, and not at the start.
    pub await_restore: bool,
    pub shell: PathBuf,
    pub grace_ms: u64,
    /// The limit of processes that the runner sets itself, for a sandbox with its own kernel, where the host cannot set it.
    pub max_processes: Option<u64>,
    /// The most files that a process of a command may have open. The runner itself may have more.
    pub open_files: Option<u64>,
    /// The number of descriptors after [`INHERITED_SOCKET`] through which commands enter a cgroup of their own.
    pub commands_cgroup_fds: u8,
    /// The number of a descriptor after those: a user namespace in which commands are root. The runner knows that root as `uid`.
    pub root_namespace_fd: Option<i32>,
    /// Whether the [`PROC_FILES_FDS`] descriptors after those are connections by which programs read files of `/proc`.
    pub proc_files: bool,
    /// Directories whose owner becomes the sandbox user, because whoever mounted them could not set the owner.
    pub own: Vec<PathBuf>,
    /// The port of the loopback on which programs connect to the network, where the daemon cannot listen itself.
    pub network_proxy_port: Option<u16>,
}

/// The address of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Unix(PathBuf),
    /// A listening socket that the runner inherits as descriptor [`INHERITED_SOCKET`]. The sandbox then has no path to it.
    Inherited,
    Tcp {
        address: SocketAddr,
        token: Token,
    },
}

/// The secret that clients send on TCP. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}; see runner --help")]
pub struct ConfigError(String);

/// The flags, and the names of their variables without the prefix.
const FLAGS: [(&str, &str); 23] = [
    ("--socket", "SOCKET"),
    ("--socket-owner", "SOCKET_OWNER"),
    ("--socket-fd", "SOCKET_FD"),
    ("--listen", "LISTEN"),
    ("--token-file", "TOKEN_FILE"),
    ("--uid", "UID"),
    ("--gid", "GID"),
    ("--workspace", "WORKSPACE"),
    ("--start-dir", "START_DIR"),
    ("--files-root", "FILES_ROOT"),
    ("--scratch", "SCRATCH"),
    ("--state", "STATE"),
    ("--session-variables", "SESSION_VARIABLES"),
    ("--await-restore", "AWAIT_RESTORE"),
    ("--shell", "SHELL"),
    ("--grace-ms", "GRACE_MS"),
    ("--max-processes", "MAX_PROCESSES"),
    ("--open-files", "OPEN_FILES"),
    ("--commands-cgroup-fds", "COMMANDS_CGROUP_FDS"),
    ("--root-namespace-fd", "ROOT_NAMESPACE_FD"),
    ("--proc-files", "PROC_FILES"),
    ("--own", "OWN"),
    ("--network-proxy-port", "NETWORK_PROXY_PORT"),
];

/// Decides what to do from the arguments after the program's name and a look-up of variables.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Command, ConfigError> {
    let mut given: Vec<(&str, OsString)> = Vec::new();
    let mut init = InitConfig::default();
    let mut init_flag: Option<String> = None;
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy().into_owned();
        match text.as_str() {
            "--" => {
                if !given.is_empty() {
                    return Err(ConfigError("an option of the server has no meaning before -- COMMAND".into()));
                }
                init.command = args.collect();
                if init.command.is_empty() {
                    return Err(ConfigError("nothing to run after --".into()));
                }
                init.signals_group |= variable(GROUP_VARIABLE).is_some();
                return Ok(Command::Init(init));
            }
            "--version" | "-V" => return Ok(Command::Version),
            "--help" | "-h" => return Ok(Command::Help),
            _ => {}
        }
        if let Some((flag, joined)) = short_flag(&text) {
            init.take(flag, joined.map(OsString::from).or_else(|| takes_value(flag).then(|| args.next()).flatten()))?;
            init_flag = Some(flag.to_owned());
            continue;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
            None => (text, None),
        };
        let Some((_, key)) = FLAGS.iter().find(|(flag, _)| *flag == name) else {
            return Err(ConfigError(format!("unknown argument {name:?}")));
        };
        let value = value.or_else(|| args.next()).ok_or_else(|| ConfigError(format!("{name} needs a value")))?;
        given.push((key, value));
    }
    if let Some(flag) = init_flag {
        return Err(ConfigError(format!("{flag} is for a plain init: runner {flag} … -- COMMAND")));
    }
    let setting = |key: &str| {
        let flag = given.iter().rev().find(|(k, _)| *k == key).map(|(_, v)| v.clone());
        flag.or_else(|| variable(&format!("{OWN_VARIABLES}{key}")).filter(|v| !v.is_empty()))
    };
    let path = |key: &str| setting(key).map(PathBuf::from);
    let listen = match (path("SOCKET"), setting("SOCKET_FD"), setting("LISTEN")) {
        (Some(socket), None, None) => Listen::Unix(socket),
        (None, Some(fd), None) => match number("SOCKET_FD", &fd)? {
            INHERITED_SOCKET => Listen::Inherited,
            _ => return Err(ConfigError(format!("the inherited socket is descriptor {INHERITED_SOCKET}"))),
        },
        (None, None, Some(address)) => Listen::Tcp { address: number("LISTEN", &address)?, token: token(&setting)? },
        (None, None, None) => {
            let base = variable("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()).unwrap_or_else(|| "/run".into());
            Listen::Unix(PathBuf::from(base).join("cove/runner.sock"))
        }
        _ => return Err(ConfigError("give one of --socket, --socket-fd and --listen".into())),
    };
    let numeric = |key: &str, default: u32| setting(key).map_or(Ok(default), |v| number(key, &v));
    let config = Config {
        listen,
        socket_owner: setting("SOCKET_OWNER").map(|v| number("SOCKET_OWNER", &v)).transpose()?,
        uid: numeric("UID", SANDBOX_USER)?,
        gid: numeric("GID", SANDBOX_USER)?,
        workspace: path("WORKSPACE").unwrap_or_else(|| "/workspace".into()),
        start_dir: path("START_DIR"),
        files_root: path("FILES_ROOT").unwrap_or_else(|| "/".into()),
        scratch: path("SCRATCH"),
        state: path("STATE"),
        session_variables: setting("SESSION_VARIABLES").map(|v| names(&v)).unwrap_or_default(),
        await_restore: setting("AWAIT_RESTORE").map_or(Ok(false), |v| number("AWAIT_RESTORE", &v))?,
        shell: path("SHELL").unwrap_or_else(|| "bash".into()),
        grace_ms: setting("GRACE_MS").map_or(Ok(5000), |v| number("GRACE_MS", &v))?,
        max_processes: setting("MAX_PROCESSES").map(|v| number("MAX_PROCESSES", &v)).transpose()?,
        open_files: setting("OPEN_FILES").map(|v| number("OPEN_FILES", &v)).transpose()?,
        commands_cgroup_fds: setting("COMMANDS_CGROUP_FDS").map_or(Ok(0), |v| number("COMMANDS_CGROUP_FDS", &v))?,
        root_namespace_fd: setting("ROOT_NAMESPACE_FD").map(|v| number("ROOT_NAMESPACE_FD", &v)).transpose()?,
        proc_files: match setting("PROC_FILES").map(|v| number("PROC_FILES", &v)).transpose()? {
            None | Some(0) => false,
            Some(1) => true,
            Some(_) => return Err(ConfigError("--proc-files is 0 or 1".into())),
        },
        network_proxy_port: setting("NETWORK_PROXY_PORT").map(|v| number("NETWORK_PROXY_PORT", &v)).transpose()?,
        own: setting("OWN").map(|v| std::env::split_paths(&v).collect()).unwrap_or_default(),
    };
    if let Some(other) = config.own.iter().find(|path| !path.is_absolute()) {
        return Err(ConfigError(format!("{other:?} is not an absolute path, as --own needs")));
    }
    if config.commands_cgroup_fds > MAX_COMMANDS_CGROUP_FDS {
        return Err(ConfigError(format!("--commands-cgroup-fds is at most {MAX_COMMANDS_CGROUP_FDS}")));
    }
    if config.commands_cgroup_fds > 0 && config.listen != Listen::Inherited {
        return Err(ConfigError("--commands-cgroup-fds needs --socket-fd".into()));
    }
    let after_cgroups = INHERITED_SOCKET + 1 + i32::from(config.commands_cgroup_fds);
    if config.root_namespace_fd.is_some_and(|number| number != after_cgroups || config.listen != Listen::Inherited) {
        return Err(ConfigError(
            "--root-namespace-fd needs --socket-fd, and is the first number after the cgroups' descriptors".into(),
        ));
    }
    if config.proc_files && config.listen != Listen::Inherited {
        return Err(ConfigError("--proc-files needs --socket-fd".into()));
    }
    if config.network_proxy_port == Some(0) {
        return Err(ConfigError("--network-proxy-port is a number from 1 to 65535".into()));
    }
    if config.uid == 0 || config.gid == 0 {
        return Err(ConfigError("commands do not run as root: --uid and --gid must not be 0".into()));
    }
    Ok(Command::Serve(Box::new(config)))
}

/// Splits `-pTERM` into the flag and the value that is joined to it. `None` for what does not begin with a single dash.
fn short_flag(text: &str) -> Option<(&str, Option<&str>)> {
    if text.starts_with("--") || !text.starts_with('-') {
        return None;
    }
    match text.split_at_checked(2) {
        Some((flag, joined)) if takes_value(flag) && !joined.is_empty() => Some((flag, Some(joined))),
        _ => Some((text, None)),
    }
}

fn takes_value(flag: &str) -> bool {
    matches!(flag, "-p" | "-e")
}

impl InitConfig {
    fn take(&mut self, flag: &str, value: Option<OsString>) -> Result<(), ConfigError> {
        let value = value.map(|value| value.to_string_lossy().into_owned());
        match (flag, value) {
            ("-g", _) => self.signals_group = true,
            // The runner always adopts orphans.
            ("-s", _) => {}
            ("-p", Some(name)) => {
                let signal = signal::number_of(&name).and_then(|number| Signal::try_from(number).ok());
                let unknown = || ConfigError(format!("{name:?} is not a signal, such as TERM or 15, as -p needs"));
                self.parent_death_signal = Some(signal.ok_or_else(unknown)?);
            }
            ("-e", Some(code)) => {
                let code = code.parse().map_err(|_| ConfigError(format!("{code:?} is no exit code, 0 to 255")))?;
                self.codes_as_zero.push(code);
            }
            ("-p" | "-e", None) => return Err(ConfigError(format!("{flag} needs a value"))),
            _ => return Err(ConfigError(format!("unknown argument {flag:?}"))),
        }
        Ok(())
    }
}

fn names(list: &OsString) -> Vec<String> {
    list.to_string_lossy().split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn number<T: std::str::FromStr>(key: &str, value: &OsString) -> Result<T, ConfigError> {
    let text = value.to_string_lossy();
    text.parse().map_err(|_| ConfigError(format!("{text:?} is not a valid value for {key}")))
}

fn token(setting: &impl Fn(&str) -> Option<OsString>) -> Result<Token, ConfigError> {
    let token = match setting("TOKEN_FILE") {
        Some(file) => std::fs::read_to_string(&file)
            .map_err(|e| ConfigError(format!("cannot read the token file {}: {e}", file.to_string_lossy())))?,
        None => setting("TOKEN").map(|t| t.to_string_lossy().into_owned()).unwrap_or_default(),
    };
    match token.trim() {
        "" => Err(ConfigError("--listen needs a token: --token-file PATH or COVE_RUNNER_TOKEN".into())),
        token => Ok(Token(token.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str], variables: &[(&str, &str)]) -> Result<Command, String> {
        parse(args.iter().map(OsString::from), |name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v))
        })
        .map_err(|e| e.to_string())
    }

    #[test]
    fn flags_win_over_variables_and_both_over_defaults() {
        let variables = [("COVE_RUNNER_SOCKET", "/v.sock"), ("COVE_RUNNER_UID", "7"), ("COVE_RUNNER_GID", "")];
        let flags = ["--uid=9", "--workspace", "/w", "--start-dir", "/s"];
        let Ok(Command::Serve(config)) = parsed(&flags, &variables) else { panic!() };
        assert_eq!(config.start_dir, Some("/s".into()));
        assert_eq!(config.listen, Listen::Unix("/v.sock".into()));
        assert_eq!((config.uid, config.gid), (9, SANDBOX_USER));
        assert_eq!(config.workspace, PathBuf::from("/w"));
    }

    #[test]
    fn a_wrong_argument_is_explained() {
        assert!(parsed(&["--listen", "127.0.0.1:0"], &[]).unwrap_err().contains("needs a token"));
        assert!(parsed(&["--socket", "/s", "--uid", "0"], &[]).unwrap_err().contains("root"));
        assert!(parsed(&["--socket", "/s", "--gid", "x"], &[]).unwrap_err().contains("GID"));
        assert!(parsed(&["--sokcet", "/s"], &[]).unwrap_err().contains("unknown argument"));
        assert!(parsed(&["--socket"], &[]).unwrap_err().contains("needs a value"));
        assert!(parsed(&["--socket", "/s", "--socket-fd", "3"], &[]).unwrap_err().contains("one of"));
        assert!(parsed(&["--socket-fd", "4"], &[]).unwrap_err().contains("descriptor 3"));
        assert!(parsed(&["--own", "/a:b"], &[]).unwrap_err().contains("\"b\" is not an absolute path"));
        assert!(parsed(&["--commands-cgroup-fds", "7"], &[]).unwrap_err().contains("at most 6"));
        assert!(parsed(&["--commands-cgroup-fds", "1"], &[]).unwrap_err().contains("needs --socket-fd"));
        assert!(parsed(&["--root-namespace-fd", "4"], &[]).unwrap_err().contains("needs --socket-fd"));
        let other = ["--socket-fd", "3", "--commands-cgroup-fds", "1", "--root-namespace-fd", "4"];
        assert!(parsed(&other, &[]).unwrap_err().contains("first number after"));
        assert!(parsed(&["--proc-files", "1"], &[]).unwrap_err().contains("needs --socket-fd"));
        assert!(parsed(&["--proc-files", "2"], &[]).unwrap_err().contains("0 or 1"));
        assert!(parsed(&["--network-proxy-port", "0"], &[]).unwrap_err().contains("from 1"));
        assert!(parsed(&["--"], &[]).unwrap_err().contains("nothing to run"));
    }

    #[test]
    fn directories_to_own_are_a_list() {
        let Ok(Command::Serve(config)) = parsed(&["--own", "/a:/b/c"], &[]) else { panic!() };
        assert_eq!(config.own, ["/a", "/b/c"].map(PathBuf::from));
        let Ok(Command::Serve(config)) = parsed(&[], &[]) else { panic!() };
        assert!(config.own.is_empty());
    }

    #[test]
    fn the_sessions_variables_are_a_list() {
        let Ok(Command::Serve(config)) = parsed(&["--session-variables", "PATH,FOO"], &[]) else { panic!() };
        assert_eq!(config.session_variables, ["PATH", "FOO"]);
    }

    #[test]
    fn without_arguments_it_serves_on_the_default_socket() {
        let Ok(Command::Serve(config)) = parsed(&[], &[]) else { panic!() };
        assert_eq!(config.listen, Listen::Unix("/run/cove/runner.sock".into()));
        let Ok(Command::Serve(config)) = parsed(&[], &[("XDG_RUNTIME_DIR", "/run/user/7")]) else { panic!() };
        assert_eq!(config.listen, Listen::Unix("/run/user/7/cove/runner.sock".into()));
    }

    #[test]
    fn after_two_dashes_everything_is_the_command() {
        let command = parsed(&["--", "sh", "--version"], &[]).unwrap();
        let expected = InitConfig { command: vec!["sh".into(), "--version".into()], ..InitConfig::default() };
        assert_eq!(command, Command::Init(expected));
    }

    #[test]
    fn an_init_takes_the_flags_that_tini_has() {
        let Ok(Command::Init(init)) = parsed(&["-g", "-s", "-p", "SIGTERM", "-e", "143", "-e7", "--", "a"], &[]) else {
            panic!()
        };
        assert!(init.signals_group);
        assert_eq!((init.parent_death_signal, init.codes_as_zero), (Some(Signal::SIGTERM), vec![143, 7]));
        let Ok(Command::Init(init)) = parsed(&["--", "a", "-g"], &[]) else { panic!() };
        assert!(!init.signals_group, "what follows the dashes is the command's");
        let Ok(Command::Init(init)) = parsed(&["--", "a"], &[("TINI_KILL_PROCESS_GROUP", "")]) else { panic!() };
        assert!(init.signals_group);
    }

    #[test]
    fn a_wrong_flag_of_an_init_is_explained() {
        assert!(parsed(&["-g"], &[]).unwrap_err().contains("-g is for a plain init"));
        assert!(parsed(&["-x", "--", "a"], &[]).unwrap_err().contains("unknown argument \"-x\""));
        assert!(parsed(&["-gx", "--", "a"], &[]).unwrap_err().contains("unknown argument \"-gx\""));
        assert!(parsed(&["-p", "NOSUCH", "--", "a"], &[]).unwrap_err().contains("is not a signal"));
        assert!(parsed(&["-e", "256", "--", "a"], &[]).unwrap_err().contains("0 to 255"));
        assert!(parsed(&["-e"], &[]).unwrap_err().contains("-e needs a value"));
        assert!(parsed(&["--socket", "/s", "--", "a"], &[]).unwrap_err().contains("option of the server"));
    }

    #[test]
    fn a_token_is_never_printed() {
        let Ok(command) = parsed(&["--listen", "127.0.0.1:0"], &[("COVE_RUNNER_TOKEN", "hush")]) else { panic!() };
        assert!(!format!("{command:?}").contains("hush"));
    }
}

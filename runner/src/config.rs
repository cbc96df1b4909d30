//! What the runner was asked to do: flags first, then variables, then defaults that work.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

pub const USAGE: &str = "\
runner: PID 1 of a sandbox; keeps shells alive and serves them over HTTP

  runner [--socket PATH] [options]        serve on a Unix socket
  runner --socket-fd 3 [options]          serve on a listening Unix socket that was opened for it
  runner --listen ADDR:PORT [options]     serve on TCP; needs a token
  runner -- COMMAND [ARG...]              be a plain init: run COMMAND, reap orphans, pass its exit status on
  runner --version

options                                   variable               default
  --socket PATH                           COVE_RUNNER_SOCKET     /run/cove/runner.sock; $XDG_RUNTIME_DIR/cove/… if that is set
  --socket-owner UID                      COVE_RUNNER_SOCKET_OWNER  the runner's own user; for a daemon outside that is another
  --socket-fd 3                           COVE_RUNNER_SOCKET_FD
  --listen ADDR:PORT                      COVE_RUNNER_LISTEN
  --token-file PATH                       COVE_RUNNER_TOKEN      (the variable holds the token itself)
  --uid N, --gid N                        COVE_RUNNER_UID, _GID  1000, 1000; used where the runner starts as root
  --workspace DIR                         COVE_RUNNER_WORKSPACE  /workspace; where relative paths and new shells begin
  --files-root DIR                        COVE_RUNNER_FILES_ROOT /; what file operations cannot leave
  --scratch DIR                           COVE_RUNNER_SCRATCH    the first of /run, /dev/shm, /tmp that can be written to
  --shell PATH                            COVE_RUNNER_SHELL      bash, from PATH
  --grace-ms N                            COVE_RUNNER_GRACE_MS   5000; between TERM and KILL when the runner is told to end
  --max-processes N                       COVE_RUNNER_MAX_PROCESSES  as many as whoever made the sandbox allows; for a kernel of its own
  --own DIR[:DIR...]                      COVE_RUNNER_OWN        none; given to the user of commands, by an engine that makes them root's
";

/// Names that begin so are the runner's own and are not passed on to commands.
pub const OWN_VARIABLES: &str = "COVE_RUNNER_";

/// The first one after the standard three, as service managers have it.
pub const INHERITED_SOCKET: i32 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Serve(Config),
    Init(Vec<OsString>),
    Version,
    Help,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub listen: Listen,
    /// Who else may connect to the Unix socket. Whoever says so keeps commands from its directory, if that is their user.
    pub socket_owner: Option<u32>,
    pub uid: u32,
    pub gid: u32,
    pub workspace: PathBuf,
    pub files_root: PathBuf,
    pub scratch: Option<PathBuf>,
    pub shell: PathBuf,
    pub grace_ms: u64,
    /// To be enforced by the sandbox's own kernel, where it has one that nobody outside can tell.
    pub max_processes: Option<u64>,
    /// Directories that commands own, where whoever mounted them could not say so.
    pub own: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Unix(PathBuf),
    /// A socket that whoever started the runner listens on already, as descriptor [`INHERITED_SOCKET`]: the sandbox then has
    /// no path to it at all.
    Inherited,
    Tcp {
        address: SocketAddr,
        token: Token,
    },
}

/// A secret: never printed.
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

const FLAGS: [(&str, &str); 14] = [
    ("--socket", "SOCKET"),
    ("--socket-owner", "SOCKET_OWNER"),
    ("--socket-fd", "SOCKET_FD"),
    ("--listen", "LISTEN"),
    ("--token-file", "TOKEN_FILE"),
    ("--uid", "UID"),
    ("--gid", "GID"),
    ("--workspace", "WORKSPACE"),
    ("--files-root", "FILES_ROOT"),
    ("--scratch", "SCRATCH"),
    ("--shell", "SHELL"),
    ("--grace-ms", "GRACE_MS"),
    ("--max-processes", "MAX_PROCESSES"),
    ("--own", "OWN"),
];

/// Decides what to do from the arguments after the program's name and a look-up of variables.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Command, ConfigError> {
    let mut given: Vec<(&str, OsString)> = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy().into_owned();
        match text.as_str() {
            "--" => {
                let command: Vec<OsString> = args.collect();
                if command.is_empty() {
                    return Err(ConfigError("nothing to run after --".into()));
                }
                return Ok(Command::Init(command));
            }
            "--version" | "-V" => return Ok(Command::Version),
            "--help" | "-h" => return Ok(Command::Help),
            _ => {}
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
        uid: numeric("UID", 1000)?,
        gid: numeric("GID", 1000)?,
        workspace: path("WORKSPACE").unwrap_or_else(|| "/workspace".into()),
        files_root: path("FILES_ROOT").unwrap_or_else(|| "/".into()),
        scratch: path("SCRATCH"),
        shell: path("SHELL").unwrap_or_else(|| "bash".into()),
        grace_ms: setting("GRACE_MS").map_or(Ok(5000), |v| number("GRACE_MS", &v))?,
        max_processes: setting("MAX_PROCESSES").map(|v| number("MAX_PROCESSES", &v)).transpose()?,
        own: setting("OWN").map(|v| std::env::split_paths(&v).collect()).unwrap_or_default(),
    };
    if let Some(other) = config.own.iter().find(|path| !path.is_absolute()) {
        return Err(ConfigError(format!("{other:?} is not an absolute path, as --own needs")));
    }
    if config.uid == 0 || config.gid == 0 {
        return Err(ConfigError("commands do not run as root: --uid and --gid must not be 0".into()));
    }
    Ok(Command::Serve(config))
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
        let Ok(Command::Serve(config)) = parsed(&["--uid=9", "--workspace", "/w"], &variables) else { panic!() };
        assert_eq!(config.listen, Listen::Unix("/v.sock".into()));
        assert_eq!((config.uid, config.gid), (9, 1000));
        assert_eq!(config.workspace, PathBuf::from("/w"));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        assert!(parsed(&["--listen", "127.0.0.1:0"], &[]).unwrap_err().contains("needs a token"));
        assert!(parsed(&["--socket", "/s", "--uid", "0"], &[]).unwrap_err().contains("root"));
        assert!(parsed(&["--socket", "/s", "--gid", "x"], &[]).unwrap_err().contains("GID"));
        assert!(parsed(&["--sokcet", "/s"], &[]).unwrap_err().contains("unknown argument"));
        assert!(parsed(&["--socket"], &[]).unwrap_err().contains("needs a value"));
        assert!(parsed(&["--socket", "/s", "--socket-fd", "3"], &[]).unwrap_err().contains("one of"));
        assert!(parsed(&["--socket-fd", "4"], &[]).unwrap_err().contains("descriptor 3"));
        assert!(parsed(&["--own", "/a:b"], &[]).unwrap_err().contains("\"b\" is not an absolute path"));
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
    fn without_a_word_it_serves_where_sockets_go() {
        let Ok(Command::Serve(config)) = parsed(&[], &[]) else { panic!() };
        assert_eq!(config.listen, Listen::Unix("/run/cove/runner.sock".into()));
        let Ok(Command::Serve(config)) = parsed(&[], &[("XDG_RUNTIME_DIR", "/run/user/7")]) else { panic!() };
        assert_eq!(config.listen, Listen::Unix("/run/user/7/cove/runner.sock".into()));
    }

    #[test]
    fn after_two_dashes_everything_is_the_command() {
        let command = parsed(&["--", "sh", "--version"], &[]).unwrap();
        assert_eq!(command, Command::Init(vec!["sh".into(), "--version".into()]));
    }

    #[test]
    fn a_token_is_never_printed() {
        let Ok(command) = parsed(&["--listen", "127.0.0.1:0"], &[("COVE_RUNNER_TOKEN", "hush")]) else { panic!() };
        assert!(!format!("{command:?}").contains("hush"));
    }
}

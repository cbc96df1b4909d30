//! What people type who know docker. Words that mean a command of `cove` become that command; for the others there is a sentence that
//! says what to type instead.

use std::ffi::OsString;

use super::exit::Failure;

/// Words that stand for other words. Words with one meaning in both programs are aliases of their commands.
const SAME: [(&[&str], &[&str]); 14] = [
    (&["images"], &["image", "ls"]),
    (&["pull"], &["image", "pull"]),
    (&["rmi"], &["image", "rm"]),
    (&["import"], &["image", "import"]),
    (&["commit"], &["image", "commit"]),
    (&["image", "list"], &["image", "ls"]),
    (&["container", "ls"], &["ps"]),
    (&["container", "list"], &["ps"]),
    (&["container", "ps"], &["ps"]),
    (&["container"], &[]),
    (&["system", "prune"], &["prune"]),
    (&["volume"], &["workspace"]),
    (&["volumes"], &["workspace", "ls"]),
    (&["workspaces"], &["workspace", "ls"]),
];

/// Commands of docker that Cove does not have, and what to type instead.
const INSTEAD: [(&str, &str); 31] = [
    ("attach", "`cove shell SESSION` opens a terminal in a session; `cove logs -f SESSION` follows its last command"),
    ("build", BUILD),
    ("buildx", BUILD),
    ("builder", BUILD),
    ("compose", "create a session for each service; `cove forward` and `cove ports` reach the servers in them"),
    ("context", "--url and --api-key, or COVE_URL and COVE_API_KEY, choose the daemon"),
    ("df", "`cove image ls`, `cove workspace ls` and `cove stats` show what is used"),
    ("diff", "`cove exec SESSION find / -xdev -newer FILE` finds what changed"),
    ("events", "the audit log in the data directory has what was changed, and by whom"),
    ("export", "`cove cp SESSION:/ - > files.tar` writes the files of a session as a tar stream"),
    ("history", "`cove image inspect IMAGE` lists the layers of an image"),
    ("info", "`cove doctor` describes this host, and `cove version` the program"),
    ("load", "`cove image import NAME FILE` reads what `docker save` writes"),
    ("login", "credentials of registries are read from ~/.docker/config.json, as docker and podman write them"),
    ("logout", "credentials of registries are read from ~/.docker/config.json, as docker and podman write them"),
    ("manifest", "`cove image inspect IMAGE` describes an image"),
    ("plugin", "runtimes are part of the program; `cove serve --runtime` chooses one"),
    ("push", "Cove pulls images and pushes none: push with docker or podman"),
    ("rename", "a session keeps its name; `cove create --name NAME` gives one"),
    ("restart", "`cove stop SESSION`, then `cove start SESSION`"),
    ("save", "`docker save` or `podman save` writes an image; `cove image import NAME FILE` reads it"),
    ("search", "`cove image pull IMAGE` pulls an image whose name you know; `cove image ls` lists those that are here"),
    ("service", "Cove runs on a single host: `cove create` makes sessions"),
    ("stack", "Cove runs on a single host: `cove create` makes sessions"),
    ("swarm", "Cove runs on a single host: `cove create` makes sessions"),
    ("system", "`cove prune` removes what is not used; `cove doctor` describes this host"),
    ("tag", "an image keeps its name; `cove image import NAME FILE` chooses one"),
    ("top", "`cove exec SESSION ps aux` lists the processes of a session"),
    ("up", "`cove serve` starts the daemon"),
    ("down", "Ctrl-C stops the daemon; `cove rm --all` ends all sessions"),
    ("wait", "`cove logs -f SESSION` returns when the session's last command has ended, with its exit code"),
];

const BUILD: &str =
    "Cove builds no images: build with docker or podman, then `docker save IMAGE | cove image import NAME -`";

/// Options of docker that Cove does not have, and what to type instead.
const INSTEAD_OF_OPTIONS: [(&str, &str); 31] = [
    ("--add-host", "write the name into /etc/hosts of the sandbox, with --user root"),
    (
        "--cap-add",
        "--user root gives root of the sandbox, and --profile what debuggers need; a sandbox has no other capabilities",
    ),
    ("--cap-drop", "a sandbox has no capabilities to begin with"),
    ("--device", "a sandbox has no devices of this machine"),
    ("--dns", "names are resolved by the daemon, as --network allows"),
    ("--entrypoint", "type the program as CMD: an image's entry point is not used"),
    ("--env-file", "give each variable with -e NAME=VALUE, or -e NAME for a value of your own"),
    ("--expose", "every port of a sandbox can be forwarded: `cove forward SESSION PORT`"),
    ("--filter", "use --label KEY=VALUE or --name NAME"),
    ("--format", "use --json, and jq to choose from it"),
    ("--gpus", "a sandbox has no devices of this machine"),
    ("--hostname", "a sandbox has a host name of its own"),
    ("--init", "every sandbox has an init process"),
    ("--ipc", "a sandbox shares nothing with this machine"),
    ("--link", "sessions do not see each other's network; `cove forward` reaches their ports"),
    ("--log-driver", "`cove logs` shows the output of commands"),
    ("--mount", "use -v WORKSPACE: a named directory that outlives the session"),
    ("--no-trunc", "ids are never shortened"),
    ("--pid", "a sandbox shares nothing with this machine"),
    ("--platform", "an image is pulled for this machine's own processor"),
    ("--privileged", "no sandbox is privileged; --user root gives root of the sandbox"),
    ("--publish-all", "name the ports: -p 8000 -p 5432"),
    ("--pull", "a missing image is pulled; `cove image pull IMAGE` pulls it again"),
    ("--read-only", "the root file system is read-only unless --writable-root or --user root is given"),
    ("--restart", "a session survives a restart of the daemon by itself"),
    ("--security-opt", "the sandbox's protections cannot be changed from here; --profile has what debuggers need"),
    ("--shm-size", "/dev/shm is limited by the memory of the session: use -m SIZE"),
    ("--stop-timeout", "`cove stop` ends the processes of a session at once"),
    ("--tmpfs", "/tmp of a sandbox is its own"),
    ("--ulimit", "use -m SIZE, --cpus N and --pids N"),
    ("-P", "name the ports: -p 8000 -p 5432"),
];

/// The arguments with docker's words replaced. The first argument is the name of the program.
pub fn translated(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_at_start = |words: &[&str]| {
        words.len() < args.len() && words.iter().zip(&args[1..]).all(|(word, arg)| arg.to_str() == Some(*word))
    };
    if let Some((from, to)) = SAME.iter().find(|(from, _)| is_at_start(from)) {
        args.splice(1..=from.len(), to.iter().map(OsString::from));
    }
    args
}

/// What to say about a command that does not exist.
pub fn about_command(word: &str) -> Option<String> {
    let (_, instead) = INSTEAD.iter().find(|(known, _)| *known == word)?;
    Some(format!("there is no `cove {word}`: {instead}"))
}

/// What to say about an option that does not exist.
pub fn about_option(option: &str) -> Option<String> {
    let option = option.split('=').next().unwrap_or(option);
    let (_, instead) = INSTEAD_OF_OPTIONS.iter().find(|(known, _)| *known == option)?;
    Some(format!("there is no option {option}: {instead}"))
}

/// Refuses an option where a command of a sandbox is expected. No program's name begins with a dash.
pub fn refuse_option(word: &str, command: &str) -> Result<(), Failure> {
    if !word.starts_with('-') {
        return Ok(());
    }
    let message =
        about_option(word).unwrap_or_else(|| format!("there is no option {word}; `cove help {command}` lists them"));
    Err(Failure::usage(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn words_that_mean_the_same_become_the_command() {
        for (typed, meant) in [
            ("cove images", "cove image ls"),
            ("cove pull -q x", "cove image pull -q x"),
            ("cove container run x", "cove run x"),
            ("cove container ls -a", "cove ps -a"),
            ("cove volume ls", "cove workspace ls"),
            ("cove system prune -f", "cove prune -f"),
            ("cove run images", "cove run images"),
            ("cove", "cove"),
        ] {
            assert_eq!(translated(args(typed)), args(meant), "{typed}");
        }
    }

    #[test]
    fn every_other_word_says_what_to_type() {
        assert!(about_command("build").unwrap().contains("cove image import"));
        assert!(about_option("--entrypoint=sh").unwrap().contains("CMD"));
        assert_eq!((about_command("ps"), about_option("--json")), (None, None));
        assert!(refuse_option("ls", "exec").is_ok());
        assert!(refuse_option("--privileged", "run").is_err_and(|e| format!("{e:?}").contains("--user root")));
        assert!(refuse_option("--nonsense", "run").is_err_and(|e| format!("{e:?}").contains("cove help run")));
    }
}

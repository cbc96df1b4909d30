//! The environment a new shell or run begins with: what the image set, made quiet, without what is the runner's own.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::config::OWN_VARIABLES;

/// So that nothing an agent types waits for a key.
const QUIET: [(&str, &str); 5] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PYTHONUNBUFFERED", "1"),
];

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The user's own, whatever was asked for.
const OF_THE_USER: [&str; 4] = ["HOME", "USER", "LOGNAME", "SHELL"];

/// Of one process, or of one terminal.
const NOT_PASSED_ON: [&str; 7] = ["PWD", "OLDPWD", "SHLVL", "_", "LINES", "COLUMNS", "NOTIFY_SOCKET"];

#[derive(Debug, Clone)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    /// What came with the claim of a sandbox that was started ahead; they win. Shared by all clones.
    claimed: Rc<OnceCell<BTreeMap<String, String>>>,
    /// Where shells and runs begin.
    pub start_dir: PathBuf,
}

impl Environment {
    /// From the runner's own variables and the user that commands run as.
    pub fn new(own: impl Iterator<Item = (OsString, OsString)>, user: User, workspace: &Path) -> Self {
        let mut variables: BTreeMap<OsString, OsString> =
            own.filter(|(name, _)| !name.as_bytes().starts_with(OWN_VARIABLES.as_bytes())).collect();
        let start_dir = if workspace.is_dir() { workspace.to_owned() } else { user.home.clone() };
        variables.entry("PATH".into()).or_insert(DEFAULT_PATH.into());
        variables.entry("LANG".into()).or_insert("C.UTF-8".into());
        variables.entry("TERM".into()).or_insert("xterm-256color".into());
        let user: [OsString; 4] =
            [user.home.into(), user.name.clone().into(), user.name.into(), OsString::from("/bin/bash")];
        variables.extend(OF_THE_USER.map(OsString::from).into_iter().zip(user));
        for name in NOT_PASSED_ON {
            variables.remove(OsStr::new(name));
        }
        for (name, value) in QUIET {
            variables.entry(name.into()).or_insert(value.into());
        }
        Self { variables, claimed: Rc::default(), start_dir }
    }

    /// Adds the variables of whom the sandbox belongs to from now on. False where it is somebody's already: then nothing
    /// changes.
    pub fn claim(&self, mut variables: BTreeMap<String, String>) -> bool {
        let is_ours = |name: &str| {
            OF_THE_USER.contains(&name) || NOT_PASSED_ON.contains(&name) || name.starts_with(OWN_VARIABLES)
        };
        variables.retain(|name, _| !is_ours(name));
        self.claimed.set(variables).is_ok()
    }

    pub fn is_claimed(&self) -> bool {
        self.claimed.get().is_some()
    }

    /// Those that came with the claim.
    pub fn claimed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.claimed.get().into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The PATH that a program with these variables on top has.
    pub fn path(&self, extra: &BTreeMap<String, String>) -> Option<OsString> {
        let claimed = || self.claimed().find(|(name, _)| *name == "PATH").map(|(_, path)| path.into());
        let own = || self.variables.get(OsStr::new("PATH")).cloned();
        extra.get("PATH").map(OsString::from).or_else(claimed).or_else(own)
    }

    /// The later one of a name counts.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let own = self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()));
        own.chain(self.claimed().map(|(name, value)| (OsStr::new(name), OsStr::new(value))))
    }
}

/// A user as `/etc/passwd` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub home: PathBuf,
}

impl User {
    /// Looks `uid` up in the text of a passwd file. Not by libc: a static binary cannot load name services, and a sandbox
    /// has none.
    pub fn find(passwd: &str, uid: u32) -> Option<Self> {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let found: u32 = fields.nth(1)?.parse().ok()?;
            let home = fields.nth(2)?;
            (found == uid).then(|| Self { name: name.to_owned(), home: home.into() })
        })
    }

    /// The user of commands, with a home that exists.
    pub fn of_commands(uid: u32, workspace: &Path) -> Self {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let mut user =
            Self::find(&passwd, uid).unwrap_or_else(|| Self { name: "sandbox".into(), home: workspace.to_owned() });
        if !user.home.is_dir() {
            user.home =
                [workspace, Path::new("/tmp")].into_iter().find(|d| d.is_dir()).unwrap_or(Path::new("/")).into();
        }
        user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number_and_odd_lines_are_passed_over() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\nx:y:z\nsandbox:x:1000:1000::/home/sandbox:/bin/bash\n";
        assert_eq!(User::find(passwd, 1000), Some(User { name: "sandbox".into(), home: "/home/sandbox".into() }));
        assert_eq!(User::find(passwd, 4242), None);
    }

    #[test]
    fn a_claim_adds_variables_once_and_takes_nothing_that_is_the_users() {
        let user = User { name: "u".into(), home: "/home/u".into() };
        let own = [("PATH", "/bin"), ("LANG", "C")].map(|(n, v)| (n.into(), v.into()));
        let environment = Environment::new(own.into_iter(), user, Path::new("/nonexistent"));
        let other = environment.clone();
        let given = [("PATH", "/opt"), ("TOKEN", "t"), ("HOME", "/root"), ("SHLVL", "9"), ("COVE_RUNNER_UID", "0")];
        let claim = |pairs: &[(&str, &str)]| {
            environment.claim(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect())
        };
        assert!(claim(&given));
        assert!(!claim(&[("TOKEN", "stolen")]));
        let last = |name: &str| other.variables().filter(|(n, _)| *n == name).last().map(|(_, v)| v.to_owned());
        assert_eq!(last("TOKEN"), Some("t".into()));
        assert_eq!(last("PATH"), Some("/opt".into()));
        assert_eq!(other.path(&BTreeMap::new()), Some("/opt".into()));
        assert_eq!(last("HOME"), Some("/home/u".into()));
        assert_eq!((last("SHLVL"), last("COVE_RUNNER_UID")), (None, None));
    }

    #[test]
    fn the_runners_own_variables_are_not_passed_on() {
        let own = [("COVE_RUNNER_TOKEN", "hush"), ("FOO", "1"), ("PAGER", "less")];
        let environment = Environment::new(
            own.into_iter().map(|(n, v)| (n.into(), v.into())),
            User { name: "u".into(), home: "/".into() },
            Path::new("/nonexistent"),
        );
        let get = |name: &str| environment.variables().find(|(n, _)| *n == name).map(|(_, v)| v.to_owned());
        assert_eq!(get("COVE_RUNNER_TOKEN"), None);
        assert_eq!(get("FOO"), Some("1".into()));
        assert_eq!(get("PAGER"), Some("less".into()), "what the image chose stays");
        assert_eq!(get("GIT_PAGER"), Some("cat".into()));
    }
}

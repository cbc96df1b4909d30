//! The environment a new shell or run begins with: what the image set, made quiet, without what is the runner's own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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

#[derive(Debug, Clone)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
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
        variables.insert("HOME".into(), user.home.into());
        variables.insert("USER".into(), user.name.clone().into());
        variables.insert("LOGNAME".into(), user.name.into());
        variables.insert("SHELL".into(), "/bin/bash".into());
        for name in ["PWD", "OLDPWD", "SHLVL", "_", "LINES", "COLUMNS", "NOTIFY_SOCKET"] {
            variables.remove(OsStr::new(name));
        }
        for (name, value) in QUIET {
            variables.entry(name.into()).or_insert(value.into());
        }
        Self { variables, start_dir }
    }

    /// The PATH that a program with these variables on top has.
    pub fn path(&self, extra: &BTreeMap<String, String>) -> Option<OsString> {
        extra.get("PATH").map(OsString::from).or_else(|| self.variables.get(OsStr::new("PATH")).cloned())
    }

    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
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

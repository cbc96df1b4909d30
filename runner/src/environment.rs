//! The environment of new shells and runs: the image's variables and defaults that avoid prompts, without the runner's own
//! variables.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::config::OWN_VARIABLES;
use crate::file_kind;

/// Defaults that keep programs from waiting for a key press, or for a network that does not allow what they want. A person's
/// terminal does not have them.
const NON_INTERACTIVE: [(&str, &str); 8] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PYTHONUNBUFFERED", "1"),
    ("PIP_RETRIES", "2"),
    // npm tries three times what fails, and would wait 10 and 60 seconds in between.
    ("npm_config_fetch_retry_mintimeout", "100"),
    ("npm_config_fetch_retry_maxtimeout", "500"),
];

/// Where systems keep the certificates that they trust, in one file. Node trusts only its own list, and so would not know the
/// certificate of a company's mirror that every other program in the sandbox knows.
const CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];
/// The largest list of users that is read.
const MAX_PASSWD_BYTES: u64 = 1 << 20;
const NODE_CERTIFICATES: &str = "NODE_EXTRA_CA_CERTS";

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that describe the user. Nothing overrides them.
const USER_VARIABLES: [&str; 4] = ["HOME", "USER", "LOGNAME", "SHELL"];

/// Variables that belong to one process or one terminal and are not passed on.
const NOT_PASSED_ON: [&str; 7] = ["PWD", "OLDPWD", "SHLVL", "_", "LINES", "COLUMNS", "NOTIFY_SOCKET"];

/// Variables that lead programs to the proxy of the network, each also in small letters: programs do not agree on which they read.
/// ALL_PROXY names the proxy by HTTP, although it speaks SOCKS too: some clients fail as soon as they see SOCKS there.
const PROXY_VARIABLES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
const NO_PROXY: (&str, &str) = ("NO_PROXY", "localhost,127.0.0.1,::1");
/// Node.js reads the variables only if this is set.
const NODE_PROXY: (&str, &str) = ("NODE_USE_ENV_PROXY", "1");

/// Where shells and runs may begin. If neither is a directory, they begin in the user's home.
#[derive(Debug, Clone, Copy)]
pub struct StartDir<'a> {
    /// The directory that the image names, if it names one.
    pub wanted: Option<&'a Path>,
    pub workspace: &'a Path,
}

/// The environment that new shells and runs get.
#[derive(Debug, Clone)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    /// Which of `NON_INTERACTIVE` nobody else has set.
    non_interactive: Vec<(&'static str, &'static str)>,
    /// The variables from the claim of a pooled sandbox. They override the others, and all clones share them.
    claimed: Rc<OnceCell<BTreeMap<String, String>>>,
    /// The names of the variables that the session was created with. Login files do not override them.
    of_session: BTreeSet<String>,
    /// The directory in which shells and runs start.
    pub start_dir: PathBuf,
}

impl Environment {
    /// Makes the environment from the runner's own variables and the user that commands run as. `of_session` names those
    /// that the session was created with; the others are the image's.
    pub fn new(
        own: impl Iterator<Item = (OsString, OsString)>,
        user: User,
        start: StartDir<'_>,
        of_session: &[String],
    ) -> Self {
        let mut variables: BTreeMap<OsString, OsString> =
            own.filter(|(name, _)| !name.as_bytes().starts_with(OWN_VARIABLES.as_bytes())).collect();
        let wanted = start.wanted.filter(|path| path.is_absolute()).into_iter().chain([start.workspace]);
        let start_dir = wanted.into_iter().find(|path| file_kind::is_dir(path)).unwrap_or(&user.home).to_owned();
        variables.entry("PATH".into()).or_insert(DEFAULT_PATH.into());
        variables.entry("LANG".into()).or_insert("C.UTF-8".into());
        variables.entry("TERM".into()).or_insert("xterm-256color".into());
        let user: [OsString; 4] =
            [user.home.into(), user.name.clone().into(), user.name.into(), OsString::from("/bin/bash")];
        variables.extend(USER_VARIABLES.map(OsString::from).into_iter().zip(user));
        for name in NOT_PASSED_ON {
            variables.remove(OsStr::new(name));
        }
        let bundle = CERTIFICATES.into_iter().find(|path| file_kind::is_file(Path::new(path)));
        if let Some(bundle) = bundle {
            variables.entry(NODE_CERTIFICATES.into()).or_insert(bundle.into());
        }
        let unset = |(name, _): &(&str, &str)| !variables.contains_key(OsStr::new(name));
        let non_interactive: Vec<_> = NON_INTERACTIVE.into_iter().filter(unset).collect();
        variables.extend(non_interactive.iter().map(|(name, value)| (name.into(), value.into())));
        let of_session = of_session.iter().filter(|name| !is_ours(name)).cloned().collect();
        Self { variables, non_interactive, claimed: Rc::default(), of_session, start_dir }
    }

    /// Sets the variables that lead programs to a proxy on this port. Those of the session stay, in both spellings.
    pub fn add_network_proxy(&mut self, port: u16) {
        let address = format!("http://127.0.0.1:{port}");
        let all = PROXY_VARIABLES.map(|name| (name, address.as_str())).into_iter().chain([NO_PROXY]);
        for (name, value) in all {
            if !self.of_session.iter().any(|own| own.eq_ignore_ascii_case(name)) {
                self.variables.insert(name.into(), value.into());
                self.variables.insert(name.to_ascii_lowercase().into(), value.into());
            }
        }
        if !self.of_session.contains(NODE_PROXY.0) {
            self.variables.insert(NODE_PROXY.0.into(), NODE_PROXY.1.into());
        }
    }

    /// Whether the claim sets this variable of a proxy in its other spelling, which then counts.
    fn is_replaced(&self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else { return false };
        let is_proxy = PROXY_VARIABLES.iter().chain([&NO_PROXY.0]).any(|proxy| proxy.eq_ignore_ascii_case(name));
        is_proxy && self.claimed().any(|(claimed, _)| claimed.eq_ignore_ascii_case(name))
    }

    /// Adds the variables of the session that claims the sandbox. Returns false, and changes nothing, if the sandbox was
    /// claimed before.
    pub fn claim(&self, mut variables: BTreeMap<String, String>) -> bool {
        variables.retain(|name, _| !is_ours(name));
        self.claimed.set(variables).is_ok()
    }

    pub fn is_claimed(&self) -> bool {
        self.claimed.get().is_some()
    }

    /// The variables from the claim.
    pub fn claimed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.claimed.get().into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The variables that the session was created with, or that its claim brought. A shell has them whatever its login files
    /// say.
    pub fn of_session(&self) -> impl Iterator<Item = (&str, &str)> {
        let created = self
            .of_session
            .iter()
            .filter_map(|name| Some((name.as_str(), self.variables.get(OsStr::new(name))?.to_str()?)));
        created.chain(self.claimed())
    }

    /// The PATH of a program that also gets the variables in `extra`.
    pub fn path(&self, extra: &BTreeMap<String, String>) -> Option<OsString> {
        let claimed = || self.claimed().find(|(name, _)| *name == "PATH").map(|(_, path)| path.into());
        let own = || self.variables.get(OsStr::new("PATH")).cloned();
        extra.get("PATH").map(OsString::from).or_else(claimed).or_else(own)
    }

    /// The defaults that only commands get: a person's terminal is to have a pager and prompts.
    pub fn only_for_commands(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_claimed = |name: &str| self.claimed().any(|(claimed, _)| claimed == name);
        self.non_interactive.iter().copied().filter(move |(name, _)| !is_claimed(name))
    }

    /// All variables. If a name occurs twice, the later one counts.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let own = self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()));
        let own = own.filter(|(name, _)| !self.is_replaced(name));
        own.chain(self.claimed().map(|(name, value)| (OsStr::new(name), OsStr::new(value))))
    }
}

/// Whether a session cannot set this variable.
fn is_ours(name: &str) -> bool {
    USER_VARIABLES.contains(&name) || NOT_PASSED_ON.contains(&name) || name.starts_with(OWN_VARIABLES)
}

/// A user from `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub home: PathBuf,
}

impl User {
    /// Finds `uid` in the text of a passwd file. It does not use libc: a static binary cannot load name services, and a
    /// sandbox has none.
    pub fn find(passwd: &str, uid: u32) -> Option<Self> {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let found: u32 = fields.nth(1)?.parse().ok()?;
            let home = fields.nth(2)?;
            (found == uid).then(|| Self { name: name.to_owned(), home: home.into() })
        })
    }

    /// The user that commands run as, with an existing home directory.
    pub fn of_commands(uid: u32, workspace: &Path) -> Self {
        let passwd = file_kind::read_text(Path::new("/etc/passwd"), MAX_PASSWD_BYTES).unwrap_or_default();
        let mut user =
            Self::find(&passwd, uid).unwrap_or_else(|| Self { name: "sandbox".into(), home: workspace.to_owned() });
        if !file_kind::is_dir(&user.home) {
            user.home = [workspace, Path::new("/tmp")]
                .into_iter()
                .find(|d| file_kind::is_dir(d))
                .unwrap_or(Path::new("/"))
                .into();
        }
        user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nowhere() -> StartDir<'static> {
        StartDir { wanted: None, workspace: Path::new("/nonexistent") }
    }

    #[test]
    fn shells_begin_where_the_image_says_or_in_the_workspace_or_at_home() {
        let start = |wanted: Option<&str>, workspace: &str| {
            let user = User { name: "u".into(), home: "/home/u".into() };
            let start = StartDir { wanted: wanted.map(Path::new), workspace: Path::new(workspace) };
            Environment::new(std::iter::empty(), user, start, &[]).start_dir
        };
        assert_eq!(start(Some("/usr"), "/etc"), Path::new("/usr"));
        assert_eq!(start(None, "/etc"), Path::new("/etc"));
        assert_eq!(start(Some("/nonexistent"), "/etc"), Path::new("/etc"));
        assert_eq!(start(Some("etc"), "/nonexistent"), Path::new("/home/u"));
    }

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
        let environment = Environment::new(own.into_iter(), user, nowhere(), &[]);
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
    fn login_files_override_what_is_the_images_and_not_what_is_the_sessions() {
        let own = [("PATH", "/opt"), ("LANG", "C"), ("FOO", "1")].map(|(n, v)| (n.into(), v.into()));
        let names = ["PATH", "FOO", "HOME", "MISSING"].map(str::to_owned);
        let user = User { name: "u".into(), home: "/home/u".into() };
        let environment = Environment::new(own.into_iter(), user, nowhere(), &names);
        assert_eq!(environment.of_session().collect::<Vec<_>>(), [("FOO", "1"), ("PATH", "/opt")]);
        assert!(environment.claim([("PATH".to_owned(), "/claimed".to_owned())].into()));
        assert_eq!(environment.of_session().last(), Some(("PATH", "/claimed")));
    }

    #[test]
    fn a_proxy_is_named_in_both_spellings_unless_the_session_names_one_in_either() {
        let own = [("HTTP_PROXY", "http://of-the-image"), ("https_proxy", "http://of-the-session")];
        let user = User { name: "u".into(), home: "/".into() };
        let own = own.into_iter().map(|(n, v)| (n.into(), v.into()));
        let mut environment = Environment::new(own, user, nowhere(), &["https_proxy".to_owned()]);
        environment.add_network_proxy(8);
        let get = |name: &str| {
            let value = environment.variables().filter(|(n, _)| *n == name).last();
            value.map(|(_, v)| v.to_str().unwrap().to_owned())
        };
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            assert_eq!(get(name).as_deref(), Some("http://127.0.0.1:8"), "{name}");
        }
        assert_eq!((get("https_proxy").as_deref(), get("HTTPS_PROXY")), (Some("http://of-the-session"), None));
        assert_eq!(get("no_proxy").as_deref(), Some("localhost,127.0.0.1,::1"));
        assert_eq!(get("NODE_USE_ENV_PROXY").as_deref(), Some("1"));
        assert!(environment.claim([("NO_PROXY".to_owned(), "x".to_owned())].into()));
        assert_eq!((get("NO_PROXY").as_deref(), get("no_proxy")), (Some("x"), None));
    }

    #[test]
    fn node_trusts_what_the_system_trusts_unless_the_image_says_something_else() {
        let value = |own: &[(&str, &str)]| {
            let own = own.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let user = User { name: "u".into(), home: "/home/u".into() };
            let environment = Environment::new(own, user, nowhere(), &[]);
            let found = environment.variables().find(|(name, _)| *name == NODE_CERTIFICATES);
            found.map(|(_, value)| value.to_owned())
        };
        assert_eq!(value(&[(NODE_CERTIFICATES, "/own.pem")]), Some("/own.pem".into()));
        let here = CERTIFICATES.into_iter().find(|path| Path::new(path).is_file());
        assert_eq!(value(&[]), here.map(Into::into));
    }

    #[test]
    fn the_runners_own_variables_are_not_passed_on() {
        let own = [("COVE_RUNNER_TOKEN", "hush"), ("FOO", "1"), ("PAGER", "less")];
        let environment = Environment::new(
            own.into_iter().map(|(n, v)| (n.into(), v.into())),
            User { name: "u".into(), home: "/".into() },
            nowhere(),
            &[],
        );
        let get = |name: &str| environment.variables().find(|(n, _)| *n == name).map(|(_, v)| v.to_owned());
        assert_eq!(get("COVE_RUNNER_TOKEN"), None);
        assert_eq!(get("FOO"), Some("1".into()));
        assert_eq!(get("PAGER"), Some("less".into()), "what the image chose stays");
        assert_eq!(get("GIT_PAGER"), Some("cat".into()));
        let for_commands = || environment.only_for_commands().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(
            for_commands(),
            [
                "GIT_PAGER",
                "GIT_TERMINAL_PROMPT",
                "DEBIAN_FRONTEND",
                "PYTHONUNBUFFERED",
                "PIP_RETRIES",
                "npm_config_fetch_retry_mintimeout",
                "npm_config_fetch_retry_maxtimeout"
            ]
        );
        environment.claim([("GIT_PAGER".to_owned(), "cat".to_owned())].into());
        assert_eq!(
            for_commands(),
            [
                "GIT_TERMINAL_PROMPT",
                "DEBIAN_FRONTEND",
                "PYTHONUNBUFFERED",
                "PIP_RETRIES",
                "npm_config_fetch_retry_mintimeout",
                "npm_config_fetch_retry_maxtimeout"
            ]
        );
    }
}

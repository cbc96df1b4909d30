//! The accounts of the host image for a session whose commands are root: packages name system accounts, and `dpkg` refuses to work if
//! one that it knows is missing. Of the host they are the names and numbers of system accounts, which its list of installed packages tells
//! as well. People of the host, members of groups, and passwords are left out. Pure.

use shared_protocol::SANDBOX_USER;

/// The first id that distributions give to people.
const FIRST_PERSON: u32 = 1000;

/// The most accounts that are taken over.
const MAX_ACCOUNTS: usize = 1000;

/// The files `passwd` and `group` of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    pub passwd: String,
    pub group: String,
}

impl Accounts {
    /// Makes both from the host's own.
    pub fn of_root(host_passwd: &str, host_group: &str) -> Self {
        // No account has a password. `*` says so without a file `shadow`, which login programs would miss after `x`.
        let mut passwd = "root:*:0:0:root:/root:/bin/bash\n".to_owned();
        passwd.push_str(&format!("sandbox:*:{SANDBOX_USER}:{SANDBOX_USER}:sandbox:/home/sandbox:/bin/bash\n"));
        passwd.extend(system_lines(host_passwd).filter_map(|fields| {
            let [name, _, uid, gid, _, home, shell] = fields.try_into().ok()?;
            Some(format!("{name}:*:{uid}:{gid}::{home}:{shell}\n"))
        }));
        passwd.push_str("nobody:*:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
        let mut group = format!("root:x:0:\nsandbox:x:{SANDBOX_USER}:\n");
        group.extend(
            system_lines(host_group).filter_map(|fields| Some(format!("{}:x:{}:\n", fields.first()?, fields.get(2)?))),
        );
        if !group.lines().any(|line| line.starts_with("tty:")) {
            group.push_str("tty:x:5:\n");
        }
        group.push_str("nogroup:x:65534:\n");
        Self { passwd, group }
    }
}

/// The fields of lines about system accounts. Lines that are not understood are left out.
fn system_lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let is_system = |fields: &Vec<&str>| {
        let id = fields.get(2).and_then(|id| id.parse::<u32>().ok());
        id.is_some_and(|id| (1..FIRST_PERSON).contains(&id)) && is_plain(fields.first().copied().unwrap_or_default())
    };
    lines.filter(is_system).take(MAX_ACCOUNTS)
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.$".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:Boss:/root:/bin/zsh\n_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n\
        alice:x:1001:1001:Alice,,,:/home/alice:/bin/bash\ndaemon:$6$secret:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n+::::::\nbroken\n";
    const GROUP: &str = "root:x:0:alice\ntty:x:5:alice\nalice:x:1001:\nmessagebus:x:101:alice\n";

    #[test]
    fn system_accounts_are_taken_over_without_people_and_passwords() {
        let accounts = Accounts::of_root(PASSWD, GROUP);
        let text = format!("{}{}", accounts.passwd, accounts.group);
        for private in ["alice", "Boss", "zsh", "secret", "broken"] {
            assert!(!text.contains(private), "{private} is in {text}");
        }
        assert!(accounts.passwd.contains("_apt:*:42:65534::/nonexistent:/usr/sbin/nologin\n"));
        assert!(accounts.passwd.contains("daemon:*:1:1::/usr/sbin:/usr/sbin/nologin\n"));
        assert!(accounts.group.contains("messagebus:x:101:\n"));
        for file in [&accounts.passwd, &accounts.group] {
            let mut names: Vec<_> = file.lines().map(|line| line.split(':').next()).collect();
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all, "each name is there once: {file}");
        }
    }

    #[test]
    fn a_host_without_accounts_gives_those_that_every_sandbox_has() {
        let accounts = Accounts::of_root("", "");
        assert_eq!(accounts.passwd.lines().count(), 3);
        assert_eq!(accounts.group, "root:x:0:\nsandbox:x:1000:\ntty:x:5:\nnogroup:x:65534:\n");
    }
}

//! The user that an image names (`USER`), as ids. It runs in a process whose root is the image.
//!
//! As engines have it, `USER` is a name or a number, with or without a group after a colon. Root is not followed: commands become root
//! of a sandbox only if the session asks for it.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::image_store::ImageUser;

/// The most that is read of a file of accounts.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Finds the user in the files of accounts below `root`.
pub fn find(root: &Path, named: &str) -> Option<ImageUser> {
    resolve(named, &read(&root.join("etc/passwd")), &read(&root.join("etc/group")))
}

fn read(path: &Path) -> String {
    // An image can have anything there, also something that blocks.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let Ok(file) = File::options().read(true).custom_flags(flags).open(path) else { return String::new() };
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return String::new();
    }
    let mut bytes = Vec::new();
    let _ = file.take(MAX_FILE_BYTES).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The ids of a user. `None` for root, for a name that is not there, and for ids that no sandbox has.
fn resolve(named: &str, passwd: &str, group: &str) -> Option<ImageUser> {
    let (user, named_group) = match named.trim().split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (named.trim(), None),
    };
    let account = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| {
        // A name of digits is a number, as for engines, unless an account has that name.
        fields.len() >= 4 && (fields[0] == user || fields[2] == user)
    });
    let uid = match &account {
        Some(fields) => fields[2].parse().ok()?,
        None => user.parse().ok()?,
    };
    let gid = match named_group {
        Some(wanted) => {
            let line = group.lines().map(|line| line.split(':').collect::<Vec<_>>());
            let found = line.into_iter().find(|fields| fields.len() >= 3 && fields[0] == wanted);
            found.map_or(wanted, |fields| fields[2]).parse().ok()?
        }
        // An engine gives the group of root to a number without an account.
        None => account.and_then(|fields| fields[3].parse().ok()).unwrap_or(0),
    };
    // Commands are in no group of root's: what the runner shares with its group is its own.
    let gid = if gid == 0 { uid } else { gid };
    let is_usable = |id: u32| (1..ImageUser::IDS).contains(&id);
    (is_usable(uid) && is_usable(gid)).then_some(ImageUser { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nbroken\napp:x:1234:2345::/srv:/bin/sh\n77:x:78:79::/:/bin/sh\n\
        rooted:x:500:0::/:/bin/sh\nhigh:x:70000:70000::/:/bin/sh\nbad:x:y:z::/:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nstaff:x:50:app\n";

    #[test]
    fn a_user_is_a_name_or_a_number_with_or_without_a_group() {
        let ids = |named: &str| resolve(named, PASSWD, GROUP).map(|user| (user.uid, user.gid));
        assert_eq!(ids("app"), Some((1234, 2345)));
        assert_eq!(ids("1234"), Some((1234, 2345)));
        assert_eq!(ids("app:staff"), Some((1234, 50)));
        assert_eq!(ids("app:60"), Some((1234, 60)));
        assert_eq!(ids("app:"), Some((1234, 2345)));
        assert_eq!(ids("3000"), Some((3000, 3000)));
        assert_eq!(ids("3000:4000"), Some((3000, 4000)));
        assert_eq!(ids("77"), Some((78, 79)));
        assert_eq!(ids("rooted"), Some((500, 500)), "commands are not in the group of root");
        for none in ["", "root", "0", "0:50", "nosuch", "app:nosuch", "high", "70000", "65535", "bad", "-1", ":50"] {
            assert_eq!(ids(none), None, "{none:?}");
        }
    }

    #[test]
    fn what_is_no_file_of_accounts_names_nobody() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("etc/passwd")).unwrap();
        nix::unistd::mkfifo(&folder.path().join("etc/group"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(find(folder.path(), "app"), None);
        assert_eq!(find(folder.path(), "12"), Some(ImageUser { uid: 12, gid: 12 }));
    }
}

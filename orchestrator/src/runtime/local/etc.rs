//! The names in the host's `/etc` that sandboxes see, each group with the reason. What is not named here does not exist inside: the
//! host's users, machine id, services, mounts and keys, and every file that an administrator adds.
//!
//! Left out on purpose, although a tool reads them: files that may hold credentials or names of the host's network, such as
//! `pip.conf`, `npmrc`, `gitconfig`, `wgetrc`, `apt`, `ssh`, `resolv.conf`, `environment`. Every one of these tools works without.
//! Operators add names with `local.etc`. A session whose commands are root also gets what package managers and `useradd` need.

/// A name that ends in `*` stands for every name that begins with the rest. A name with a `/` is in a directory that also holds what
/// is left out.
const SHOWN: [(&str, &[&str]); 12] = [
    ("where the dynamic linker finds libraries", &["ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-*"]),
    ("which program a general name means", &["alternatives"]),
    (
        "certificates that TLS libraries trust, and the ciphers that they use",
        &["ssl", "pki", "crypto-policies", "gnutls"],
    ),
    (
        "how shells and terminals start",
        &[
            "profile",
            "profile.d",
            "bash.bashrc",
            "bashrc",
            "bash",
            "bash_completion*",
            "zsh",
            "zshrc",
            "zshenv",
            "zprofile",
        ],
    ),
    ("how shells and terminals edit and draw", &["inputrc", "terminfo", "DIR_COLORS*", "fish"]),
    ("time and language", &["localtime", "timezone", "locale.alias", "locale.conf"]),
    (
        "where libc looks for users and hosts, and its names of ports and protocols",
        &["nsswitch.conf", "host.conf", "gai.conf", "services", "protocols"],
    ),
    (
        "which distribution this is, for installers and build tools",
        &[
            "os-release",
            "debian_version",
            "lsb-release",
            "redhat-release",
            "fedora-release",
            "system-release",
            "alpine-release",
            "arch-release",
            "dpkg",
            "rpm",
        ],
    ),
    (
        "settings without which a language does not start",
        &[
            "java*", ".java", "python*", "perl", "lua*", "ruby*", "php*", "R", "julia", "ghc*", "ocaml*", "guile*",
            "emacs", "mono", "texmf",
        ],
    ),
    (
        "fonts, pictures, kinds of files, catalogues of document types",
        &[
            "fonts",
            "ImageMagick-*",
            "ghostscript",
            "papersize",
            "mime.types",
            "magic",
            "magic.mime",
            "mailcap",
            "sgml",
            "xml",
        ],
    ),
    (
        "defaults of editors, debuggers and manuals; the table of mounts; where NixOS keeps what these names mean",
        &["vim", "virc", "nanorc", "gdb", "manpath.config", "man_db.conf", "groff", "mtab", "static"],
    ),
    ("what Maven needs to start; its settings may hold passwords", &["maven/m2.conf", "maven/logging"]),
];

/// What a session whose commands are root also gets, as copies, if it can change its root. Of apt only where packages come from and who
/// signs them: its settings may hold the password of a proxy. A list of sources with a password in it is not copied, whatever its package manager.
const OF_ROOT: [&str; 20] = [
    "apt/sources.list",
    "apt/sources.list.d",
    "apt/trusted.gpg",
    "apt/trusted.gpg.d",
    "apt/keyrings",
    "apt/preferences",
    "apt/preferences.d",
    "debconf.conf",
    "yum.repos.d",
    "apk/repositories",
    "apk/keys",
    "pacman.conf",
    "pacman.d/mirrorlist",
    "login.defs",
    "adduser.conf",
    "deluser.conf",
    "default/useradd",
    "skel",
    "shells",
    "pam.d",
];

/// Files and directories that say where packages come from, and so may have the passwords of a repository.
pub const SOURCES: [&str; 5] = ["apt", "yum.repos.d", "apk", "pacman.conf", "pacman.d"];

/// Adds the names that a session gets whose commands are root.
pub fn with_those_of_root(names: &[String]) -> Vec<String> {
    names.iter().cloned().chain(OF_ROOT.map(str::to_owned)).collect()
}

/// The names that sandboxes see, with those that the operator added.
pub fn names(added: &[String]) -> Vec<String> {
    let built_in = SHOWN.iter().flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned()));
    built_in.chain(added.iter().cloned()).collect()
}

/// The names in a directory that are shown although the directory as a whole is not.
pub fn names_in(names: &[String], directory: &str) -> Vec<String> {
    names.iter().filter_map(|name| name.strip_prefix(directory)?.strip_prefix('/')).map(str::to_owned).collect()
}

/// Whether a name is one of these, each of which may end in `*`.
pub fn is_one_of(names: &[String], name: &str) -> bool {
    names.iter().any(|shown| match shown.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => shown == name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_identifies_the_host_or_may_hold_a_secret_is_not_shown() {
        let names = names(&[]);
        for private in [
            "machine-id",
            "passwd-",
            "group-",
            "shadow",
            "shadow-",
            "gshadow",
            "sudoers",
            "sudoers.d",
            "ssh",
            "fstab",
            "crypttab",
            "exports",
            "hosts.allow",
            "pip.conf",
            "npmrc",
            "gitconfig",
            "netrc",
            "wgetrc",
            "apt",
            "docker",
            "containers",
            "kubernetes",
            "rancher",
            "systemd",
            "cron.d",
            "crontab",
            "resolv.conf",
            "NetworkManager",
            "wpa_supplicant",
            "wireguard",
            "openvpn",
            "ppp",
            "letsencrypt",
            "krb5.keytab",
            "environment",
            "cove",
            "postgresql",
            "mysql",
            "ldap",
            "pam.d",
            "security",
            "subuid",
        ] {
            assert!(!is_one_of(&names, private), "{private}");
        }
        for own in ["passwd", "group", "hosts", "hostname", "resolv.conf"] {
            assert!(!is_one_of(&names, own), "Cove writes its own {own}");
        }
    }

    #[test]
    fn of_a_directory_that_may_hold_passwords_only_parts_are_shown() {
        let names = names(&[]);
        assert!(!is_one_of(&names, "maven") && is_one_of(&names_in(&names, "maven"), "m2.conf"));
        assert!(!is_one_of(&names_in(&names, "maven"), "settings.xml"));
        assert!(names_in(&names, "mav").is_empty() && names_in(&names, "ssl").is_empty());
    }

    #[test]
    fn programs_find_their_libraries_certificates_and_settings() {
        let names = names(&["maven".into()]);
        for needed in ["ld.so.cache", "ssl", "alternatives", "java-17-openjdk", "python3.11", "profile.d", "maven"] {
            assert!(is_one_of(&names, needed), "{needed}");
        }
    }

    proptest! {
        #[test]
        fn a_star_stands_for_every_rest_and_nothing_else_does(stem in "[a-z]{1,8}", rest in "[a-z0-9.-]{0,8}") {
            let name = format!("{stem}{rest}");
            let pattern = format!("{stem}*");
            prop_assert!(is_one_of(&[pattern], &name));
            prop_assert_eq!(is_one_of(&[stem], &name), rest.is_empty());
        }
    }
}

//! What a shell was like after its last command, and the text that makes a new one like it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// `set -o` options that carry over. The others are how the runner drives bash (history, line editing), or would end the
/// new shell before it could do anything (`onecmd`, `noexec`, `restricted`).
const RESTORED_OPTIONS: [&str; 16] = [
    "allexport",
    "braceexpand",
    "errexit",
    "errtrace",
    "functrace",
    "hashall",
    "keyword",
    "monitor",
    "noclobber",
    "noglob",
    "notify",
    "nounset",
    "physical",
    "pipefail",
    "posix",
    "verbose",
];

/// `shopt` options that belong to how a shell was started.
const OWN_SHOPTS: [&str; 4] = ["login_shell", "restricted_shell", "promptvars", "checkwinsize"];

/// A longer state is not restored. Bash's own functions of a loaded nvm are a tenth of it.
const MAX_STATE_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    options: BTreeSet<String>,
    shopts: BTreeSet<String>,
    text: Text,
}

/// `declare`, functions, `alias`, `trap` and `umask`, as bash printed them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Text {
    /// Where they lie: they are read only if the shell has to be made again.
    File(PathBuf),
    Read(Vec<u8>),
}

impl State {
    pub fn new(shellopts: &str, bashopts: &str, file: PathBuf) -> Self {
        let set = |list: &str| list.split(':').filter(|o| !o.is_empty()).map(str::to_owned).collect();
        Self { options: set(shellopts), shopts: set(bashopts), text: Text::File(file) }
    }

    /// Takes the text into memory, before the file goes with the shell that wrote it.
    pub fn load(&mut self) {
        if let Text::File(path) = &self.text {
            self.text = Text::Read(read(path));
        }
    }

    pub fn has_option(&self, name: &str) -> bool {
        self.options.contains(name)
    }

    /// The options alone.
    pub fn without_text(&self) -> Self {
        Self { text: Text::Read(Vec::new()), ..self.clone() }
    }

    /// A file to be sourced by a new shell. `fresh` is the state that shell began with: only what differs is set.
    ///
    /// Bash refuses to assign its own read-only variables again, and says so on standard error, which is /dev/null there.
    pub fn restore_file(&self, fresh: Option<&State>) -> Vec<u8> {
        let mut head = String::new();
        // Before the functions, whose bodies may need `extglob` to be parsed.
        if let Some(fresh) = fresh {
            for (verb, names) in
                [("-s", self.shopts.difference(&fresh.shopts)), ("-u", fresh.shopts.difference(&self.shopts))]
            {
                for name in names.filter(|n| is_option_name(n) && !OWN_SHOPTS.contains(&n.as_str())) {
                    let _ = writeln!(head, "\\builtin shopt {verb} {name}");
                }
            }
        }
        let mut file = head.into_bytes();
        match &self.text {
            Text::File(path) => file.extend(read(path)),
            Text::Read(text) => file.extend_from_slice(text),
        }
        // Last: from here on `errexit` and its like are in force.
        let mut tail = String::from("\n");
        for name in RESTORED_OPTIONS.iter().chain(["xtrace"].iter()) {
            let sign = if self.options.contains(*name) { '-' } else { '+' };
            if sign == '-' || fresh.is_none_or(|f| f.options.contains(*name)) {
                let _ = writeln!(tail, "\\set {sign}o {name}");
            }
        }
        file.extend_from_slice(tail.as_bytes());
        file
    }
}

/// The text of a state file; nothing where it is not as bash left it, since what is in it will be run.
fn read(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    let whole = std::fs::File::open(path).and_then(|file| file.take(MAX_STATE_BYTES + 1).read_to_end(&mut text));
    match whole {
        Ok(count) if count as u64 <= MAX_STATE_BYTES => text,
        Ok(_) => {
            tracing::warn!("a shell's state is too large to be restored");
            Vec::new()
        }
        Err(error) => {
            tracing::warn!(%error, "a shell's state could not be read");
            Vec::new()
        }
    }
}

fn is_option_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_set_and_what_would_break_a_shell_never_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("w0");
        std::fs::write(&file, "declare -- x=\"1\"\n").unwrap();
        let fresh = State::new("braceexpand:monitor", "cmdhist:sourcepath", file.clone()).without_text();
        let mut state =
            State::new("monitor:errexit:onecmd:history", "cmdhist:extglob:login_shell:$(reboot)", file.clone());
        let unread = state.restore_file(Some(&fresh));
        state.load();
        std::fs::remove_file(file).unwrap();
        assert_eq!(state.restore_file(Some(&fresh)), unread);
        let file = String::from_utf8(state.restore_file(Some(&fresh))).unwrap();
        let lines: Vec<_> = file.lines().collect();
        assert_eq!(
            lines,
            [
                r"\builtin shopt -s extglob",
                r"\builtin shopt -u sourcepath",
                r#"declare -- x="1""#,
                "",
                r"\set +o braceexpand",
                r"\set -o errexit",
                r"\set -o monitor",
            ]
        );
    }
}

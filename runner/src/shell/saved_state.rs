//! The state of a shell after its last command, and the script that gives a new shell the same state.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

/// The `set -o` options that a new shell gets. The others belong to the way in which the runner drives bash (history, line
/// editing), or would end the new shell at once (`onecmd`, `noexec`, `restricted`).
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

/// The `shopt` options that depend on how a shell was started. A new shell does not get them.
const OWN_SHOPTS: [&str; 4] = ["login_shell", "restricted_shell", "promptvars", "checkwinsize"];

/// The largest state that is kept and restored.
const MAX_STATE_BYTES: usize = shared_protocol::runner::MAX_SHELL_STATE_BYTES;

/// The start of the last line of a complete state: the tail prints the umask last.
const LAST_LINE: &[u8] = b"umask ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedState {
    options: BTreeSet<String>,
    shopts: BTreeSet<String>,
    text: Text,
}

/// The output of `declare`, functions, `alias`, `trap` and `umask`, as bash printed it.
#[derive(Debug, Clone)]
enum Text {
    /// The file that bash wrote, which has no name any more. It is read only if a new shell is needed.
    File(Rc<File>),
    Read(Vec<u8>),
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(two)) => Rc::ptr_eq(one, two),
            (Self::Read(one), Self::Read(two)) => one == two,
            _ => false,
        }
    }
}

impl Eq for Text {}

impl SavedState {
    /// The state that bash wrote to `file`. The error says why it cannot be kept.
    pub fn new(shellopts: &str, bashopts: &str, file: File) -> io::Result<Self> {
        check_size(&file)?;
        let text = Text::File(Rc::new(file));
        Ok(Self { text, ..Self::with_options(shellopts, bashopts) })
    }

    /// A state with these options and no text.
    pub fn with_options(shellopts: &str, bashopts: &str) -> Self {
        let set = |list: &str| list.split(':').filter(|o| !o.is_empty()).map(str::to_owned).collect();
        Self { options: set(shellopts), shopts: set(bashopts), text: Text::Read(Vec::new()) }
    }

    /// The state that another runner gave out. A text that is not complete counts as empty: half a script must not run.
    pub fn given(shellopts: &str, bashopts: &str, text: Vec<u8>) -> Self {
        let text = if is_complete(&text) { text } else { Vec::new() };
        Self { text: Text::Read(text), ..Self::with_options(shellopts, bashopts) }
    }

    /// Adds a script that runs after the text, before the options have an effect.
    pub fn append(&mut self, script: &str) {
        self.load();
        if let Text::Read(text) = &mut self.text {
            text.push(b'\n');
            text.extend_from_slice(script.as_bytes());
        }
    }

    /// The names of the options that are set, as in `SHELLOPTS` and `BASHOPTS`.
    pub fn option_lists(&self) -> (String, String) {
        let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(":");
        (list(&self.options), list(&self.shopts))
    }

    /// The output of bash, complete or empty.
    pub fn text(&self) -> Vec<u8> {
        match &self.text {
            Text::File(written) => read(written),
            Text::Read(text) => text.clone(),
        }
    }

    /// Reads the text into memory, so that the file's room is free again.
    pub fn load(&mut self) {
        if let Text::File(file) = &self.text {
            self.text = Text::Read(read(file));
        }
    }

    pub fn has_option(&self, name: &str) -> bool {
        self.options.contains(name)
    }

    /// The script that a new shell sources. `fresh` has the options of a new shell: only different ones are set. Without it,
    /// the script turns off what the new shell has.
    ///
    /// Bash refuses to assign its own read-only variables, and prints that to standard error, which is /dev/null there.
    pub fn restore_file(&self, fresh: Option<&SavedState>) -> Vec<u8> {
        let mut head = String::new();
        // These come before the functions, whose bodies may need `extglob` to be parsed.
        if let Some(fresh) = fresh {
            for (verb, names) in
                [("-s", self.shopts.difference(&fresh.shopts)), ("-u", fresh.shopts.difference(&self.shopts))]
            {
                for name in names.filter(|n| is_option_name(n) && !OWN_SHOPTS.contains(&n.as_str())) {
                    let _ = writeln!(head, "\\builtin shopt {verb} {name}");
                }
            }
        }
        if fresh.is_none() && !self.shopts.is_empty() {
            let _ = writeln!(head, "{}", turn_shopts_off());
            for name in self.shopts.iter().filter(|n| is_option_name(n) && !OWN_SHOPTS.contains(&n.as_str())) {
                let _ = writeln!(head, "\\builtin shopt -s {name}");
            }
        }
        let mut file = head.into_bytes();
        file.extend(self.text());
        // These come last, because from here on `errexit` and similar options have an effect.
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

/// Turns off every option of `shopt` that a new shell has, except those that depend on how it was started.
pub(super) fn turn_shopts_off() -> String {
    format!(
        "for __cove_option in ${{BASHOPTS//:/ }}; do case $__cove_option in {}) ;; *) \\builtin shopt -u \"$__cove_option\" ;; esac; \
         done; \\unset -v __cove_option",
        OWN_SHOPTS.join("|")
    )
}

fn check_size(file: &File) -> io::Result<()> {
    let size = file.metadata()?.len();
    if usize::try_from(size).is_ok_and(|size| size <= MAX_STATE_BYTES) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {size} bytes, the limit is {MAX_STATE_BYTES}")))
}

/// Reads a state file. If it is not complete, the result is empty: half a script must not run.
fn read(file: &File) -> Vec<u8> {
    match read_bounded(file) {
        Ok(text) if is_complete(&text) => text,
        Ok(_) => {
            tracing::warn!("a shell's state is not complete and is not restored");
            Vec::new()
        }
        Err(error) => {
            tracing::warn!(%error, "a shell's state could not be read");
            Vec::new()
        }
    }
}

/// Reads at most `MAX_STATE_BYTES`. Commands of the same user may be able to write to the file at the same time.
fn read_bounded(file: &File) -> io::Result<Vec<u8>> {
    check_size(file)?;
    let mut text =
        vec![0; usize::try_from(file.metadata()?.len()).map_or(MAX_STATE_BYTES, |len| len.min(MAX_STATE_BYTES))];
    let mut filled = 0;
    while filled < text.len() {
        match file.read_at(&mut text[filled..], filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    text.truncate(filled);
    Ok(text)
}

fn is_complete(text: &[u8]) -> bool {
    text.strip_suffix(b"\n")
        .and_then(|rest| rest.rsplit(|b| *b == b'\n').next())
        .is_some_and(|l| l.starts_with(LAST_LINE))
}

fn is_option_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn written(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_state_that_is_cut_off_or_too_large_is_not_restored() {
        let text = |file| match SavedState::new("", "", file).unwrap().text {
            Text::File(file) => read(&file),
            Text::Read(text) => text,
        };
        assert_eq!(text(written("declare -- x=\"1\"\numask 0022\n")).len(), 28);
        for cut in ["", "declare -- x=\"1", "declare -- x=\"1\"\numask 0022", "umask 0022\ndeclare -- x=\"1\"\n"] {
            assert_eq!(text(written(cut)), b"", "{cut:?}");
        }
        let large = tempfile::tempfile().unwrap();
        large.set_len(8 << 30).unwrap();
        assert!(SavedState::new("", "", large).is_err());
        let grown = written("umask 0022\n");
        let kept = SavedState::new("", "", grown.try_clone().unwrap()).unwrap();
        grown.set_len(8 << 30).unwrap();
        assert_eq!(kept.restore_file(None), SavedState::with_options("", "").restore_file(None));
    }

    #[test]
    fn only_what_differs_is_set_and_what_would_break_a_shell_never_is() {
        let fresh = SavedState::with_options("braceexpand:monitor", "cmdhist:sourcepath");
        let options = ("monitor:errexit:onecmd:history", "cmdhist:extglob:login_shell:$(reboot)");
        let mut state = SavedState::new(options.0, options.1, written("declare -- x=\"1\"\numask 0022\n")).unwrap();
        let unread = state.restore_file(Some(&fresh));
        state.load();
        assert_eq!(state.restore_file(Some(&fresh)), unread);
        let file = String::from_utf8(state.restore_file(Some(&fresh))).unwrap();
        let lines: Vec<_> = file.lines().collect();
        assert_eq!(
            lines,
            [
                r"\builtin shopt -s extglob",
                r"\builtin shopt -u sourcepath",
                r#"declare -- x="1""#,
                "umask 0022",
                "",
                r"\set +o braceexpand",
                r"\set -o errexit",
                r"\set -o monitor",
            ]
        );
    }
}

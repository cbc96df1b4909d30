//! The text that bash is given: pure functions, no I/O.
//!
//! Bash reads its commands from a socket of the runner's, never from the terminal; the terminal is the programs' alone. For
//! one exec two messages of a line each are sent at once:
//!
//! ```text
//! … \. DIR/c                                   the command, wrapped (`command_file`)
//! POSIXLY_CORRECT=… \. DIR/t NONCE STATUS …    the tail: says that it is over (`tail_file`)
//! ```
//!
//! Why this cannot be wedged, forged or seen:
//!
//! - The command is an argument of `eval` in a file, so an open quote or a missing `fi` is an error at once, its length does
//!   not matter, and nothing is echoed. Sourcing the file makes bash non-interactive for its duration: no `[1] 1234`, no
//!   `exit`, no refusal to exit because of stopped jobs; and `eval` stands at top level, where `declare` is global.
//! - The redirections stand on the `eval`, so whatever the command does to descriptors 0 to 2 is undone behind it.
//! - The second line runs however the first one ended: normally, by an error or by an interrupt that made bash drop the rest of
//!   the line. Until then it lies in the kernel, a message by itself, and the nonce in it is nowhere that the command could
//!   look: no variable, no file, no descriptor of its own, not even bash's memory.
//! - The report goes back on the same socket, and the kernel says which process wrote it: only bash's own word counts.
//! - Assigning `POSIXLY_CORRECT` makes special builtins win over functions and reserved words over aliases, so the tail runs
//!   whatever the command defined. Everything is quoted against aliases, and `builtin` is used behind the point where a
//!   function of that name has been removed.
//! - At rest bash's standard output and error are /dev/null: prompts, traces and job notices of the machinery go nowhere.

use std::fmt::Write as _;
use std::path::Path;

use shared_protocol::runner::StreamMode;

/// Quotes a word so that bash takes it literally.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for (i, part) in text.split('\'').enumerate() {
        if i > 0 {
            quoted.push_str("'\\''");
        }
        quoted.push_str(part);
    }
    quoted.push('\'');
    quoted
}

/// What bash reads at once: a longer message would be cut.
pub const MAX_LINE_BYTES: usize = 1024;

/// Names of the files in a shell's scratch directory.
pub mod file {
    /// The command of the exec that runs.
    pub const COMMAND: &str = "c";
    pub const TAIL: &str = "t";
    /// Returns its argument: how `$?` is set without a fork.
    pub const STATUS: &str = "s";
    /// What a new shell runs first.
    pub const INIT: &str = "b";
    /// What a shell runs when its sandbox becomes somebody's.
    pub const CLAIM: &str = "k";
    /// The state of the shell that it replaces.
    pub const RESTORE: &str = "r";
    /// Names the command that began last.
    pub const BEGUN: &str = "g";
    /// The state after a command, in turns: one is whole while the other is written.
    pub const STATES: [&str; 2] = ["w0", "w1"];
    pub const STDIN: &str = "i";
    pub const STDOUT: &str = "o";
    pub const STDERR: &str = "x";
}

pub struct CommandSpec<'a> {
    pub command: &'a str,
    pub streams: StreamMode,
    /// Whether the scratch directory holds a file for standard input.
    pub has_stdin: bool,
    pub variables: &'a mut dyn Iterator<Item = (&'a str, &'a str)>,
    pub cwd: Option<&'a str>,
    /// `$?` as the command shall find it.
    pub last_status: i32,
    /// The terminal's path.
    pub terminal: &'a str,
    /// Whether the shell has `set -T`.
    pub functrace: bool,
    /// A name for the status between the command and the tail, new for each command: it cannot have been made read-only.
    pub variable: &'a str,
}

/// The file that wraps one command.
pub fn command_file(dir: &Path, spec: CommandSpec<'_>) -> String {
    use file::{BEGUN, STATUS, STDERR, STDIN, STDOUT};
    let (dir, variable) = (dir.display(), spec.variable);
    let output = match spec.streams {
        StreamMode::Merged => format!(">|{dir}/{STDOUT} 2>&1"),
        StreamMode::Split => format!(">|{dir}/{STDOUT} 2>|{dir}/{STDERR}"),
        StreamMode::Tty => format!("0<>{} >&0 2>&0", spec.terminal),
    };
    let input = match (spec.streams, spec.has_stdin) {
        (StreamMode::Tty, _) => String::new(),
        (_, true) => format!("<{dir}/{STDIN} "),
        (_, false) => "</dev/null ".to_owned(),
    };
    // All on one line, so that bash counts the command's own lines from 1.
    let functrace = if spec.functrace { '-' } else { '+' };
    let mut text =
        format!("\\builtin set {functrace}T; {variable}_b=1; \\builtin printf %s {variable} >|{dir}/{BEGUN}; ");
    if let Some(cwd) = spec.cwd {
        // For the tail: where the shell was and where the command begins. It goes back if the command did not move it.
        let _ = write!(text, "{variable}_old=$PWD; \\builtin cd -- {} {output} || \\builtin return 1; ", quote(cwd));
        let _ = write!(text, "{variable}_at=$PWD; ");
    }
    if spec.last_status != 0 {
        // Left of `||` neither `set -e` nor an ERR trap minds the status; right of it `$?` is that status.
        let _ = write!(text, "\\. {dir}/{STATUS} {} || ", spec.last_status);
    }
    let mut variables = spec.variables.map(|(name, value)| format!("{name}={} ", quote(value))).peekable();
    if variables.peek().is_some() {
        // Variables in front of `eval` itself hold for the command alone; in front of `builtin eval` bash loses them. So a
        // function of that name has to go.
        text.insert_str(0, "\\builtin unset -f eval; ");
        text.extend(variables);
        text.push_str("\\eval ");
    } else {
        text.push_str("\\builtin eval ");
    }
    let _ = writeln!(text, "{} {input}{output}", quote(spec.command));
    // Assignments cannot be shadowed. The status is put aside for the tail, and no prompt hook runs before it.
    let _ = writeln!(text, "{variable}=$? PROMPT_COMMAND=()");
    text
}

pub const STATUS: &str = "\\builtin return \"$1\"\n";

/// The file behind the second line. `$1` nonce, `$2` status, `$3` the variable's name, `$4` its `_b`, `$5` which state file,
/// `$6` its `_at`.
///
/// It may be run more than once for one command, and says the same each time: the variables stay until the next command.
/// The end is told first, and the state is written behind it, while the client already has its answer. It goes to a file: bash
/// writes it line by line, and nobody has to wake up for each. With no `$5` there is none.
pub fn tail_file(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"\unset -f builtin . unset || \:
case $6 in "$PWD") \eval "\builtin cd -- \"\$$3_old\"" || \: ;; esac
\unset -v "$3_at" "$3_old" PROMPT_COMMAND || \:
\eval "$3=\$2"
case $POSIXLY_CORRECT in _) \unset -v POSIXLY_CORRECT ;; esac
\builtin printf '\0D %s %s %s\0%s\0' "$1" "$2" "$4" "$PWD" >&0 || \builtin return 1
case $5 in '') \builtin return 0 ;; esac
\builtin eval '\builtin declare -p
\builtin declare -f
\builtin declare -Fx
\builtin alias -p
\builtin trap -p
\builtin umask -p' >|{dir}/w"$5" && \builtin printf '\0S %s %s %s\0' "$1" "$SHELLOPTS" "$BASHOPTS" >&0 || \builtin true
"#
    )
}

/// What names one command to bash.
pub struct Mark {
    pub nonce: String,
    /// For what the command's file has to tell the tail. New for each command: it cannot have been made read-only before.
    pub variable: String,
    /// The state file that the tail writes.
    pub slot: usize,
}

impl Mark {
    pub fn new(slot: usize) -> Self {
        let random = crate::sys::random_hex();
        Self { variable: format!("__cove_{}", &random[..8]), nonce: random[8..].to_owned(), slot }
    }
}

/// The first line for one exec. `before` is the variable of the command before it, which goes now.
pub fn command_line(dir: &Path, before: &str) -> String {
    // With -T a DEBUG trap holds in a sourced file too, and stays as the command leaves it; the file sets it back at once.
    let dir = dir.display();
    format!("\\builtin unset -v {before} {before}_b; \\builtin set -T; \\. {dir}/{}\n", file::COMMAND)
}

/// Has bash exit with the status of a command whose end it could not report.
pub fn exit_line(mark: &Mark) -> String {
    format!("POSIXLY_CORRECT=${{POSIXLY_CORRECT-_}} \\exit \"${{{}-1}}\"\n", mark.variable)
}

/// The second line. Sent again whenever an interrupt may have hit the first one.
///
/// Where the tail cannot report (no descriptors left, `set -r`, `enable -n .`) bash exits with the command's status, and
/// the reaper reports it.
pub fn tail_line(dir: &Path, mark: &Mark) -> String {
    tail(dir, mark, &mark.slot.to_string())
}

/// One that leaves no state behind.
pub fn short_tail_line(dir: &Path, mark: &Mark) -> String {
    tail(dir, mark, "''")
}

fn tail(dir: &Path, mark: &Mark, slot: &str) -> String {
    let (dir, tail, Mark { nonce, variable, .. }) = (dir.display(), file::TAIL, mark);
    let status = format!("\"${{{variable}-$?}}\"");
    format!(
        "POSIXLY_CORRECT=${{POSIXLY_CORRECT-_}} \\. {dir}/{tail} {nonce} {status} {variable} \"${{{variable}_b-0}}\" {slot} \"${{{variable}_at-}}\" || \\exit {status}\n",
    )
}

/// The line that makes a new shell ready; it reports by the tail, as after a command.
pub fn init_line(dir: &Path) -> String {
    // Where bash found its terminal by its standard error, that is still the terminal.
    format!("\\exec 2>/dev/null; \\. {}/{}\n", dir.display(), file::INIT)
}

/// The line that has a shell take what came with the claim; it reports by the tail, as after a command. `before` is the
/// variable of what it ran last, which goes now.
pub fn claim_line(dir: &Path, before: &str) -> String {
    format!("\\builtin unset -v {before} {before}_b; \\. {}/{}\n", dir.display(), file::CLAIM)
}

/// What a shell runs that was up before its sandbox became somebody's: as if it had begun with these variables.
pub fn claim_file(variables: &mut dyn Iterator<Item = (&str, &str)>, cwd: &str) -> String {
    let mut text = exports(variables);
    // Among the variables may be those that would disturb it between commands.
    text.push_str(QUIET_SHELL);
    let _ = writeln!(text, "\\builtin cd -- {} || \\builtin cd -- /", quote(cwd));
    text
}

fn exports(variables: &mut dyn Iterator<Item = (&str, &str)>) -> String {
    variables.map(|(name, value)| format!("\\builtin export {name}={}\n", quote(value))).collect()
}

/// What a new shell begins with.
pub struct InitSpec<'a> {
    /// Read the login files. Not for a shell that takes over another's state, which has their effects already.
    pub profile: bool,
    /// There is a state to restore.
    pub restore: bool,
    pub cwd: &'a str,
    pub variables: &'a mut dyn Iterator<Item = (&'a str, &'a str)>,
}

pub fn init_file(dir: &Path, spec: InitSpec<'_>) -> String {
    let mut text = String::new();
    if spec.profile {
        // As bash would, but with an empty standard input: a profile that reads must not eat our lines.
        text.push_str(PROFILE);
    }
    text.push_str(QUIET_SHELL);
    if spec.restore {
        let _ = writeln!(text, "\\. {}/{}", dir.display(), file::RESTORE);
        text.push_str("\\unset -v PROMPT_COMMAND TMOUT IGNOREEOF \"${!__cove_@}\"\n");
    }
    text.push_str(&exports(spec.variables));
    let _ = writeln!(text, "\\builtin cd -- {} || \\builtin cd -- / ", quote(spec.cwd));
    text
}

const PROFILE: &str = r#"[ -r /etc/profile ] && \. /etc/profile </dev/null
if [ -r "${HOME-}/.bash_profile" ]; then \. "$HOME/.bash_profile" </dev/null
elif [ -r "${HOME-}/.bash_login" ]; then \. "$HOME/.bash_login" </dev/null
elif [ -r "${HOME-}/.profile" ]; then \. "$HOME/.profile" </dev/null
fi
"#;

/// Nothing between commands: no prompt hook, no expansion in a prompt, no history, no logout by idleness. The prompt itself
/// is not empty, since many a `.bashrc` takes an empty one for a script and does nothing.
const QUIET_SHELL: &str = r#"\unset -v PROMPT_COMMAND PS0 TMOUT HISTFILE IGNOREEOF MAILCHECK
PS1='$ ' PS2='> '
\set +o history
\set +H
\builtin shopt -u promptvars checkwinsize
"#;

/// The start-up file of a terminal shell: as a login, with another shell's state where there is one.
pub fn terminal_file(dir: &Path, spec: InitSpec<'_>) -> String {
    let mut text = String::from(PROFILE);
    if spec.restore {
        let _ = writeln!(text, "PS1=${{PS1-'\\w\\$ '}} __cove_ps1=$PS1 __cove_path=${{PROMPT_COMMAND-}}");
        let _ = writeln!(text, "\\. {}/{} 2>/dev/null", dir.display(), file::RESTORE);
        text.push_str("PS1=$__cove_ps1 PROMPT_COMMAND=$__cove_path; unset -v TMOUT __cove_ps1 __cove_path\n");
        text.push_str("set -o history; set -H; shopt -s promptvars checkwinsize\n");
    }
    for (name, value) in spec.variables {
        let _ = writeln!(text, "export {name}={}", quote(value));
    }
    let _ = writeln!(text, "cd -- {}", quote(spec.cwd));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bash_reads_a_quoted_word_as_it_was(text in "[^\0]{0,200}") {
            let output = std::process::Command::new("bash")
                .args(["--norc", "--noprofile", "-c", &format!("printf %s {}", quote(&text))])
                .output()
                .unwrap();
            prop_assert_eq!(output.stdout, text.as_bytes());
            prop_assert!(output.stderr.is_empty());
        }
    }

    #[test]
    fn the_nonce_is_in_the_tail_line_only() {
        let dir = Path::new("/scratch");
        let spec = CommandSpec {
            command: "true",
            streams: StreamMode::Merged,
            has_stdin: false,
            variables: &mut std::iter::empty(),
            cwd: None,
            last_status: 0,
            terminal: "/dev/pts/0",
            functrace: false,
            variable: "v",
        };
        let mark = Mark::new(0);
        assert!(!command_line(dir, &mark.variable).contains(&mark.nonce));
        assert!(!command_file(dir, spec).contains(&mark.nonce));
        assert!(tail_line(dir, &mark).contains(&mark.nonce));
    }
}

//! The text that bash runs: pure functions without I/O.
//!
//! Bash reads its commands from a socket of the runner, never from the terminal; only programs use the terminal. For one
//! exec the runner sends two messages of one line each:
//!
//! ```text
//! … \. DIR/RANDOM                              the command, wrapped (`command_file`)
//! POSIXLY_CORRECT=… \. DIR/t NONCE STATUS …    the tail: reports that it is over (`tail_file`)
//! ```
//!
//! Why a command cannot block, forge or observe this:
//!
//! - The command is an argument of `eval` in a file. So an open quote or a missing `fi` is an error at once, the length does
//!   not matter, and nothing is echoed. Sourcing the file makes bash non-interactive meanwhile: no `[1] 1234`, no `exit`, no
//!   refusal to exit because of stopped jobs. `eval` is at top level, where `declare` is global.
//! - The redirections belong to the `eval`, so any change that the command makes to descriptors 0 to 2 is undone after it.
//! - The second line runs however the first one ended: normally, by an error, or by an interrupt that made bash drop the
//!   rest of the line. Until then it is a separate message in the kernel, and the command cannot find the nonce in it: the
//!   nonce is in no variable, no file, no descriptor of the command, and not in bash's memory.
//! - Bash says that a command begins on the same socket, and reports on a second one, its standard output. The kernel says
//!   which process wrote each message: only messages from bash itself count, and none can be taken back.
//! - Every file and FIFO of one exec has a random name, in a directory that nobody but the runner can list. The name of the
//!   state file is in the tail line only, so no program of the command can know it.
//! - Assigning `POSIXLY_CORRECT` makes special builtins win over functions and reserved words over aliases, so the tail runs
//!   whatever the command defined. Everything is quoted against aliases, and `builtin` is used only after a function with
//!   that name has been removed.
//! - Between commands, bash's standard error, and so its prompts, traces and job notices, goes to /dev/null.

use std::fmt::Write as _;
use std::os::fd::RawFd;
use std::path::Path;

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

/// The longest line. Bash reads this much at once; a longer message would be cut.
pub const MAX_LINE_BYTES: usize = 1024;

/// The files in a shell's scratch directory with fixed names. Commands can read them and nothing secret is in them.
pub mod file {
    pub const TAIL: &str = "t";
    /// A script that returns its argument: this sets `$?` without a fork.
    pub const STATUS: &str = "s";
}

/// Where a command's standard streams go, by path.
#[derive(Debug, Clone, Copy)]
pub enum Streams<'a> {
    /// One FIFO for standard output and error.
    Merged(&'a Path),
    /// A FIFO for each of them.
    Split { stdout: &'a Path, stderr: &'a Path },
    /// All of them at this terminal.
    Tty(&'a Path),
}

pub struct CommandSpec<'a> {
    pub command: &'a str,
    pub streams: Streams<'a>,
    /// The file that is standard input. `None`: it is empty, or the terminal.
    pub stdin: Option<&'a Path>,
    pub variables: &'a mut dyn Iterator<Item = (&'a str, &'a str)>,
    pub cwd: Option<&'a str>,
    /// The value of `$?` for the command.
    pub last_status: i32,
    /// Whether the shell has `set -T`.
    pub functrace: bool,
    /// The variable that holds the status between the command and the tail. It is new for each command, so it cannot be
    /// read-only. It is also what bash says when the command begins.
    pub variable: &'a str,
}

/// The file that wraps one command.
pub fn command_file(dir: &Path, spec: CommandSpec<'_>) -> String {
    let (dir, variable) = (dir.display(), spec.variable);
    let output = match spec.streams {
        Streams::Merged(output) => format!(">|{} 2>&1", output.display()),
        Streams::Split { stdout, stderr } => format!(">|{} 2>|{}", stdout.display(), stderr.display()),
        Streams::Tty(terminal) => format!("0<>{} >&0 2>&0", terminal.display()),
    };
    let input = match (spec.streams, spec.stdin) {
        (Streams::Tty(_), _) => String::new(),
        (_, Some(stdin)) => format!("<{} ", stdin.display()),
        (_, None) => "</dev/null ".to_owned(),
    };
    // Everything is on one line, so that bash counts the command's own lines from 1. A command of which bash cannot say that
    // it begins does not run: it is sent to another bash, and must not run twice.
    let functrace = if spec.functrace { '-' } else { '+' };
    let mut text =
        format!("\\builtin set {functrace}T; \\builtin printf '\\0B %s\\0' {variable} >&0 || \\builtin return 1; ");
    if let Some(cwd) = spec.cwd {
        // For the tail: the directory of the shell, and the directory where the command begins. The tail goes back unless
        // the command changed the directory.
        let _ = write!(text, "{variable}_old=$PWD; \\builtin cd -- {} {output} || \\builtin return 1; ", quote(cwd));
        let _ = write!(text, "{variable}_at=$PWD; ");
    }
    if spec.last_status != 0 {
        // To the left of `||`, neither `set -e` nor an ERR trap reacts to the status; to the right of it, `$?` is that
        // status.
        let _ = write!(text, "\\. {dir}/{} {} || ", file::STATUS, spec.last_status);
    }
    let mut variables = spec.variables.map(|(name, value)| format!("{name}={} ", quote(value))).peekable();
    if variables.peek().is_some() {
        // Variables before `eval` itself are set for the command alone; before `builtin eval` bash loses them. So a function
        // named `eval` is removed first.
        text.insert_str(0, "\\builtin unset -f eval; ");
        text.extend(variables);
        text.push_str("\\eval ");
    } else {
        text.push_str("\\builtin eval ");
    }
    let _ = writeln!(text, "{} {input}{output}", quote(spec.command));
    // Assignments cannot be shadowed. They save the status for the tail, and keep prompt hooks from running before it.
    let _ = writeln!(text, "{variable}=$? PROMPT_COMMAND=()");
    text
}

pub const STATUS: &str = "\\builtin return \"$1\"\n";

/// The file that the second line sources. `$1` is the nonce, `$2` the status, `$3` the variable's name, `$4` the state file,
/// `$5` the variable's `_at`.
///
/// It may run more than once for one command, and reports the same each time: the variable stays until the next command. It
/// reports the end first and writes the state afterwards, when the client already has its answer. The state goes to a file,
/// because bash writes it line by line, and the runner need not wake up for each line. Without `$4` no state is written. A
/// state that is complete is not written again: the runner may be reading it.
pub const TAIL: &str = r#"\unset -f builtin . unset || \:
case $5 in "$PWD") \eval "\builtin cd -- \"\$$3_old\"" || \: ;; esac
\unset -v "$3_at" "$3_old" PROMPT_COMMAND || \:
\eval "$3=\$2"
case $POSIXLY_CORRECT in _) \unset -v POSIXLY_CORRECT ;; esac
\builtin printf '\0D %s %s\0%s\0' "$1" "$2" "$PWD" || \builtin return 1
case $4 in '') \builtin return 0 ;; esac
\builtin eval "\builtin test -n \"\${$3_kept-}\"" || \builtin eval '\builtin declare -p
\builtin declare -f
\builtin declare -Fx
\builtin alias -p
\builtin trap -p
\builtin umask -p' >|"$4" && \builtin eval "$3_kept=1" && \builtin printf '\0S %s %s %s\0' "$1" "$SHELLOPTS" "$BASHOPTS" || \builtin printf '\0S %s\0' "$1" || \builtin true
"#;

/// The names for one request to bash.
#[derive(Debug)]
pub struct Mark {
    pub nonce: String,
    /// The variable in which the command's file passes the status to the tail. It is new for each command, so it cannot be
    /// read-only.
    pub variable: String,
}

impl Mark {
    pub fn new() -> Self {
        let random = crate::sys::random_hex();
        Self { variable: format!("__cove_{}", &random[..8]), nonce: random[8..].to_owned() }
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::new()
    }
}

/// Removes the variables that the tail of an earlier request has left, of which `before` is one.
fn forget(before: &str) -> String {
    if before.is_empty() { String::new() } else { format!("\\builtin unset -v {before} {before}_kept; ") }
}

/// The first line for one exec. `before` is the variable of the previous command, which is removed now.
pub fn command_line(command: &Path, before: &str) -> String {
    // With -T a DEBUG trap is also active in a sourced file, and stays as the command leaves it; the file resets -T at once.
    format!("{}\\builtin set -T; \\. {}\n", forget(before), command.display())
}

/// The line that makes bash exit with the status of a command whose end it could not report.
pub fn exit_line(mark: &Mark) -> String {
    format!("POSIXLY_CORRECT=${{POSIXLY_CORRECT-_}} \\exit \"${{{}-1}}\"\n", mark.variable)
}

/// The second line. It is sent again whenever an interrupt may have hit the first one. Without a `state` file bash writes no
/// state.
///
/// If the tail cannot report (no descriptors left, `set -r`, `enable -n .`), bash exits with the command's status, and the
/// reaper reports that.
pub fn tail_line(dir: &Path, mark: &Mark, state: Option<&Path>) -> String {
    let (dir, tail, Mark { nonce, variable }) = (dir.display(), file::TAIL, mark);
    let status = format!("\"${{{variable}-$?}}\"");
    let state = state.map_or_else(|| "''".to_owned(), |path| path.display().to_string());
    format!(
        "POSIXLY_CORRECT=${{POSIXLY_CORRECT-_}} \\. {dir}/{tail} {nonce} {status} {variable} {state} \"${{{variable}_at-}}\" || \\exit {status}\n",
    )
}

/// The line that makes a new shell ready. The tail reports its end, as after a command.
pub fn init_line(init: &Path) -> String {
    // If bash found its terminal through standard error, that still is the terminal.
    format!("\\exec 2>/dev/null; \\. {}\n", init.display())
}

/// The line that makes a shell apply the claim. The tail reports its end, as after a command. `before` is the variable of
/// what it ran last, which is removed now.
pub fn claim_line(claim: &Path, before: &str) -> String {
    format!("{}\\. {}\n", forget(before), claim.display())
}

/// The script for a shell that was started before its sandbox was claimed. Afterwards the shell is as if it had started with
/// these variables.
pub fn claim_file(variables: &mut dyn Iterator<Item = (&str, &str)>, cwd: &str) -> String {
    let mut text = exports(variables);
    // Some of these variables could disturb the shell between commands.
    text.push_str(QUIET_SHELL);
    let _ = writeln!(text, "\\builtin cd -- {} || \\builtin cd -- /", quote(cwd));
    text
}

/// A script that exports variables.
pub fn exports(variables: &mut dyn Iterator<Item = (&str, &str)>) -> String {
    variables.map(|(name, value)| format!("\\builtin export {name}={}\n", quote(value))).collect()
}

/// The settings of a new shell's first script.
pub struct InitSpec<'a> {
    /// Whether to read the login files. A shell that restores a state does not: the state already has their effects.
    pub profile: bool,
    /// The script that restores a state, if there is one.
    pub restore: Option<&'a Path>,
    pub cwd: &'a str,
    /// The variables that hold whatever the login files say.
    pub variables: Vec<(&'a str, &'a str)>,
}

pub fn init_file(spec: InitSpec<'_>) -> String {
    let mut text = String::new();
    if spec.profile {
        // This does what bash would do, but with an empty standard input and no output: a profile that reads must not take
        // the runner's lines, and what it prints is no report.
        let _ = writeln!(text, "{{ {PROFILE}}} </dev/null >/dev/null");
    }
    text.push_str(&exports(&mut spec.variables.into_iter()));
    // Some of these variables could disturb the shell between commands.
    text.push_str(QUIET_SHELL);
    if let Some(restore) = spec.restore {
        let _ = writeln!(text, "\\. {}", restore.display());
        text.push_str("\\unset -v PROMPT_COMMAND TMOUT IGNOREEOF \"${!__cove_@}\"\n");
    }
    let _ = writeln!(text, "\\builtin cd -- {} || \\builtin cd -- / ", quote(spec.cwd));
    text
}

const PROFILE: &str = r#"[ -r /etc/profile ] && \. /etc/profile </dev/null
if [ -r "${HOME-}/.bash_profile" ]; then \. "$HOME/.bash_profile" </dev/null
elif [ -r "${HOME-}/.bash_login" ]; then \. "$HOME/.bash_login" </dev/null
elif [ -r "${HOME-}/.profile" ]; then \. "$HOME/.profile" </dev/null
fi
"#;

/// Makes bash do nothing between commands: no prompt hook, no expansion in a prompt, no history, no logout after idle time.
/// The prompt itself is not empty, because many `.bashrc` files take an empty one for a script and do nothing.
const QUIET_SHELL: &str = r#"\unset -v PROMPT_COMMAND PS0 TMOUT HISTFILE IGNOREEOF MAILCHECK
PS1='$ ' PS2='> '
\set +o history
\set +H
\builtin shopt -u promptvars checkwinsize
"#;

/// The path of this process's own descriptor.
pub fn own_descriptor(number: RawFd) -> String {
    format!("/proc/self/fd/{number}")
}

/// The descriptors of a terminal shell's scripts: bash reads them from there, so they need no name. No program inherits them.
#[derive(Debug, Clone, Copy)]
pub struct TerminalScripts {
    pub init: RawFd,
    /// The script that restores another shell's state, if there is one.
    pub restore: Option<RawFd>,
}

/// The start-up file of a terminal shell: a login shell, with another shell's state if there is one. `only_for_commands` are
/// variables that the other shell has because nobody sits in front of it. They are removed if they still have these values.
pub fn terminal_file(
    scripts: TerminalScripts,
    cwd: &str,
    variables: &mut dyn Iterator<Item = (&str, &str)>,
    only_for_commands: &[(&str, &str)],
) -> String {
    let mut text = format!("exec {}<&-\n", scripts.init);
    if let Some(restore) = scripts.restore {
        // The login files come before the state, and may start programs: they must not find the state open.
        let _ = writeln!(text, "__cove_state=$(<{}); exec {restore}<&-", own_descriptor(restore));
    }
    text.push_str(PROFILE);
    if scripts.restore.is_some() {
        let _ = writeln!(text, "PS1=${{PS1-'\\w\\$ '}} __cove_ps1=$PS1 __cove_path=${{PROMPT_COMMAND-}}");
        text.push_str("\\eval \"$__cove_state\" 2>/dev/null\n");
        text.push_str(
            "PS1=$__cove_ps1 PROMPT_COMMAND=$__cove_path; unset -v TMOUT __cove_ps1 __cove_path __cove_state\n",
        );
        text.push_str("set -o history; set -H; shopt -s promptvars checkwinsize\n");
    }
    for (name, value) in only_for_commands {
        let _ = writeln!(text, "case ${{{name}-}} in {}) unset -v {name} ;; esac", quote(value));
    }
    text.push_str(COLOURS);
    for (name, value) in variables {
        let _ = writeln!(text, "export {name}={}", quote(value));
    }
    let _ = writeln!(text, "cd -- {}", quote(cwd));
    text
}

/// Colours where a sandbox has no `.bashrc` that chooses them. Most programs need no more than a terminal; `ls` and `grep` have
/// to be asked, and not every image has versions that know the option.
const COLOURS: &str = r#"case ${TERM-}${NO_COLOR:+dumb} in
*dumb | '') ;;
*)  [[ $(type -t ls) != file ]] || ! ls --color=auto -d / >/dev/null 2>&1 || alias ls='ls --color=auto'
    [[ $(type -t grep) != file ]] || ! grep --color=auto -q x <<<x 2>/dev/null || alias grep='grep --color=auto' ;;
esac
"#;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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
    fn the_nonce_and_the_name_of_the_state_are_in_the_tail_line_only() {
        let (dir, state) = (Path::new("/scratch"), Path::new("/states/0123"));
        let (mark, command) = (Mark::new(), Path::new("/scratch/4567"));
        let spec = CommandSpec {
            command: "true",
            streams: Streams::Merged(Path::new("/scratch/89ab")),
            stdin: None,
            variables: &mut std::iter::empty(),
            cwd: None,
            last_status: 0,
            functrace: false,
            variable: &mark.variable,
        };
        let (line, file, tail) =
            (command_line(command, "v"), command_file(dir, spec), tail_line(dir, &mark, Some(state)));
        for secret in [mark.nonce.as_str(), "/states/0123"] {
            assert!(!line.contains(secret) && !file.contains(secret));
            assert!(tail.contains(secret));
        }
        assert!(!tail.contains("4567") && !tail.contains("89ab"));
    }

    #[test]
    fn the_longest_lines_fit_into_one_read_of_bash() {
        let dir = PathBuf::from(format!("/{}", "d".repeat(crate::shell::scratch::MAX_DIR_BYTES - 1)));
        let file = dir.join("0".repeat(crate::shell::scratch::NAME_BYTES));
        let mark = Mark::new();
        for line in [
            tail_line(&dir, &mark, Some(&file)),
            command_line(&file, &mark.variable),
            claim_line(&file, &mark.variable),
            init_line(&file),
        ] {
            assert!(line.len() <= MAX_LINE_BYTES, "{}", line.len());
        }
    }
}

//! `cove completion`: prints a script that makes a shell complete `cove` commands, and the names and ids of sessions.
//!
//! clap makes the script from the definitions of the commands. What is behind it asks the daemon for the sessions, with the hidden
//! command `cove __complete`. Which commands take a session is read from the definitions, too.

use std::fmt::Write as _;

use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::Cli;
use super::connect::DaemonArgs;
use super::exit::Failure;
use super::output::{escape_control, print};

const EXAMPLES: &str = "\
Examples:
  source <(cove completion bash)
  cove completion zsh > ~/.zfunc/_cove
  cove completion fish > ~/.config/fish/completions/cove.fish

Besides commands and options, the scripts complete the names and ids of sessions, as the daemon knows them.";

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionArgs {
    #[arg(value_enum)]
    shell: Kind,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Bash,
    Zsh,
    Fish,
}

/// Print what a shell can complete
#[derive(Args)]
#[command(after_help = "Example:\n  cove __complete")]
pub struct CandidatesArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// The part of the bash script that completes sessions. `_cove` is clap's function.
const BASH: &str = r#"
_cove_with_sessions() {
    local words=" ${COMP_WORDS[*]:1:COMP_CWORD-1} " cur="${COMP_WORDS[COMP_CWORD]}" command
    _cove "$@"
    [[ $cur == -* ]] && return
    for command in @COMMANDS@; do
        if [[ $words == " ${command//_/ } "* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$(cove __complete 2>/dev/null | cut -f1)" -- "$cur")
            return
        fi
    done
    if [[ $words == " cp "* && $cur != *:* ]]; then
        mapfile -t COMPREPLY < <(compgen -S : -W "$(cove __complete 2>/dev/null | cut -f1)" -- "$cur"; compgen -f -- "$cur")
        compopt -o nospace -o filenames
    fi
}
complete -F _cove_with_sessions -o bashdefault -o default cove
"#;

/// The same for zsh, where clap's script names a function for each argument.
const ZSH: &str = r#"
_cove_sessions() {
    local -a found
    found=(${(f)"$(cove __complete 2>/dev/null | cut -f1)"})
    compadd -a found
}
"#;

pub fn completion(args: &CompletionArgs) -> Result<u8, Failure> {
    let shell = match args.shell {
        Kind::Bash => Shell::Bash,
        Kind::Zsh => Shell::Zsh,
        Kind::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cove", &mut script);
    print(&with_sessions(&String::from_utf8_lossy(&script), args.shell))?;
    Ok(0)
}

/// Prints the name and the id of each session, each with a description behind a tab.
pub async fn candidates(args: CandidatesArgs) -> Result<u8, Failure> {
    let mut text = String::new();
    for session in args.daemon.client()?.sessions(None, &[]).await? {
        let about = format!("{} {}", escape_control(&session.image), session.status.as_str());
        let names = session.name.iter().map(ToString::to_string).chain([session.id.to_string()]);
        for name in names {
            let _ = writeln!(text, "{name}\t{about}");
        }
    }
    print(&text)?;
    Ok(0)
}

fn with_sessions(script: &str, shell: Kind) -> String {
    let commands = commands_with_sessions(&Cli::command());
    match shell {
        Kind::Bash => {
            let words: Vec<String> = commands.iter().map(|command| command.join("_")).collect();
            script.to_owned() + &BASH.replace("@COMMANDS@", &words.join(" "))
        }
        Kind::Zsh => {
            let line = |line: &str| match is_session_of_zsh(line) {
                true => line.replace(":_default'", ":_cove_sessions'"),
                false => line.to_owned(),
            };
            // The script ends by calling its function, so that everything else stands before that.
            let lines: Vec<String> = script.lines().map(line).collect();
            let (head, rest) =
                lines.split_first().map_or((String::new(), &[][..]), |(head, rest)| (head.clone(), rest));
            format!("{head}\n{ZSH}{}\n", rest.join("\n"))
        }
        Kind::Fish => commands.iter().fold(script.to_owned(), |mut script, command| {
            let seen = match &command[..] {
                [outer, inner] => {
                    format!("__fish_cove_using_subcommand {outer}; and __fish_seen_subcommand_from {inner}")
                }
                words => format!("__fish_cove_using_subcommand {}", words.join(" ")),
            };
            let _ = writeln!(script, "complete -c cove -n \"{seen}\" -f -a \"(cove __complete 2>/dev/null)\"");
            script
        }),
    }
}

/// Whether a line of clap's zsh script describes an argument that is a session.
fn is_session_of_zsh(line: &str) -> bool {
    let name = line.trim_start().trim_start_matches(['\'', '*', ':']);
    name.starts_with("session -- ") || name.starts_with("sessions -- ")
}

/// The commands whose first argument is a session, as the words that are typed.
fn commands_with_sessions(root: &Command) -> Vec<Vec<String>> {
    let takes_session = |command: &Command| {
        let first = command.get_positionals().next();
        first.is_some_and(|argument| matches!(argument.get_id().as_str(), "session" | "sessions"))
    };
    let mut found = Vec::new();
    for command in root.get_subcommands() {
        let names = std::iter::once(command.get_name()).chain(command.get_visible_aliases());
        for name in names.filter(|_| takes_session(command)) {
            found.push(vec![name.to_owned()]);
        }
        for inner in command.get_subcommands().filter(|inner| takes_session(inner)) {
            found.push(vec![command.get_name().to_owned(), inner.get_name().to_owned()]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_takes_a_session_completes_it() {
        let commands = commands_with_sessions(&Cli::command());
        let words: Vec<String> = commands.iter().map(|command| command.join(" ")).collect();
        for expected in ["exec", "shell", "rm", "stop", "unpause", "logs", "stats", "snapshot create", "network show"] {
            assert!(words.iter().any(|word| word == expected), "{expected} is not in {words:?}");
        }
        assert!(!words.iter().any(|word| word == "run" || word == "ps" || word == "create"), "{words:?}");
    }

    #[test]
    fn the_scripts_ask_for_sessions() {
        let script = |shell: Shell, kind| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "cove", &mut script);
            with_sessions(&String::from_utf8(script).unwrap(), kind)
        };
        assert!(
            script(Shell::Bash, Kind::Bash).contains("exec shell")
                || script(Shell::Bash, Kind::Bash).contains(" exec ")
        );
        let zsh = script(Shell::Zsh, Kind::Zsh);
        assert!(zsh.starts_with("#compdef cove\n"), "{}", &zsh[..40]);
        assert!(zsh.matches(":_cove_sessions'").count() >= 15, "{}", zsh.matches(":_cove_sessions'").count());
        let fish = script(Shell::Fish, Kind::Fish);
        assert!(fish.contains("__fish_cove_using_subcommand exec\" -f -a \"(cove __complete"), "{fish}");
    }
}

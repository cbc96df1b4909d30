//! `cove completion`: prints a script that makes a shell complete `cove` commands.

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::Cli;
use super::exit::Failure;
use super::output::print;

const EXAMPLES: &str = "\
Examples:
  source <(cove completion bash)
  cove completion zsh > ~/.zfunc/_cove
  cove completion fish > ~/.config/fish/completions/cove.fish";

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

pub fn completion(args: &CompletionArgs) -> Result<u8, Failure> {
    let shell = match args.shell {
        Kind::Bash => Shell::Bash,
        Kind::Zsh => Shell::Zsh,
        Kind::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cove", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

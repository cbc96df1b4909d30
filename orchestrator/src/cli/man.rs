//! `cove man`: writes manual pages, made from the same definitions as the help.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use super::Cli;
use super::exit::Failure;

const EXAMPLES: &str = "\
Examples:
  cove man ~/.local/share/man/man1
  man cove-run

Writes cove.1, and a page such as cove-run.1 for each command.";

/// Write manual pages into a directory
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// Directory for the pages; it is made if it is missing
    dir: PathBuf,
}

pub fn man(args: &ManArgs) -> Result<u8, Failure> {
    let failed = |e: std::io::Error| Failure::failed(format!("cannot write to {}: {e}", args.dir.display()));
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(failed)?;
    Ok(0)
}

//! `cove serve`: starts the daemon, which is in `app`.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::exit::{self, Failure};
use super::private::DIR_PREFIX;
use crate::app;
use crate::config::{Config, ServeFlags};

const EXAMPLES: &str = "\
Examples:
  cove serve
  cove serve --listen 127.0.0.1:9000 --data-dir /var/lib/cove

Ctrl-C stops the daemon and ends all sessions. SIGTERM stops it and keeps them: the next daemon on
the same data directory finds them again. The setting sessions.on_stop = \"keep\" or \"destroy\"
makes both do the same. A second signal ends the daemon at once.";

/// Start the daemon
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    flags: ServeFlags,
    /// Remove the data directory at the end: for a daemon that was started for one command.
    #[arg(long, hide = true, requires = "data_dir")]
    remove_data_dir: bool,
}

pub async fn serve(args: ServeArgs) -> Result<ExitCode, Failure> {
    crate::failpoint::check().map_err(|problem| Failure::new(exit::CONFIG, problem))?;
    let config = Config::load(&args.flags).map_err(|e| Failure::new(exit::CONFIG, e.to_string()))?;
    let result = app::serve(config).await;
    if let Some(dir) = args.flags.data_dir.filter(|dir| args.remove_data_dir && is_private(dir)) {
        let _ = std::fs::remove_dir_all(dir);
    }
    result.map_err(|error| Failure::failed(format!("{error:#}")))
}

/// Whether `private` made this directory. No other directory is ever removed.
fn is_private(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(DIR_PREFIX))
}

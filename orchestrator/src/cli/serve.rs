//! `cove serve`: starts the daemon, which is in `app`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::connect::make_images_dir;
use super::exit::{self, Failure};
use super::private::{DIR_PREFIX, IMAGES, ScratchDir};
use crate::app;
use crate::client::default_data_dir;
use crate::config::{Config, ServeFlags};

/// Any free port of the loopback interface.
const EMBEDDED_ADDRESS: &str = "127.0.0.1:0";

const EXAMPLES: &str = "\
Examples:
  cove serve
  cove serve --listen 127.0.0.1:9000 --data-dir /var/lib/cove
  cove serve --embedded                      for a program that keeps its standard input open

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
    if args.flags.embedded {
        return embedded(args.flags).await;
    }
    let config = load(&args.flags)?;
    let result = app::serve(config).await;
    if let Some(dir) = args.flags.data_dir.filter(|dir| args.remove_data_dir && is_private(dir)) {
        let _ = std::fs::remove_dir_all(dir);
    }
    result.map_err(|error| Failure::failed(format!("{error:#}")))
}

fn load(flags: &ServeFlags) -> Result<Config, Failure> {
    Config::load(flags).map_err(|e| Failure::new(exit::CONFIG, e.to_string()))
}

/// Serves the program that holds the other end of standard input. Without `--data-dir`, everything but the images is in a new directory
/// that is removed at the end.
async fn embedded(mut flags: ServeFlags) -> Result<ExitCode, Failure> {
    flags.listen = Some(EMBEDDED_ADDRESS.into());
    let scratch = match flags.data_dir {
        Some(_) => None,
        None => Some(own_directory()?),
    };
    if let Some(scratch) = &scratch {
        flags.data_dir = Some(scratch.path().to_owned());
    }
    let mut config = load(&flags)?;
    // A key in COVE_API_KEY or in the configuration is for another daemon. This one has a key of its own.
    config.server.api_key = None;
    if !std::io::stdin().is_terminal() {
        // So that Ctrl-C at a terminal reaches the program, which then uses the daemon to clean up, and not the daemon. It fails
        // for the leader of a session, which Ctrl-C does not reach either.
        let _ = nix::unistd::setpgid(nix::unistd::Pid::this(), nix::unistd::Pid::this());
    }
    let result = app::serve(config).await;
    drop(scratch);
    result.map_err(|error| Failure::failed(format!("{error:#}")))
}

/// A new data directory with the user's images, to which it adds what is pulled.
fn own_directory() -> Result<ScratchDir, Failure> {
    let named = std::env::var_os("COVE_DATA_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let images = named.or_else(|| default_data_dir().ok()).map(|dir| dir.join(IMAGES));
    // A home that cannot be written to, as in many containers, has no images to keep.
    let images = images.filter(|images| make_images_dir(images).is_ok());
    ScratchDir::with_images(images.as_deref())
}

/// Whether `private` made this directory. No other directory is ever removed.
fn is_private(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(DIR_PREFIX))
}

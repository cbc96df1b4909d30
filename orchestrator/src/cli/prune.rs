//! `cove prune`: removes what is not used: stopped sessions, layers of images, and workspaces if asked for.

use std::io::{IsTerminal as _, stdin};

use clap::Args;
use indicatif::BinaryBytes;
use shared_protocol::api::{SessionStatus, SessionView, WorkspaceView};

use super::connect::DaemonArgs;
use super::exit::{self, Failure};
use super::output::{ask, print, say};

const EXAMPLES: &str = "\
Examples:
  cove prune
  cove prune -f --workspaces

Removes stopped sessions with their files, and layers of images that no image and no sandbox uses. With
--workspaces it also removes workspaces that no session uses. Running and paused sessions stay.
Prints the id of each session and the name of each workspace that was removed.";

/// Remove what is not used
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PruneArgs {
    /// Do not ask
    #[arg(short = 'f', long)]
    force: bool,
    /// Also remove workspaces that no session uses
    #[arg(long, visible_alias = "volumes")]
    workspaces: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn prune(args: PruneArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let stopped: Vec<SessionView> = client.sessions(Some(SessionStatus::Stopped), &[]).await?;
    let unused: Vec<WorkspaceView> = match args.workspaces {
        true => client.workspaces().await?.into_iter().filter(|found| found.sessions.is_empty()).collect(),
        false => Vec::new(),
    };
    if !args.force && !is_agreed(stopped.len(), unused.len())? {
        return Ok(exit::FAILED);
    }
    let mut code = 0;
    for session in stopped {
        match client.destroy_session(&session.id).await {
            Ok(()) => print(&format!("{}\n", session.id))?,
            Err(error) => {
                say(format!("{}: {error}", session.id));
                code = exit::FAILED;
            }
        }
    }
    for workspace in unused {
        match client.delete_workspace(&workspace.owner, &workspace.id, false).await {
            Ok(()) => print(&format!("{}\n", workspace.id))?,
            Err(error) => {
                say(format!("{}: {error}", workspace.id));
                code = exit::FAILED;
            }
        }
    }
    match client.prune_images().await {
        Ok(removed) => {
            let (layers, leftovers) = (removed.layers, removed.leftovers);
            say(format!("removed {layers} layers and {leftovers} leftovers: {}", BinaryBytes(removed.bytes)));
        }
        // Images are everybody's, and only an admin may remove any.
        Err(error) if error.is("FORBIDDEN") => {}
        Err(error) => return Err(error.into()),
    }
    Ok(code)
}

fn is_agreed(sessions: usize, workspaces: usize) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::usage("nobody can be asked here: use -f"));
    }
    let files = if workspaces > 0 { format!(", {workspaces} workspaces") } else { String::new() };
    ask(format_args!("remove {sessions} stopped sessions with their files{files} and unused layers of images? [y/N] "));
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

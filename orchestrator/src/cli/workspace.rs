//! `cove workspace`: lists, makes and removes workspaces, and copies files into and out of them.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use indicatif::BinaryBytes;
use shared_protocol::api::{CreateSessionRequest, WorkspaceView};
use shared_protocol::{SessionId, WorkspaceId};

use super::connect::{AtEnd, DaemonArgs, in_own_session};
use super::cp::{self, Place};
use super::exit::{self, Failure};
use super::interrupt::Interrupts;
use super::list::ListForm;
use super::options::{Lifetime, SessionOptions};
use super::output::{Style, escape_control, print, say};
use super::table::{Cell, Table};
use crate::client::Client;

const EXAMPLES: &str = "\
Examples:
  cove workspace create data
  cove workspace cp ./project data:
  cove run -v data python ls
  cove workspace ls
  cove workspace rm data

A workspace is a named directory that outlives sessions. A session has it at /workspace.";

/// Manage workspaces, the directories that outlive sessions
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct WorkspaceArgs {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Subcommand)]
enum Action {
    /// List workspaces
    #[command(visible_alias = "list", after_help = "Example:\n  cove workspace ls -q")]
    Ls {
        #[command(flatten)]
        form: ListForm,
    },
    /// Make workspaces; one that exists stays as it is
    #[command(after_help = "Example:\n  cove workspace create data")]
    Create {
        /// Names of the workspaces
        #[arg(required = true, value_name = "NAME")]
        names: Vec<WorkspaceId>,
    },
    /// Remove workspaces and everything in them
    #[command(after_help = "Example:\n  cove workspace rm data")]
    Rm {
        /// Names of the workspaces
        #[arg(required = true, value_name = "NAME")]
        names: Vec<WorkspaceId>,
        /// Also end the sessions that use it
        #[arg(short = 'f', long)]
        force: bool,
    },
    /// Copy files and directories into and out of a workspace
    #[command(after_help = "Example:\n  cove workspace cp ./project data:src\n  cove workspace cp data:report.pdf .")]
    Cp {
        /// NAME:PATH, a local path, or - for standard input
        #[arg(value_name = "SRC")]
        source: OsString,
        /// NAME:PATH, a local path, or - for standard output
        #[arg(value_name = "DST")]
        destination: OsString,
        /// Show no progress bar
        #[arg(short = 'q', long)]
        quiet: bool,
    },
}

pub async fn workspace(args: WorkspaceArgs) -> Result<u8, Failure> {
    let daemon = &args.daemon;
    match args.action {
        Action::Ls { form } => {
            let workspaces = daemon.client()?.workspaces().await?;
            form.show(&workspaces, |workspace| workspace.id.to_string(), table)?;
            Ok(0)
        }
        Action::Create { names } => {
            let client = daemon.client()?;
            for name in names {
                client.create_workspace(&name).await?;
                print(&format!("{name}\n"))?;
            }
            Ok(0)
        }
        Action::Rm { names, force } => remove(&daemon.client()?, &names, force).await,
        Action::Cp { source, destination, quiet } => {
            copy(daemon, Place::parse(&source), Place::parse(&destination), quiet).await
        }
    }
}

async fn remove(client: &Client, names: &[WorkspaceId], force: bool) -> Result<u8, Failure> {
    let mut code = 0;
    for name in names {
        match client.delete_own_workspace(name, force).await {
            Ok(()) => print(&format!("{name}\n"))?,
            Err(error) => {
                let hint = if error.is("CONFLICT") && !force { "; -f ends them" } else { "" };
                say(format!("{name}: {error}{hint}"));
                code = exit::FAILED;
            }
        }
    }
    Ok(code)
}

/// Copies through a session that has the workspace and ends with the copy.
async fn copy(daemon: &DaemonArgs, source: Place, destination: Place, quiet: bool) -> Result<u8, Failure> {
    let (name, is_source) = match (&source, &destination) {
        (Place::Session { id, .. }, Place::Local(_) | Place::Stream) => (id, true),
        (Place::Local(_) | Place::Stream, Place::Session { id, .. }) => (id, false),
        (Place::Session { .. }, Place::Session { .. }) => {
            return Err(Failure::usage("one of the two paths must be on this machine: copy in two steps"));
        }
        _ => return Err(Failure::usage("one of the two paths must be in a workspace, as NAME:PATH")),
    };
    let name = WorkspaceId::new(name.as_str()).map_err(|error| Failure::usage(error.to_string()))?;
    // A session would make a workspace that is not there.
    if is_source && !daemon.client()?.workspaces().await?.iter().any(|found| found.id == name) {
        return Err(Failure::failed(format!("no workspace {name}; `cove workspace ls` lists them")));
    }
    let wanted = CreateSessionRequest {
        workspace_id: Some(name),
        ..SessionOptions::default().request(None, Lifetime::OfCommand)?
    };
    let mut interrupts = Interrupts::new()?;
    let work = async |client: &Client, session: &SessionId, interrupts: &mut Interrupts| {
        let (source, destination) = (source.in_workspace(session), destination.in_workspace(session));
        tokio::select! {
            copied = cp::copy(client, &source, &destination, quiet) => copied.map(|()| 0),
            signal = interrupts.next() => Ok(exit::signalled(signal)),
        }
    };
    in_own_session(daemon.client_or_private(&wanted), &wanted, AtEnd::Destroy, &mut interrupts, work).await
}

fn table(workspaces: &[WorkspaceView], style: Style) -> String {
    let mut table = Table::new(&["WORKSPACE", "OWNER", "SIZE", "CREATED", "SESSIONS"]);
    for workspace in workspaces {
        let sessions: Vec<&str> = workspace.sessions.iter().map(SessionId::as_str).collect();
        table.row(vec![
            Cell::new(workspace.id.as_str()),
            Cell::new(workspace.owner.as_str()),
            Cell::new(workspace.size_bytes.map(|bytes| BinaryBytes(bytes).to_string()).unwrap_or_default()),
            Cell::new(escape_control(&workspace.created_at)),
            Cell::new(sessions.join(",")),
        ]);
    }
    table.render(style)
}

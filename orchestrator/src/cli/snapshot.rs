//! `cove snapshot` and `cove fork`: keep what a session has, and copy sessions.

use clap::{Args, Subcommand};
use shared_protocol::api::{CreateSnapshotRequest, ForkRequest, MAX_FORKS, SnapshotView};
use shared_protocol::{SnapshotId, WorkspaceId};

use super::connect::DaemonArgs;
use super::exit::{self, Failure};
use super::list::ListForm;
use super::output::{Style, escape_control, print, say};
use super::session_ref::SessionRef;
use super::table::{Cell, Table};

const EXAMPLES: &str = "\
Examples:
  cove snapshot create 7183cb80-d6c --name 'tests pass'
  cove snapshot ls
  cove run --snapshot snap-7183cb80d6c1 -- make
  cove snapshot rm snap-7183cb80d6c1

A snapshot has the files of a session, and the directory, variables, functions and options of its shells.
Processes and workspaces are no part of it.";

const FORK_EXAMPLES: &str = "\
Examples:
  cove fork 7183cb80-d6c
  cove fork 7183cb80-d6c --count 8

Prints the id of each copy. Copies share what is on the disk until one of them writes. If one of them cannot be made, none is.";

/// Keep what sessions have, to start others from it
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Subcommand)]
enum Action {
    /// Make a snapshot of a session, and print its id
    #[command(after_help = "Example:\n  cove snapshot create 7183cb80-d6c --name 'tests pass'")]
    Create {
        /// Id or name of the session
        session: SessionRef,
        /// A name for people
        #[arg(long)]
        name: Option<String>,
    },
    /// List snapshots
    #[command(after_help = "Example:\n  cove snapshot ls --json")]
    Ls {
        #[command(flatten)]
        form: ListForm,
    },
    /// Remove snapshots
    #[command(after_help = "Example:\n  cove snapshot rm snap-7183cb80d6c1")]
    Rm {
        /// Ids of the snapshots
        #[arg(required = true, value_name = "SNAPSHOT")]
        ids: Vec<SnapshotId>,
    },
}

/// Make copies of a session
#[derive(Args)]
#[command(after_help = FORK_EXAMPLES)]
pub struct ForkArgs {
    /// Id or name of the session
    session: SessionRef,
    /// How many copies to make
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_FORKS)))]
    count: u32,
    /// The workspace of the copies, if not the session's own
    #[arg(long, value_name = "NAME")]
    workspace: Option<WorkspaceId>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn snapshot(args: SnapshotArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    match args.action {
        Action::Create { session, name } => {
            let made = client.create_snapshot(&session.find(&client).await?, &CreateSnapshotRequest { name }).await?;
            print(&format!("{}\n", made.id))?;
        }
        Action::Ls { form } => {
            form.show(&client.snapshots().await?, |snapshot| snapshot.id.to_string(), table)?;
        }
        Action::Rm { ids } => {
            let mut code = 0;
            for id in ids {
                match client.remove_snapshot(&id).await {
                    Ok(()) => print(&format!("{id}\n"))?,
                    Err(error) => {
                        say(format!("{id}: {error}"));
                        code = exit::FAILED;
                    }
                }
            }
            return Ok(code);
        }
    }
    Ok(0)
}

pub async fn fork(args: ForkArgs) -> Result<u8, Failure> {
    let wanted = ForkRequest { count: args.count, workspace_id: args.workspace };
    let client = args.daemon.client()?;
    let made = client.fork_session(&args.session.find(&client).await?, &wanted).await?;
    for session in made.sessions {
        print(&format!("{}\n", session.id))?;
    }
    Ok(0)
}

fn table(snapshots: &[SnapshotView], style: Style) -> String {
    let mut table = Table::new(&["SNAPSHOT", "NAME", "SESSION", "IMAGE", "DISK", "MADE"]);
    for snapshot in snapshots {
        table.row(vec![
            Cell::new(snapshot.id.as_str()),
            Cell::new(escape_control(snapshot.name.as_deref().unwrap_or_default())),
            Cell::new(snapshot.session_id.as_str()),
            Cell::new(escape_control(&snapshot.image)),
            Cell::new(format!("{} MiB", snapshot.disk_bytes.div_ceil(1 << 20))),
            Cell::new(escape_control(&snapshot.created_at)),
        ]);
    }
    table.render(style)
}

//! `cove mcp`: a sandbox for a program that speaks the Model Context Protocol over standard input and output.
//!
//! It is a proxy for the daemon's `/mcp` (see `proxy`). Standard output carries the protocol alone. The sandbox is made at the first tool
//! call, under a name that only this process knows, so that it is found again if the daemon is restarted; when standard input ends, or a
//! signal comes, it is destroyed. A session that was named by `--session` stays.

mod install;
mod message;
mod proxy;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use shared_protocol::api::{CreateSessionRequest, NetworkSpec};
use shared_protocol::{SessionName, WorkspaceId};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

use super::connect::{Connection, DaemonArgs, create_session};
use super::cp;
use super::exit::{self, Failure};
use super::interrupt::Interrupts;
use super::network_option;
use super::output::say;
use super::private::random_hex;
use super::session_ref::SessionRef;
use crate::client::{Client, mcp_path};
use proxy::{Proxy, Reach, Requests};

const EXAMPLES: &str = "\
Examples:
  cove mcp                                   a new sandbox for each connection
  cove mcp --image python --network packages
  cove mcp --directory ~/project             with a copy of a directory in /workspace
  cove mcp --session web                     in a session that exists, and stays
  cove mcp install claude-code               print what a client needs in its configuration
  cove mcp install cursor --write            and write it there

An MCP client starts this command and talks to it over standard input and output. If no daemon runs, it starts a
private one. A sandbox mounts no directory of this machine: --directory copies it, and `cove cp` copies results back
from a session that you named.";

/// The longest message of a client, as the daemon takes it.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// How long outstanding answers are waited for when standard input has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How long the end of the sandbox is waited for.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// Serve the tools of a sandbox to an MCP client
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct McpArgs {
    #[command(subcommand)]
    command: Option<McpCommand>,
    /// Use a session that exists, by id or name; it stays
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["image", "network", "workspace", "directory"])]
    session: Option<SessionRef>,
    /// Image of the sandbox (default: the daemon's default image)
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// What the sandbox may reach: none, packages, full, a preset of the daemon, or rules such as example.com
    #[arg(long, value_name = "NETWORK", value_parser = network_option::parse)]
    network: Option<NetworkSpec>,
    /// Mount a named workspace at /workspace; it outlives the sandbox
    #[arg(long, value_name = "NAME")]
    workspace: Option<WorkspaceId>,
    /// Copy what is in a directory of this machine to /workspace before the first call
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Copy the directory, which is the only way that there is
    #[arg(long, requires = "directory")]
    copy: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Subcommand)]
enum McpCommand {
    Install(install::InstallArgs),
}

pub async fn mcp(args: McpArgs) -> Result<u8, Failure> {
    if let Some(McpCommand::Install(args)) = &args.command {
        return install::install(args);
    }
    let mut interrupts = Interrupts::new()?;
    let name = SessionName::new(format!("mcp-{}", random_hex(8)?)).map_err(|e| Failure::failed(e.to_string()))?;
    let wanted = CreateSessionRequest {
        name: Some(name.clone()),
        image: args.image.clone(),
        network: args.network.clone(),
        workspace_id: args.workspace.clone(),
        labels: [("mcp".to_owned(), "1".to_owned())].into(),
        ..CreateSessionRequest::default()
    };
    let connection = args.daemon.client_or_private(&wanted).await?;
    let served = tokio::select! {
        served = serve(&args, &connection, &wanted) => served,
        signal = interrupts.next() => Ok(exit::signalled(signal)),
    };
    if args.session.is_none() {
        let client = if connection.is_private() { Ok(connection.client.clone()) } else { args.daemon.client() };
        if let Ok(client) = client
            && tokio::time::timeout(END_TIMEOUT, destroy(&client, name.as_str())).await.is_err()
        {
            say("the sandbox was not ended in time; it expires by itself");
        }
    }
    connection.close().await;
    served
}

async fn serve(args: &McpArgs, connection: &Connection, wanted: &CreateSessionRequest) -> Result<u8, Failure> {
    let path = path(args, connection, wanted).await?;
    if let Some(directory) = &args.directory {
        copy(&connection.client, directory, wanted).await?;
    }
    let reach = match connection.is_private() {
        true => Reach::Private(connection.client.clone()),
        false => Reach::Found(args.daemon.clone()),
    };
    let (proxy, lines) = Proxy::new(reach, path);
    let mut requests = Requests::new(proxy.clone());
    let mut writing = std::pin::pin!(write(lines));
    tokio::select! {
        read = read(&mut requests) => read?,
        written = &mut writing => return written.map(|()| 0),
    }
    // What is left to write is written; requests that are still running end.
    drop(requests);
    proxy.end().await;
    drop(proxy);
    writing.await.map(|()| 0)
}

/// The path of `/mcp` that names the sandbox.
async fn path(args: &McpArgs, connection: &Connection, wanted: &CreateSessionRequest) -> Result<String, Failure> {
    if let Some(session) = &args.session {
        let id = session.find(&connection.client).await?;
        return Ok(mcp_path(&[("session", id.as_str())]));
    }
    let network = wanted.network.as_ref().map(|network| match network {
        NetworkSpec::Preset(name) => name.clone(),
        NetworkSpec::Rules(rules) => serde_json::to_string(rules).unwrap_or_default(),
    });
    let given = [
        ("name", wanted.name.as_ref().map(SessionName::as_str)),
        ("image", wanted.image.as_deref()),
        ("network", network.as_deref()),
        ("workspace", wanted.workspace_id.as_ref().map(WorkspaceId::as_str)),
    ];
    let given: Vec<(&str, &str)> = given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    Ok(mcp_path(&given))
}

/// Makes the sandbox now, because a directory is copied into it.
async fn copy(client: &Client, directory: &std::path::Path, wanted: &CreateSessionRequest) -> Result<(), Failure> {
    if !directory.is_dir() {
        return Err(Failure::usage(format!("{} is no directory", directory.display())));
    }
    let session = create_session(client, wanted).await?;
    let from = cp::Place::Local(directory.join("."));
    let to = cp::Place::Session { id: session.id, path: b".".to_vec() };
    cp::copy(client, &from, &to, /* quiet */ true).await
}

/// Ends the sandbox that was made under this name, if there is one.
async fn destroy(client: &Client, name: &str) {
    for session in client.sessions_named(name).await.unwrap_or_default() {
        if let Err(error) = client.destroy_session(&session.id).await {
            say(format!("cannot end session {}: {error}", session.id));
        }
    }
}

/// Reads messages, one in each line, to the end of standard input, and waits for the answers to the last ones.
async fn read(requests: &mut Requests) -> Result<(), Failure> {
    let mut input = BufReader::new(tokio::io::stdin());
    let failed = |error: std::io::Error| Failure::failed(format!("cannot read standard input: {error}"));
    let mut line = Vec::new();
    loop {
        let available = input.fill_buf().await.map_err(failed)?;
        if available.is_empty() {
            break;
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        line.extend_from_slice(&available[..taken]);
        input.consume(taken);
        if line.len() > MAX_MESSAGE_BYTES {
            return Err(Failure::failed("a message is longer than 16 MiB"));
        }
        if end.is_some() {
            let whole = std::mem::take(&mut line);
            if !whole.trim_ascii().is_empty() {
                requests.take(whole.trim_ascii()).await;
            }
        }
    }
    let _ = tokio::time::timeout(LAST_ANSWERS, requests.finish()).await;
    Ok(())
}

/// Writes messages to standard output, one in each line.
async fn write(mut lines: mpsc::Receiver<String>) -> Result<(), Failure> {
    let mut output = tokio::io::stdout();
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        let written = async {
            output.write_all(line.as_bytes()).await?;
            output.flush().await
        };
        written.await.map_err(|error| Failure::stdout(&error))?;
    }
    Ok(())
}

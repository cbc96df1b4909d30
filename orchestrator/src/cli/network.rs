//! `cove network`: shows and changes what a session may reach, shows what was decided, and finds out this host's registries.

use clap::{Args, Subcommand};
use shared_protocol::SessionId;
use shared_protocol::api::{NetworkDecision, NetworkSpec, NetworkVerdict, NetworkView, NetworkWish, PackagesView};

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::network_option;
use super::output::{Style, escape_control, print, print_json, say};
use super::table::{Cell, Table};

const EXAMPLES: &str = "\
Examples:
  cove network show 7183cb80-d6c
  cove network set 7183cb80-d6c packages
  cove network set 7183cb80-d6c example.com,*.example.com:8443
  cove network log 7183cb80-d6c
  cove network learn 7183cb80-d6c
  cove network detect";

/// Show and change what a session may reach over the network
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct NetworkArgs {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Subcommand)]
enum Action {
    /// Show what a session may reach, and how much it has used
    #[command(after_help = "Example:\n  cove network show 7183cb80-d6c")]
    Show {
        /// Id of the session
        session: SessionId,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Change what a session may reach; connections that the new policy forbids are cut
    #[command(after_help = "Example:\n  cove network set 7183cb80-d6c packages")]
    Set {
        /// Id of the session
        session: SessionId,
        /// none, packages, learn, full, a preset of the daemon, or rules with commas between them (! before what is denied)
        #[arg(value_parser = network_option::parse)]
        network: NetworkSpec,
    },
    /// Show the last decisions about a session's network
    #[command(after_help = "Example:\n  cove network log 7183cb80-d6c")]
    Log {
        /// Id of the session
        session: SessionId,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Print what a session has reached so far, as rules: an allowlist for the next session
    #[command(after_help = "Example:\n  cove network learn 7183cb80-d6c")]
    Learn {
        /// Id of the session, created with the network `learn`
        session: SessionId,
        /// Print a JSON object for the field `network` of a create
        #[arg(long)]
        json: bool,
    },
    /// Ask this host's package managers for their registries: what the network `packages` allows
    #[command(after_help = "Example:\n  cove network detect")]
    Detect {
        /// Show what was found out before, without asking again
        #[arg(long)]
        cached: bool,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
}

pub async fn network(args: NetworkArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    match args.action {
        Action::Show { session, json } => {
            let view = client.network(&session).await?;
            if json { print_json(&view)? } else { print(&described(&view))? }
        }
        Action::Set { session, network } => {
            let view = client.set_network(&session, network).await?;
            print(&described(&view))?;
        }
        Action::Log { session, json } => {
            let decisions = client.network_log(&session).await?;
            if json { print_json(&decisions)? } else { print(&log_table(&decisions, Style::for_stdout()))? }
        }
        Action::Learn { session, json } => {
            let used = client.network(&session).await?.used;
            if json {
                print_json(&serde_json::json!({ "allow": used }))?;
            } else {
                print(&used.iter().map(|rule| format!("{rule}\n")).collect::<String>())?;
            }
            if used.is_empty() {
                say("nothing was reached so far");
            }
        }
        Action::Detect { cached, json } => {
            if !cached && !json {
                say("asking the package managers of the daemon's host; this takes a few seconds");
            }
            let view = client.packages(cached).await?;
            if json { print_json(&view)? } else { print(&packages_table(&view, Style::for_stdout()))? }
        }
    }
    Ok(0)
}

fn described(view: &NetworkView) -> String {
    let asked = match &view.network {
        NetworkSpec::Preset(name) => escape_control(name),
        NetworkSpec::Rules(_) => "rules".to_owned(),
    };
    let mut text = format!("network: {asked}\n");
    if !view.is_open {
        text.push_str("this sandbox has no way to the network: it reaches nothing\n");
    }
    for rule in &view.allow {
        text.push_str(&format!("allow:   {rule}\n"));
    }
    for rule in &view.deny {
        text.push_str(&format!("deny:    {rule}\n"));
    }
    text.push_str(&format!(
        "open connections: {}, bytes sent: {}, received: {}\n",
        view.connections, view.bytes_sent, view.bytes_received
    ));
    text
}

fn log_table(decisions: &[NetworkDecision], style: Style) -> String {
    let mut table =
        Table::new(&["WHAT", "HOST", "ADDRESS", "PORT", "VERDICT", "SENT", "RECEIVED", "RULE THAT WOULD ALLOW IT"]);
    for decision in decisions {
        let wish = match decision.wish {
            NetworkWish::Resolve => "resolve",
            NetworkWish::Connect => "connect",
        };
        let verdict = match decision.verdict {
            NetworkVerdict::Allowed => "allowed",
            NetworkVerdict::Denied => "denied",
            NetworkVerdict::Failed => "failed",
            NetworkVerdict::Cut => "cut",
        };
        let verdict = match &decision.reason {
            Some(reason) => format!("{verdict}: {}", escape_control(reason)),
            None => verdict.to_owned(),
        };
        let number = |count: Option<u64>| count.map(|count| count.to_string()).unwrap_or_default();
        let text = |value: &Option<String>| Cell::new(escape_control(value.as_deref().unwrap_or_default()));
        table.row(vec![
            Cell::new(wish),
            text(&decision.host),
            text(&decision.address),
            Cell::new(decision.port.map(|port| port.to_string()).unwrap_or_default()),
            Cell::new(verdict),
            Cell::new(number(decision.bytes_sent)),
            Cell::new(number(decision.bytes_received)),
            text(&decision.wanted),
        ]);
    }
    table.render(style)
}

fn packages_table(view: &PackagesView, style: Style) -> String {
    let mut table = Table::new(&["TOOL", "HOST", "PORTS", "PRIVATE", "BECAUSE"]);
    for registry in &view.found {
        let ports = registry.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        table.row(vec![
            Cell::new(escape_control(&registry.tool)),
            Cell::new(escape_control(&registry.host)),
            Cell::new(ports),
            Cell::new(if registry.is_private { "yes" } else { "" }),
            Cell::new(escape_control(&registry.because)),
        ]);
    }
    let mut text = table.render(style);
    for problem in &view.problems {
        text.push_str(&format!("{}: {}\n", escape_control(&problem.tool), escape_control(&problem.message)));
    }
    text
}

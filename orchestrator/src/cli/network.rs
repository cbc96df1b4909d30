//! `cove network`: shows and changes what a session may reach, shows what was decided, and finds out this host's registries.

use clap::{Args, Subcommand};
use shared_protocol::api::{
    NetworkDecision, NetworkRule, NetworkRules, NetworkSpec, NetworkVerdict, NetworkView, NetworkWish, PackagesView,
    SetNetworkRequest,
};

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::inject_option::{self, InjectOption};
use super::learn;
use super::network_option;
use super::output::{Style, escape_control, print, print_json, say};
use super::session_ref::SessionRef;
use super::table::{Cell, Table};

const EXAMPLES: &str = "\
Examples:
  cove network show 7183cb80-d6c
  cove network set 7183cb80-d6c packages
  cove network set 7183cb80-d6c example.com,*.example.com:8443
  cove network log 7183cb80-d6c
  cove network learn 7183cb80-d6c -- npm install
  cove network detect";

const LEARN_EXAMPLES: &str = "\
Examples:
  cove network learn 7183cb80-d6c                              what the session has reached so far
  cove network learn 7183cb80-d6c -- npm install               what this command reaches
  cove network learn 7183cb80-d6c --json -- make > network.json

The command runs in the session's shell. Its output goes to standard error, and the exit code is its own. Then the
session has its old network again. What other programs of the session reach meanwhile is in the list, too.";

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
        /// Id or name of the session
        session: SessionRef,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Change what a session may reach; connections that the new policy forbids are cut
    #[command(after_help = "Example:\n  cove network set 7183cb80-d6c packages")]
    Set {
        /// Id or name of the session
        session: SessionRef,
        /// none, packages, learn, full, a preset of the daemon, or rules with commas between them (! before what is denied)
        #[arg(value_parser = network_option::parse)]
        network: NetworkSpec,
        /// The headers that are injected from now on, or none [default: those that the session has]
        #[arg(long, value_name = "INJECTION", value_parser = inject_option::parse)]
        inject: Vec<InjectOption>,
    },
    /// Show the last decisions about a session's network
    #[command(after_help = "Example:\n  cove network log 7183cb80-d6c")]
    Log {
        /// Id or name of the session
        session: SessionRef,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Print what a session or a command has reached, as rules: an allowlist for the next session
    #[command(after_help = LEARN_EXAMPLES)]
    Learn {
        /// Id or name of the session; without a command, one with the network `learn`
        session: SessionRef,
        /// Print a JSON object for the field `network` of a create
        #[arg(long)]
        json: bool,
        /// Command to run with the network `learn`: one argument is a line of bash, several are a program and its arguments
        #[arg(last = true, value_name = "CMD")]
        words: Vec<String>,
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
            let view = client.network(&session.find(&client).await?).await?;
            if json { print_json(&view)? } else { print(&described(&view))? }
        }
        Action::Set { session, network, inject } => {
            let wanted = SetNetworkRequest { network, inject: inject_option::all(&inject) };
            let view = client.set_network(&session.find(&client).await?, &wanted).await?;
            print(&described(&view))?;
        }
        Action::Log { session, json } => {
            let decisions = client.network_log(&session.find(&client).await?).await?;
            if json { print_json(&decisions)? } else { print(&log_table(&decisions, Style::for_stdout()))? }
        }
        Action::Learn { session, json, words } => {
            let session = session.find(&client).await?;
            let (code, used) = match words.is_empty() {
                true => (0, client.network(&session).await?.used),
                false => learn::learn(&client, &session, &words).await?,
            };
            if json {
                print_json(&serde_json::json!({ "allow": used }))?;
            } else {
                print(&used.iter().map(|rule| format!("{rule}\n")).collect::<String>())?;
            }
            if used.is_empty() {
                say("nothing was reached so far");
            }
            return Ok(code);
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
    let mut text = match &view.network {
        NetworkSpec::Preset(name) => format!("network: {}\n", escape_control(name)),
        NetworkSpec::Rules(_) => "network: rules\n".to_owned(),
    };
    if let Some(max) = &view.max {
        text.push_str(&format!("maximum: {}\n", shown_network(max)));
    }
    if !view.is_open {
        text.push_str("this sandbox has no way to the network: it reaches nothing\n");
    }
    if let Some(proxy) = &view.proxy {
        text.push_str(&format!("proxy:   {} (variables of the sandbox lead programs to it)\n", escape_control(proxy)));
    }
    for rule in &view.allow {
        text.push_str(&format!("allow:   {}\n", shown(rule)));
    }
    for rule in &view.deny {
        text.push_str(&format!("deny:    {}\n", shown(rule)));
    }
    for injection in &view.inject {
        text.push_str(&format!("inject:  {}\n", escape_control(&inject_option::shown(injection))));
    }
    text.push_str(&format!(
        "open connections: {}, bytes sent: {}, received: {}\n",
        view.connections, view.bytes_sent, view.bytes_received
    ));
    text
}

/// A network on one line: the name of a preset, or rules as `network_option` reads them.
fn shown_network(network: &NetworkSpec) -> String {
    match network {
        NetworkSpec::Preset(name) => escape_control(name),
        NetworkSpec::Rules(NetworkRules { presets, allow, deny }) => {
            let presets = presets.iter().map(|name| escape_control(name));
            let denied = deny.iter().map(|rule| format!("!{}", shown(rule)));
            presets.chain(allow.iter().map(shown)).chain(denied).collect::<Vec<_>>().join(", ")
        }
    }
}

fn shown(rule: &NetworkRule) -> String {
    match rule {
        NetworkRule::Text(text) => escape_control(text),
        NetworkRule::Parts(parts) => {
            let ports = parts.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
            let colon = if ports.is_empty() { "" } else { ":" };
            let private = if parts.private { " (private)" } else { "" };
            format!("{}{colon}{ports}{private}", escape_control(&parts.host))
        }
    }
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
            NetworkVerdict::Allowed if decision.injected => "allowed, with a header",
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
    for variable in &view.variables {
        let (name, value) = (escape_control(&variable.name), escape_control(&variable.value));
        text.push_str(&format!("{}: sandboxes get {name}={value}\n", escape_control(&variable.tool)));
    }
    for problem in &view.problems {
        text.push_str(&format!("{}: {}\n", escape_control(&problem.tool), escape_control(&problem.message)));
    }
    text
}

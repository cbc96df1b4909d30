//! `cove key`: creates, lists and removes API keys of the running daemon. It needs an admin key itself.

use clap::{Args, Subcommand};
use shared_protocol::KeyName;
use shared_protocol::api::{CreateKeyRequest, KeyRole, KeyView, NetworkSpec};

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::list::ListForm;
use super::network_option;
use super::output::{Style, print, print_json, say};
use super::table::{Cell, Table};

const EXAMPLES: &str = "\
Examples:
  cove key create alice --max-sessions 10 --max-memory-mb 16384
  cove key create ops --role admin
  cove key create bob --max-network packages
  cove key ls
  cove key rm alice

A new key works at once, and a removed one is refused at once. What a removed key owned stays; an admin
sees it, and so does the next key with the same name.";

/// Manage the API keys of the daemon
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct KeyArgs {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Subcommand)]
enum Action {
    /// Make a key and print its secret, which is shown only this once
    #[command(after_help = "Example:\n  KEY=$(cove key create alice --max-sessions 10)")]
    Create {
        /// Name of the key: the owner of what is created with it
        name: KeyName,
        /// What the key may do: user (its own sessions and workspaces) or admin (everything)
        #[arg(long, default_value = "user")]
        role: KeyRole,
        /// Most sessions at a time [default: only the daemon's limit]
        #[arg(long, value_name = "N")]
        max_sessions: Option<u64>,
        /// Most memory of all its sessions together, in MiB [default: only the daemon's limit]
        #[arg(long, value_name = "N")]
        max_memory_mb: Option<u64>,
        /// Most that its sessions may reach: a preset, or rules with commas between them [default: the daemon's maximum]
        #[arg(long, value_name = "NETWORK", value_parser = network_option::parse)]
        max_network: Option<NetworkSpec>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// List keys, without their secrets
    #[command(after_help = "Example:\n  cove key ls --json")]
    Ls {
        #[command(flatten)]
        form: ListForm,
    },
    /// Remove keys
    #[command(after_help = "Example:\n  cove key rm alice")]
    Rm {
        /// Names of the keys
        #[arg(required = true, value_name = "NAME")]
        names: Vec<KeyName>,
    },
}

pub async fn key(args: KeyArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    match args.action {
        Action::Create { name, role, max_sessions, max_memory_mb, max_network, json } => {
            let request = CreateKeyRequest { name, role, max_sessions, max_memory_mb, max_network };
            let made = client.create_key(&request).await?;
            if json {
                print_json(&made)?;
            } else {
                print(&format!("{}\n", made.secret))?;
                say("this secret is not shown again");
            }
        }
        Action::Ls { form } => form.show(&client.keys().await?, |key| key.name.to_string(), table)?,
        Action::Rm { names } => {
            for name in names {
                client.remove_key(&name).await?;
                print(&format!("{name}\n"))?;
            }
        }
    }
    Ok(0)
}

fn table(keys: &[KeyView], style: Style) -> String {
    let mut table = Table::new(&["NAME", "ROLE", "SESSIONS", "MEMORY (MiB)", "CREATED"]);
    let of = |used: u64, limit: Option<u64>| limit.map_or(used.to_string(), |limit| format!("{used} of {limit}"));
    for key in keys {
        table.row(vec![
            Cell::new(key.name.as_str()),
            Cell::new(key.role.as_str()),
            Cell::new(of(key.sessions, key.max_sessions)),
            Cell::new(of(key.memory_mb, key.max_memory_mb)),
            Cell::new(key.created_at.as_deref().unwrap_or("-")),
        ]);
    }
    table.render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_line_with_what_it_uses() {
        let text = r#"[{"name":"default","role":"admin","sessions":1,"memory_mb":1024},
            {"name":"alice","role":"user","max_sessions":2,"sessions":0,"memory_mb":0,"created_at":"2026-01-02T03:04:05.678Z"}]"#;
        let keys: Vec<KeyView> = serde_json::from_str(text).unwrap();
        let expected = "\
NAME     ROLE   SESSIONS  MEMORY (MiB)  CREATED
default  admin  1         1024          -
alice    user   0 of 2    0             2026-01-02T03:04:05.678Z
";
        let shown = table(&keys, Style::plain());
        assert_eq!(shown.lines().map(str::trim_end).collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
    }
}

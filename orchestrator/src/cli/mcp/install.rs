//! `cove mcp install`: what an MCP client needs in its configuration to start `cove mcp`, printed or written.
//!
//! Writing keeps everything else in the file: JSON is merged key by key, and TOML gets a table at its end. The old file stays beside
//! the new one as `FILE.bak`, and the new one appears complete under its name or not at all. A file that cannot be understood is left
//! alone.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use crate::cli::exit::Failure;
use crate::cli::output::{print, say};

const EXAMPLES: &str = "\
Examples:
  cove mcp install                           the clients, and where each has its configuration
  cove mcp install claude-code
  cove mcp install cursor --write
  cove mcp install codex --write -- --image python --network packages

What stands behind -- is passed to `cove mcp`.";

/// The name of the server in a client's configuration.
const SERVER: &str = "cove";
/// The largest configuration that is read.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Print or write the configuration of an MCP client
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct InstallArgs {
    /// The client
    #[arg(value_enum)]
    client: Option<McpClient>,
    /// Write it to the client's configuration file, and keep the old one as FILE.bak
    #[arg(long, requires = "client")]
    write: bool,
    /// Options for `cove mcp`
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum McpClient {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    Vscode,
    Codex,
}

impl McpClient {
    const ALL: [Self; 5] = [Self::ClaudeCode, Self::ClaudeDesktop, Self::Cursor, Self::Vscode, Self::Codex];

    fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Cursor => "cursor",
            Self::Vscode => "vscode",
            Self::Codex => "codex",
        }
    }

    /// The file, relative to the home directory.
    fn file(self) -> &'static str {
        match self {
            Self::ClaudeCode => ".claude.json",
            Self::ClaudeDesktop => ".config/Claude/claude_desktop_config.json",
            Self::Cursor => ".cursor/mcp.json",
            Self::Vscode => ".config/Code/User/mcp.json",
            Self::Codex => ".codex/config.toml",
        }
    }

    /// The key in the file that has the servers.
    fn key(self) -> &'static str {
        match self {
            Self::Vscode => "servers",
            Self::Codex => "mcp_servers",
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor => "mcpServers",
        }
    }

    fn is_toml(self) -> bool {
        self == Self::Codex
    }

    fn server(self, options: &[String]) -> Value {
        let args: Vec<&str> = std::iter::once("mcp").chain(options.iter().map(String::as_str)).collect();
        match self {
            Self::Vscode | Self::ClaudeCode => json!({ "type": "stdio", "command": "cove", "args": args }),
            Self::ClaudeDesktop | Self::Cursor | Self::Codex => json!({ "command": "cove", "args": args }),
        }
    }

    /// What the file has to contain.
    fn snippet(self, options: &[String]) -> Result<String, Failure> {
        let server = self.server(options);
        if self.is_toml() {
            return toml_table(self.key(), &server);
        }
        let mut text = serde_json::to_string_pretty(&json!({ self.key(): { SERVER: server } }))
            .map_err(|error| Failure::failed(error.to_string()))?;
        text.push('\n');
        Ok(text)
    }

    /// The file's text with the server in it.
    fn merged(self, text: &str, options: &[String]) -> Result<String, String> {
        if self.is_toml() {
            merge_toml(text, self.key(), &self.snippet(options).map_err(|failure| failure.message().to_owned())?)
        } else {
            merge_json(text, self.key(), self.server(options))
        }
    }
}

fn toml_table(key: &str, server: &Value) -> Result<String, Failure> {
    // A JSON string is a basic string of TOML too, and so is a list of them.
    let command = &server["command"];
    let args = &server["args"];
    Ok(format!("[{key}.{SERVER}]\ncommand = {command}\nargs = {args}\n"))
}

pub fn install(args: &InstallArgs) -> Result<u8, Failure> {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| Failure::usage("HOME is not set, so no client's configuration is found"))?;
    let Some(client) = args.client else {
        let lines = McpClient::ALL.map(|client| format!("{:<16}~/{}\n", client.name(), client.file()));
        print(&lines.concat())?;
        return Ok(0);
    };
    if !args.write {
        say(format!("add this to ~/{}, or let --write do it:", client.file()));
        print(&client.snippet(&args.options)?)?;
        return Ok(0);
    }
    let path = home.join(client.file());
    let failed = |error: io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let before = read(&path).map_err(failed)?;
    let after = client.merged(before.as_deref().unwrap_or_default(), &args.options);
    let after = after.map_err(|why| Failure::failed(format!("{} stays as it is: {why}", path.display())))?;
    if before.as_deref() == Some(after.as_str()) {
        say(format!("{} has it already", path.display()));
        return Ok(0);
    }
    replace(&path, before.as_deref(), &after).map_err(failed)?;
    say(format!("wrote {}; start {} again", path.display(), client.name()));
    Ok(0)
}

/// Sets the server in a JSON document. Everything else stays.
fn merge_json(text: &str, key: &str, server: Value) -> Result<String, String> {
    let mut document: Map<String, Value> = match text.trim() {
        "" => Map::new(),
        text => serde_json::from_str(text).map_err(|error| format!("it is no JSON object: {error}"))?,
    };
    let servers = document.entry(key).or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(servers) = servers else { return Err(format!("{key} in it is no object")) };
    if servers.get(SERVER) == Some(&server) {
        return Ok(text.to_owned());
    }
    servers.insert(SERVER.to_owned(), server);
    let mut text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
    text.push('\n');
    Ok(text)
}

/// Adds the server's table at the end of a TOML document, so that comments and order stay.
fn merge_toml(text: &str, key: &str, table: &str) -> Result<String, String> {
    let document: toml::Table = text.parse().map_err(|error| format!("it is no TOML: {error}"))?;
    let there = document.get(key).and_then(|servers| servers.get(SERVER));
    if let Some(there) = there {
        let wanted: toml::Table = table.parse().map_err(|error: toml::de::Error| error.to_string())?;
        return match wanted.get(key).and_then(|servers| servers.get(SERVER)) == Some(there) {
            true => Ok(text.to_owned()),
            false => Err(format!("it has a table [{key}.{SERVER}] already; change it by hand")),
        };
    }
    let gap = if text.is_empty() || text.ends_with("\n\n") { "" } else { "\n" };
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let merged = format!("{text}{end}{gap}{table}");
    // A document whose `mcp_servers` is an inline table cannot be continued like this.
    let again: Result<toml::Table, toml::de::Error> = merged.parse();
    again.map(|_| merged).map_err(|error| format!("the table cannot be added: {error}"))
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(about) if about.len() > MAX_FILE_BYTES => Err(io::Error::other("it is too large")),
        Ok(_) => std::fs::read_to_string(path).map(Some),
    }
}

/// Writes the new text under the file's name, in one step. The old text is kept beside it.
fn replace(path: &Path, before: Option<&str>, after: &str) -> io::Result<()> {
    // A link leads to the file that is meant.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let beside = |suffix: &str| {
        let mut name = path.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    if let Some(before) = before {
        std::fs::write(beside(".bak"), before)?;
        std::fs::set_permissions(beside(".bak"), std::fs::metadata(&path)?.permissions())?;
    }
    let new = beside(".cove-new");
    let mut file = std::fs::File::create(&new)?;
    let written = (|| {
        if before.is_some() {
            file.set_permissions(std::fs::metadata(&path)?.permissions())?;
        }
        file.write_all(after.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_gets_a_document_that_it_can_read() {
        let options = ["--image".to_owned(), "a\"b".to_owned()];
        for client in McpClient::ALL {
            assert_eq!(client.to_possible_value().unwrap().get_name(), client.name());
            let text = client.snippet(&options).unwrap();
            let args = match client.is_toml() {
                true => {
                    let table: toml::Table = text.parse().unwrap();
                    serde_json::to_value(&table[client.key()][SERVER]["args"]).unwrap()
                }
                false => serde_json::from_str::<Value>(&text).unwrap()[client.key()][SERVER]["args"].clone(),
            };
            assert_eq!(args, json!(["mcp", "--image", "a\"b"]), "{text}");
            assert_eq!(client.merged(&text, &options).as_deref(), Ok(text.as_str()), "a second time changes nothing");
        }
    }

    #[test]
    fn json_is_merged_and_the_rest_stays() {
        let text =
            r#"{"zeta": 1, "mcpServers": {"other": {"command": "x"}, "cove": {"command": "old"}}, "alpha": [true]}"#;
        let merged = McpClient::Cursor.merged(text, &[]).unwrap();
        let value: Value = serde_json::from_str(&merged).unwrap();
        assert_eq!((&value["zeta"], &value["alpha"]), (&json!(1), &json!([true])));
        assert_eq!(value["mcpServers"]["other"], json!({"command": "x"}));
        assert_eq!(value["mcpServers"]["cove"], json!({"command": "cove", "args": ["mcp"]}));
        for bad in ["[]", "{", "// comment\n{}", r#"{"mcpServers": []}"#] {
            assert!(McpClient::Cursor.merged(bad, &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn toml_gets_a_table_at_its_end_and_comments_stay() {
        let text = "# mine\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"y\"";
        let merged = McpClient::Codex.merged(text, &[]).unwrap();
        assert_eq!(merged, format!("{text}\n\n[mcp_servers.cove]\ncommand = \"cove\"\nargs = [\"mcp\"]\n"));
        let other = McpClient::Codex.merged(&merged, &["--image".into(), "python".into()]);
        assert!(other.unwrap_err().contains("by hand"));
        for bad in ["[", "mcp_servers = { a = { command = \"x\" } }"] {
            assert!(McpClient::Codex.merged(bad, &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_old_file_is_kept_beside_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.json");
        replace(&path, None, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        replace(&path, Some("new"), "newer").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "newer");
        assert_eq!(std::fs::read_to_string(folder.path().join("a/b.json.bak")).unwrap(), "new");
        assert_eq!(std::fs::read_dir(folder.path().join("a")).unwrap().count(), 2, "nothing else is left");
    }
}

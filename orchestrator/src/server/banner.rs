//! The text that a daemon prints when it listens: one line for programs, then what a new user needs to know and can paste.
//!
//! The commands in it are complete: they work when pasted into a shell. A test pastes them. A private daemon prints less: only
//! the command that started it reads that.

use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::config::OnStop;

/// Starts the line with the address.
pub const LISTENING: &str = "listening on ";
/// Starts a line of a private daemon that its command shows to the user.
pub const WARNING: &str = "warning: ";

/// What a private daemon prints: its address, a warning if there is one, and an empty line.
pub fn print_for_command(url: &str, warning: Option<&str>) {
    let warning = warning.map(|text| format!("{WARNING}{text}\n")).unwrap_or_default();
    print(&format!("{LISTENING}{url}\n{warning}\n"));
}

/// What an embedded daemon prints, as one line of JSON.
#[derive(Serialize)]
struct Announcement<'a> {
    url: &'a str,
    api_key: &'a str,
    data_dir: &'a Path,
    pid: u32,
}

/// Prints all that the program needs which started this daemon. Nobody else reads its standard output.
pub fn print_for_program(url: &str, api_key: &str, data_dir: &Path) {
    let line = serde_json::to_string(&Announcement { url, api_key, data_dir, pid: std::process::id() });
    // Only a path that is not UTF-8 cannot be written as JSON, and settings are UTF-8.
    print(&format!("{}\n", line.unwrap_or_default()));
}

/// Prints. If standard output is closed, the daemon runs on.
fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Where a client gets the key from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource<'a> {
    /// This file, which the daemon keeps in its data directory.
    File(&'a Path),
    /// The operator, who chose the key.
    Operator,
}

pub struct Banner<'a> {
    pub url: &'a str,
    pub data_dir: &'a Path,
    pub key: KeySource<'a>,
    /// The setting `sessions.on_stop`.
    pub on_stop: Option<OnStop>,
}

impl Banner<'_> {
    pub fn print(&self) {
        // The command uses the program's path, because after `cargo run` the program is not in PATH.
        let program = std::env::current_exe().map_or_else(|_| "cove".to_owned(), |path| quoted(&path));
        print(&self.text(&program));
    }

    fn text(&self, program: &str) -> String {
        let Self { url, data_dir, key, on_stop } = self;
        let data_dir = data_dir.display();
        let key = match key {
            KeySource::File(path) => format!("$(cat {})", quoted(path)),
            KeySource::Operator => "${COVE_API_KEY:?set it to the key that the daemon was given}".to_owned(),
        };
        let stops = match on_stop {
            None => {
                "Ctrl-C stops the daemon and ends all sessions. SIGTERM (`kill`, or a service manager) stops it and keeps
them: the next daemon on this data directory finds them again."
            }
            Some(OnStop::Keep) => {
                "Ctrl-C and SIGTERM stop the daemon and keep all sessions (sessions.on_stop = \"keep\"): the next daemon on this
data directory finds them again."
            }
            Some(OnStop::Destroy) => {
                "Ctrl-C and SIGTERM stop the daemon and end all sessions (sessions.on_stop = \"destroy\")."
            }
        };
        format!(
            r#"{LISTENING}{url}

{stops}
Data directory: {data_dir}

To try it, paste this into another terminal. It creates a session and runs two commands in its shell;
the second sees what the first has set:

  export COVE_URL={url} COVE_API_KEY="{key}"
  ask() {{ curl -s "$COVE_URL$1" -H "Authorization: Bearer $COVE_API_KEY" -H 'Content-Type: application/json' "${{@:2}}"; echo; }}
  ID=$(ask /v1/sessions -d '{{}}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
  ask /v1/sessions/$ID/exec -d '{{"cmd": "cd /tmp && export GREETING=hello"}}'
  ask /v1/sessions/$ID/exec -d '{{"cmd": "echo $GREETING from $PWD"}}'

Then open a terminal in the same sandbox (`exit` leaves it, the session stays):

  {program} shell $ID

"#
        )
    }
}

/// Quotes a path as one word of a shell command.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(key: KeySource<'_>, on_stop: Option<OnStop>) -> String {
        Banner { url: "http://127.0.0.1:1", data_dir: Path::new("/data"), key, on_stop }.text("cove")
    }

    #[test]
    fn the_first_line_is_for_programs() {
        let text = text(KeySource::Operator, None);
        assert_eq!(text.lines().next(), Some("listening on http://127.0.0.1:1"));
    }

    #[test]
    fn it_says_what_each_way_to_stop_does_to_sessions() {
        let said = |on_stop| {
            let text = text(KeySource::Operator, on_stop);
            text.lines().skip(2).take_while(|line| !line.starts_with("Data")).collect::<Vec<_>>().join(" ")
        };
        let by_default = said(None);
        assert!(by_default.contains("Ctrl-C stops the daemon and ends all sessions"), "{by_default}");
        assert!(by_default.contains("SIGTERM") && by_default.contains("keeps"), "{by_default}");
        assert!(!said(Some(OnStop::Keep)).contains("ends") && said(Some(OnStop::Keep)).contains("keep all"));
        assert!(said(Some(OnStop::Destroy)).contains("end all") && !said(Some(OnStop::Destroy)).contains("keep"));
    }

    #[test]
    fn a_path_with_a_quote_in_it_stays_one_word() {
        let text = text(KeySource::File(Path::new("/it's/api-key")), None);
        assert!(text.contains(r#"COVE_API_KEY="$(cat '/it'\''s/api-key')""#), "{text}");
    }
}

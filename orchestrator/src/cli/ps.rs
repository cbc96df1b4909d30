//! `cove ps`: lists sessions.

use std::time::{Duration, SystemTime};

use clap::Args;
use shared_protocol::api::{SessionStatus, SessionView};

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::options::pair;
use super::output::{Colour, Style, escape_control, print, print_json};
use super::table::{Cell, Table};

const EXAMPLES: &str = "\
Examples:
  cove ps
  cove ps --label job=build
  cove ps --all --json
  cove rm $(cove ps -q --label job=build)";

/// List sessions
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PsArgs {
    /// Include sessions that have ended, as far as the daemon remembers them
    #[arg(short = 'a', long)]
    all: bool,
    /// Show only sessions with this label; give it more than once to require several
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Print a JSON array
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Print only the ids
    #[arg(short = 'q', long)]
    quiet: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

const ENDED: [SessionStatus; 3] = [SessionStatus::Destroyed, SessionStatus::Expired, SessionStatus::Crashed];

pub async fn ps(args: PsArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let labels: Vec<String> = args.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut sessions = client.sessions(None, &labels).await?;
    if args.all {
        for status in ENDED {
            sessions.extend(client.sessions(Some(status), &labels).await?);
        }
        sessions.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
        sessions.dedup_by(|a, b| a.id == b.id);
    }
    if args.json {
        print_json(&sessions)?;
    } else if args.quiet {
        print(&sessions.iter().map(|session| format!("{}\n", session.id)).collect::<String>())?;
    } else {
        print(&table(&sessions, SystemTime::now(), Style::for_stdout()))?;
    }
    Ok(0)
}

fn table(sessions: &[SessionView], now: SystemTime, style: Style) -> String {
    let mut table = Table::new(&["SESSION", "IMAGE", "STATUS", "AGE", "EXPIRES", "WORKSPACE", "CWD", "LABELS"]);
    for session in sessions {
        let colour = match session.status {
            SessionStatus::Running => Colour::Green,
            SessionStatus::Creating | SessionStatus::Paused | SessionStatus::PoolIdle => Colour::Yellow,
            SessionStatus::Crashed => Colour::Red,
            SessionStatus::Destroying | SessionStatus::Destroyed | SessionStatus::Expired => Colour::Dim,
        };
        let labels: Vec<String> =
            session.labels.iter().map(|(key, value)| escape_control(&format!("{key}={value}"))).collect();
        let workspace = session.workspace_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let expires = if ENDED.contains(&session.status) { String::new() } else { until(&session.expires_at, now) };
        table.row(vec![
            Cell::new(session.id.as_str()),
            Cell::new(escape_control(&session.image)),
            Cell::coloured(session.status.as_str(), colour),
            Cell::new(since(&session.created_at, now)),
            Cell::new(expires),
            Cell::new(workspace),
            Cell::new(escape_control(&session.cwd)),
            Cell::new(labels.join(",")),
        ]);
    }
    table.render(style)
}

fn since(time: &str, now: SystemTime) -> String {
    let passed = humantime::parse_rfc3339(time).ok().map(|time| now.duration_since(time).unwrap_or_default());
    passed.map(short).unwrap_or_default()
}

fn until(time: &str, now: SystemTime) -> String {
    let left = humantime::parse_rfc3339(time).ok().map(|time| time.duration_since(now).unwrap_or_default());
    left.map(|left| format!("in {}", short(left))).unwrap_or_default()
}

/// A duration in its largest unit.
fn short(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let seconds = duration.as_secs();
    let (size, unit) = UNITS.into_iter().find(|(size, _)| seconds >= *size).unwrap_or((1, "s"));
    format!("{}{unit}", seconds / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_never_negative() {
        let now = humantime::parse_rfc3339("2026-01-02T03:04:05.000Z").unwrap();
        assert_eq!(since("2026-01-02T03:02:00.500Z", now), "2m");
        assert_eq!(since("2025-12-01T00:00:00Z", now), "32d");
        assert_eq!(since("2026-01-02T04:00:00Z", now), "0s");
        assert_eq!(until("2026-01-02T05:04:05Z", now), "in 2h");
        assert_eq!(since("yesterday", now), "");
    }

    #[test]
    fn a_session_is_a_line() {
        let text = r#"{"id":"7183cb80-d6c","image":"python","runtime":"local","status":"running","cwd":"/work\nspace",
            "labels":{"a":"b"},"resources":{"cpus":1.0,"memory_mb":1,"pids":1,"disk_mb":1},"network":"none","writable_root":false,
            "acquire_source":"cold","created_at":"2026-01-02T03:04:00Z","expires_at":"2026-01-02T03:34:05Z","last_activity":""}"#;
        let session: SessionView = serde_json::from_str(text).unwrap();
        let now = humantime::parse_rfc3339("2026-01-02T03:04:05Z").unwrap();
        let expected = "\
SESSION       IMAGE   STATUS   AGE  EXPIRES  WORKSPACE  CWD           LABELS
7183cb80-d6c  python  running  5s   in 30m              /work\\nspace  a=b
";
        assert_eq!(table(&[session], now, Style::plain()), expected);
    }
}

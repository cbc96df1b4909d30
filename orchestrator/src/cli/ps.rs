//! `cove ps`: lists sessions.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use clap::Args;
use shared_protocol::SessionName;
use shared_protocol::api::{ImageView, SessionStatus, SessionView};

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::list::ListForm;
use super::options::pair;
use super::output::{Colour, Style, escape_control, say};
use super::table::{Cell, Table};

const EXAMPLES: &str = "\
Examples:
  cove ps
  cove ps --label job=build
  cove ps --all --json
  cove rm -f $(cove ps -q --label job=build)";

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
    /// Show only the session with this name
    #[arg(long, value_name = "NAME")]
    name: Option<SessionName>,
    #[command(flatten)]
    form: ListForm,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// The image, and the source of images, that is the host's own system.
const HOST: &str = "host";

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
    sessions.retain(|session| args.name.is_none() || session.name == args.name);
    let in_table = |sessions: &[SessionView], style| table(sessions, SystemTime::now(), style);
    args.form.show(&sessions, |session| session.id.to_string(), in_table)?;
    if args.form.is_table() {
        // The list is what was asked for; a daemon that does not say more does no harm.
        if let Some(note) = client.images().await.ok().and_then(|images| host_note(&sessions, &images)) {
            say(note);
        }
    }
    Ok(0)
}

/// Says which images of running sessions are the host's own system though their names promise an image.
fn host_note(sessions: &[SessionView], images: &[ImageView]) -> Option<String> {
    let is_host = |session: &&SessionView| {
        let is_it = |image: &ImageView| image.name == session.image && image.runtime == session.runtime;
        session.image != HOST && images.iter().any(|image| is_it(image) && image.source == HOST)
    };
    let live = sessions.iter().filter(|session| !ENDED.contains(&session.status));
    let names: BTreeSet<&str> = live.filter(is_host).map(|session| session.image.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let (image, is) = if names.len() == 1 { ("image", "shows") } else { ("images", "show") };
    let what = format!("{image} {} {is} the host's own system, because no such image is imported", names.join(", "));
    (!names.is_empty()).then(|| format!("{what}; make it with scripts/images, or name the image {HOST:?}"))
}

fn table(sessions: &[SessionView], now: SystemTime, style: Style) -> String {
    let mut table =
        Table::new(&["SESSION", "NAME", "IMAGE", "USER", "STATUS", "AGE", "EXPIRES", "WORKSPACE", "CWD", "LABELS"]);
    for session in sessions {
        let colour = match session.status {
            SessionStatus::Running => Colour::Green,
            SessionStatus::Creating | SessionStatus::Paused | SessionStatus::Stopped | SessionStatus::PoolIdle => {
                Colour::Yellow
            }
            SessionStatus::Crashed => Colour::Red,
            SessionStatus::Destroying | SessionStatus::Destroyed | SessionStatus::Expired => Colour::Dim,
        };
        let labels: Vec<String> =
            session.labels.iter().map(|(key, value)| escape_control(&format!("{key}={value}"))).collect();
        let workspace = session.workspace_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let has_end = !ENDED.contains(&session.status) && session.status != SessionStatus::Stopped;
        let expires = if has_end { until(&session.expires_at, now) } else { String::new() };
        table.row(vec![
            Cell::new(session.id.as_str()),
            Cell::new(session.name.as_ref().map(ToString::to_string).unwrap_or_default()),
            Cell::new(escape_control(&session.image)),
            Cell::new(session.user.name()),
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

    fn a_session() -> SessionView {
        let text = r#"{"id":"7183cb80-d6c","name":"web","image":"python","runtime":"local","status":"running","cwd":"/work\nspace",
            "labels":{"a":"b"},"resources":{"cpus":1.0,"memory_mb":1,"pids":1,"disk_mb":1},"network":"none","writable_root":true,"user":"root",
            "acquire_source":"cold","created_at":"2026-01-02T03:04:00Z","expires_at":"2026-01-02T03:34:05Z","last_activity":""}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn images_that_are_the_hosts_own_system_are_told_once() {
        let image = |name: &str, source: &str| ImageView {
            name: name.into(),
            runtime: shared_protocol::RuntimeName::local(),
            source: source.into(),
            default: false,
        };
        let named = |name: &str| SessionView { image: name.into(), ..a_session() };
        let ended = SessionView { status: SessionStatus::Destroyed, ..named("node") };
        let sessions = [named("python"), named("base"), named("python"), named("mine"), named("host"), ended];
        let images = ["base", "python", "node", "host"].map(|name| image(name, "host"));
        let note = host_note(&sessions, &images).unwrap();
        assert!(note.starts_with("images base, python show the host's own system"), "{note}");
        assert!(host_note(&sessions[..1], &images).unwrap().starts_with("image python shows "));
        assert_eq!(host_note(&sessions[3..], &images), None);
        assert_eq!(host_note(&sessions[..1], &[image("python", "python")]), None);
    }

    #[test]
    fn a_session_is_a_line() {
        let session = a_session();
        let now = humantime::parse_rfc3339("2026-01-02T03:04:05Z").unwrap();
        let expected = "\
SESSION       NAME  IMAGE   USER  STATUS   AGE  EXPIRES  WORKSPACE  CWD           LABELS
7183cb80-d6c  web   python  root  running  5s   in 30m              /work\\nspace  a=b
";
        assert_eq!(table(&[session], now, Style::plain()), expected);
    }
}

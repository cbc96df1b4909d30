//! `cove stats`: shows what sessions use, again and again.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::StreamExt as _;
use indicatif::BinaryBytes;
use serde::Serialize;
use shared_protocol::api::{SessionStatus, SessionView, StatsView};
use shared_protocol::{SessionId, SessionName};

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::interrupt::Interrupts;
use super::output::{Style, print, print_json};
use super::session_ref::SessionRef;
use super::table::{Cell, Table};
use crate::client::Client;

const EXAMPLES: &str = "\
Examples:
  cove stats
  cove stats web
  cove stats --no-stream --json

CPU is measured over a second: 100% is one processor. Ctrl-C ends it.";

/// The time between two measurements.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many sessions are asked at the same time.
const AT_ONCE: usize = 8;
/// Moves the cursor to the upper left corner; then the rest of each line, and at the end of the screen, is cleared.
const HOME: &str = "\x1b[H";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_ALL: &str = "\x1b[2J";

/// Show what sessions use
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct StatsArgs {
    /// Ids or names of sessions (default: all that run)
    #[arg(value_name = "SESSION")]
    sessions: Vec<SessionRef>,
    /// Measure once and exit
    #[arg(long)]
    no_stream: bool,
    /// Print a JSON array
    #[arg(long, requires = "no_stream")]
    json: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Usage {
    id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<SessionName>,
    /// The share of one processor. It takes two measurements, so the first one does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_percent: Option<f64>,
    #[serde(flatten)]
    stats: StatsView,
}

/// What was measured last of each session, from which the use of the processor is known.
#[derive(Default)]
struct Meter(HashMap<SessionId, (Instant, u64)>);

impl Meter {
    fn cpu_percent(&mut self, id: &SessionId, now: Instant, used_usec: u64) -> Option<f64> {
        let before = self.0.insert(id.clone(), (now, used_usec));
        let (then, used_before) = before?;
        let passed = now.saturating_duration_since(then).as_micros();
        (passed > 0).then(|| used_usec.saturating_sub(used_before) as f64 / passed as f64 * 100.0)
    }
}

pub async fn stats(args: StatsArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let mut interrupts = Interrupts::new()?;
    tokio::select! {
        result = show(&args, &client) => result.map(|()| 0),
        _ = interrupts.next() => {
            // The terminal has shown ^C, and the prompt belongs on a line of its own.
            if std::io::stdout().is_terminal() {
                print("\n")?;
            }
            Ok(0)
        }
    }
}

async fn show(args: &StatsArgs, client: &Client) -> Result<(), Failure> {
    let named = SessionRef::find_all(&args.sessions, client).await?;
    let mut meter = Meter::default();
    measure(client, &named, &mut meter).await?;
    let redraws = std::io::stdout().is_terminal() && !args.no_stream;
    if redraws {
        print(CLEAR_ALL)?;
    }
    loop {
        tokio::time::sleep(INTERVAL).await;
        let usages = measure(client, &named, &mut meter).await?;
        if args.json {
            return print_json(&usages);
        }
        let text = table(&usages, Style::for_stdout());
        print(&if redraws { redrawn(&text) } else { text })?;
        if args.no_stream {
            return Ok(());
        }
    }
}

/// Text that takes the place of what is on the screen, without flicker.
fn redrawn(text: &str) -> String {
    let mut drawn = HOME.to_owned();
    for line in text.lines() {
        let _ = write!(drawn, "{line}\x1b[K\r\n");
    }
    drawn + CLEAR_BELOW
}

async fn measure(client: &Client, named: &[SessionId], meter: &mut Meter) -> Result<Vec<Usage>, Failure> {
    let sessions: Vec<SessionView> = client.sessions(None, &[]).await?;
    let wanted = sessions.into_iter().filter(|session| match named.is_empty() {
        true => matches!(session.status, SessionStatus::Running | SessionStatus::Paused),
        false => named.contains(&session.id),
    });
    let asked = wanted.map(|session| async move { (client.stats(&session.id).await, session) });
    let mut answers = futures_util::stream::iter(asked).buffered(AT_ONCE);
    let mut usages = Vec::new();
    while let Some((answer, session)) = answers.next().await {
        // A session that has ended or was stopped meanwhile uses nothing.
        let Ok(stats) = answer else { continue };
        let cpu_percent = meter.cpu_percent(&session.id, Instant::now(), stats.cpu_usage_usec);
        usages.push(Usage { id: session.id, name: session.name, cpu_percent, stats });
    }
    Ok(usages)
}

fn table(usages: &[Usage], style: Style) -> String {
    let mut table = Table::new(&["SESSION", "NAME", "CPU", "MEMORY", "LIMIT", "MEM", "PIDS", "DISK"]);
    for Usage { id, name, cpu_percent, stats } in usages {
        let share = stats.memory_limit.filter(|limit| *limit > 0).map(|limit| stats.memory_bytes as f64 / limit as f64);
        table.row(vec![
            Cell::new(id.as_str()),
            Cell::new(name.as_ref().map(ToString::to_string).unwrap_or_default()),
            Cell::new(cpu_percent.map(|percent| format!("{percent:.1}%")).unwrap_or_default()),
            Cell::new(BinaryBytes(stats.memory_bytes).to_string()),
            Cell::new(stats.memory_limit.map(|limit| BinaryBytes(limit).to_string()).unwrap_or_default()),
            Cell::new(share.map(|share| format!("{:.1}%", share * 100.0)).unwrap_or_default()),
            Cell::new(stats.pids.to_string()),
            Cell::new(stats.disk_bytes.map(|bytes| BinaryBytes(bytes).to_string()).unwrap_or_default()),
        ]);
    }
    table.render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_the_processor_is_what_was_added_since_the_last_time() {
        let (mut meter, id) = (Meter::default(), SessionId::new("a").unwrap());
        let start = Instant::now();
        assert_eq!(meter.cpu_percent(&id, start, 500), None);
        assert_eq!(meter.cpu_percent(&id, start + Duration::from_secs(1), 500_500), Some(50.0));
        assert_eq!(
            meter.cpu_percent(&id, start + Duration::from_secs(2), 0),
            Some(0.0),
            "a sandbox that was started again"
        );
    }

    #[test]
    fn a_session_is_a_line() {
        let stats = StatsView {
            memory_bytes: 1 << 20,
            memory_limit: Some(2 << 20),
            cpu_usage_usec: 1,
            pids: 3,
            disk_bytes: None,
        };
        let usage = Usage { id: SessionId::new("7183cb80-d6c").unwrap(), name: None, cpu_percent: Some(12.34), stats };
        let expected = "\
SESSION       NAME  CPU    MEMORY    LIMIT     MEM    PIDS  DISK
7183cb80-d6c        12.3%  1.00 MiB  2.00 MiB  50.0%  3
";
        assert_eq!(table(&[usage], Style::plain()), expected);
        assert_eq!(redrawn("a\nb\n"), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
    }
}

//! Writes log lines to standard error from a thread of its own, so that a terminal or a pipe that nobody reads delays no request.
//! When the queue is full, lines are dropped and counted.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{LogConfig, LogFormat};

/// The most lines that wait to be written.
const QUEUE_LINES: usize = 8192;
/// The longest wait for the last lines when the program ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Keeps the log running. Dropping it writes the lines that wait, within a time limit.
pub struct Logs {
    queue: Queue,
}

#[derive(Clone)]
struct Queue {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Starts the program's log. `None` if there is one already.
pub fn start(config: &LogConfig) -> Option<Logs> {
    let (lines, receiver) = sync_channel(QUEUE_LINES);
    let dropped = Arc::new(AtomicU64::new(0));
    let queue = Queue { lines, dropped: dropped.clone() };
    let filter = EnvFilter::try_new(&config.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    // The MCP library logs whole messages, and they have commands and their output in them.
    let filter = match "rmcp=off".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(queue.clone());
    let installed = match config.format {
        LogFormat::Text => builder.with_ansi(false).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_target(false).try_init(),
    };
    installed.ok()?;
    std::thread::Builder::new().name("log".into()).spawn(move || write_lines(&receiver, &dropped)).ok()?;
    Some(Logs { queue })
}

fn write_lines(lines: &Receiver<Message>, dropped: &AtomicU64) {
    const LOOK_FOR_DROPPED: Duration = Duration::from_secs(1);
    let mut stderr = std::io::stderr();
    loop {
        let message = lines.recv_timeout(LOOK_FOR_DROPPED);
        let count = dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(stderr, "{count} log lines were dropped: standard error is read too slowly");
        }
        match message {
            Ok(Message::Line(line)) => drop(stderr.write_all(&line)),
            Ok(Message::Flush(done)) => drop(done.try_send(())),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let (done, flushed) = sync_channel(1);
        if self.queue.lines.try_send(Message::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// One line, which goes to the queue when it is complete.
struct Line {
    queue: Queue,
    bytes: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter(Line { queue: self.clone(), bytes: Vec::new() })
    }
}

pub struct LineWriter(Line);

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = Message::Line(std::mem::take(&mut self.bytes));
        if self.queue.lines.try_send(line).is_err() {
            self.queue.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_nobody_reads_drops_lines_and_delays_nobody() {
        let (lines, receiver) = sync_channel(2);
        let queue = Queue { lines, dropped: Arc::new(AtomicU64::new(0)) };
        for _ in 0..5 {
            queue.make_writer().write_all(b"line\n").unwrap();
        }
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 3);
        assert!(matches!(receiver.try_recv(), Ok(Message::Line(line)) if line == b"line\n"));
    }
}

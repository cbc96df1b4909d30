//! How far a copy is, on one line of a terminal that is written over and over.

use std::io::Write;
use std::time::{Duration, Instant};

/// No oftener than an eye can follow.
const INTERVAL: Duration = Duration::from_millis(100);
/// Before this nobody knows a rate, and a copy that is done by then needs no bar.
const FIRST: Duration = Duration::from_millis(300);
const BAR: usize = 24;
const FALLBACK_WIDTH: usize = 80;

/// Prints nothing where nobody watches.
pub struct Meter {
    shown: bool,
    total: Option<u64>,
    done: u64,
    began: Instant,
    drawn: Option<Instant>,
}

impl Meter {
    pub fn new(shown: bool, total: Option<u64>) -> Self {
        Self { shown, total, done: 0, began: Instant::now(), drawn: None }
    }

    pub fn total(&self) -> Option<u64> {
        self.total
    }

    pub fn add(&mut self, bytes: u64) {
        self.reached(self.done.saturating_add(bytes));
    }

    pub fn reached(&mut self, done: u64) {
        self.done = done;
        let due = match self.drawn {
            None => self.began.elapsed() >= FIRST,
            Some(drawn) => drawn.elapsed() >= INTERVAL,
        };
        if self.shown && due {
            self.draw();
            self.drawn = Some(Instant::now());
        }
    }

    fn draw(&self) {
        let width = terminal_size::terminal_size_of(std::io::stderr()).map_or(FALLBACK_WIDTH, |(w, _)| w.0.into());
        let line = line(self.done, self.total, self.began.elapsed(), width);
        // To the line's beginning, and clear to its end.
        let _ = write!(std::io::stderr().lock(), "\r{line}\x1b[K");
    }

    /// The last state stays to be read, where anything was drawn at all.
    pub fn finish(&mut self) {
        if self.drawn.take().is_some() {
            self.draw();
            let _ = writeln!(std::io::stderr().lock());
        }
        self.shown = false;
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.finish();
    }
}

/// One character short of the width: terminals wrap at the last column.
fn line(done: u64, total: Option<u64>, elapsed: Duration, width: usize) -> String {
    let seconds = elapsed.as_secs_f64();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to u64 saturates, and is shown"
    )]
    let rate = if seconds > 0.0 { (done as f64 / seconds) as u64 } else { 0 };
    let speed = format!("{}/s", bytes(rate));
    let full = match total.filter(|total| *total >= done && *total > 0) {
        None => format!("{}  {speed}  {}", bytes(done), clock(elapsed.as_secs())),
        Some(total) => {
            let filled = usize::try_from(u128::from(done) * BAR as u128 / u128::from(total)).unwrap_or(BAR);
            let bar = format!("[{}{}]", "#".repeat(filled), "-".repeat(BAR - filled));
            let percent = u128::from(done) * 100 / u128::from(total);
            let left = if rate == 0 { "--:--".to_owned() } else { clock((total - done).div_ceil(rate)) };
            format!("{bar} {percent:>3}%  {} of {}  {speed}  ETA {left}", bytes(done), bytes(total))
        }
    };
    full.chars().take(width.saturating_sub(1)).collect()
}

/// With one decimal place in its largest unit.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn sizes_are_short_and_change_units_where_they_should() {
        for (count, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (MIB - 1, "1.0 MiB"),
            (1536 * MIB, "1.5 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(bytes(count), shown);
        }
    }

    #[test]
    fn a_copy_of_known_size_shows_how_far_it_is_and_when_it_ends() {
        let shown = line(25 * MIB, Some(100 * MIB), Duration::from_secs(5), 200);
        assert_eq!(shown, "[######------------------]  25%  25.0 MiB of 100.0 MiB  5.0 MiB/s  ETA 0:15");
    }

    #[test]
    fn a_copy_of_unknown_size_shows_what_has_come() {
        assert_eq!(line(25 * MIB, None, Duration::from_secs(5), 200), "25.0 MiB  5.0 MiB/s  0:05");
        // A file that grew meanwhile.
        assert_eq!(line(25 * MIB, Some(MIB), Duration::from_secs(5), 200), "25.0 MiB  5.0 MiB/s  0:05");
        assert!(line(0, Some(MIB), Duration::ZERO, 200).ends_with("ETA --:--"));
    }

    #[test]
    fn the_line_never_reaches_the_last_column() {
        for width in [0, 1, 10, 80] {
            let shown = line(u64::MAX / 2, Some(u64::MAX), Duration::from_secs(1), width);
            assert!(shown.chars().count() <= width.saturating_sub(1), "{width}");
        }
    }

    #[test]
    fn hours_are_shown_only_where_there_are_some() {
        assert_eq!((clock(59), clock(61), clock(3661)), ("0:59".into(), "1:01".into(), "1:01:01".into()));
    }
}

//! Shows how far a long transfer is: a bar on one line of standard error, drawn by indicatif.
//!
//! Nothing is drawn where nobody watches, and nothing for a transfer that is done before a bar would help. When a transfer
//! ends, in whatever way, the last state stays on the screen.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// No bar is drawn before this: a short transfer needs none, and its rate is not known yet.
const DELAY: Duration = Duration::from_millis(300);
const REDRAWS_PER_SECOND: u8 = 10;

const WITH_TOTAL: &str =
    "[{bar:24}] {percent:>3}%  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  ETA {eta}";
const WITHOUT_TOTAL: &str = "{binary_bytes}  {binary_bytes_per_sec}  {elapsed}";

/// Whether somebody watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    Shown,
    Hidden,
}

pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    delay: Duration,
    /// Where to draw, until drawing begins. `None` from then on, and where nobody watches.
    target: Option<ProgressDrawTarget>,
}

impl Progress {
    /// `total` is in bytes, where it is known.
    pub fn new(visibility: Visibility, total: Option<u64>) -> Self {
        let target = match visibility {
            Visibility::Shown => Some(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND)),
            Visibility::Hidden => None,
        };
        Self::with_target(target, DELAY, total)
    }

    fn with_target(target: Option<ProgressDrawTarget>, delay: Duration, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        bar.set_style(style(if total.is_some() { WITH_TOTAL } else { WITHOUT_TOTAL }));
        Self { bar, began: Instant::now(), delay, target }
    }

    pub fn total(&self) -> Option<u64> {
        self.bar.length()
    }

    /// So many bytes more.
    pub fn add(&mut self, bytes: u64) {
        self.set(self.bar.position().saturating_add(bytes));
    }

    /// So many bytes in all.
    pub fn set(&mut self, bytes: u64) {
        if self.bar.length().is_some_and(|total| bytes > total) {
            // A file that grew meanwhile, or the headers of an archive: the total was too small.
            self.bar.unset_length();
            self.bar.set_style(style(WITHOUT_TOTAL));
        }
        if self.began.elapsed() >= self.delay
            && let Some(target) = self.target.take()
        {
            self.bar.set_draw_target(target);
        }
        self.bar.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.abandon();
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("##-")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps the lines it was asked to show.
    #[derive(Debug, Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl TermLike for Recorder {
        fn width(&self) -> u16 {
            120
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push(text.trim_end().to_owned());
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    const MIB: u64 = 1 << 20;

    /// The last line that was drawn, after `steps` were reported and the transfer ended.
    fn last_line(delay: Duration, total: Option<u64>, steps: &[u64]) -> Option<String> {
        let recorder = Recorder::default();
        let target = ProgressDrawTarget::term_like(Box::new(recorder.clone()));
        let mut progress = Progress::with_target(Some(target), delay, total);
        steps.iter().for_each(|bytes| progress.add(*bytes));
        drop(progress);
        let lines = recorder.0.lock().unwrap();
        lines.iter().rfind(|line| !line.is_empty()).cloned()
    }

    #[test]
    fn a_transfer_of_known_size_leaves_how_far_it_came() {
        let line = last_line(Duration::ZERO, Some(100 * MIB), &[20 * MIB, 5 * MIB]).unwrap();
        assert!(line.starts_with("[#") && line.contains("-]  25%  25.00 MiB of 100.00 MiB"), "{line}");
    }

    #[test]
    fn a_transfer_that_is_larger_than_its_total_goes_on_without_one() {
        let line = last_line(Duration::ZERO, Some(MIB), &[25 * MIB]).unwrap();
        assert!(line.starts_with("25.00 MiB") && !line.contains('%'), "{line}");
    }

    #[test]
    fn a_short_transfer_draws_nothing() {
        assert_eq!(last_line(Duration::MAX, Some(MIB), &[MIB]), None);
    }
}

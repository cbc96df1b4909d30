//! Samples, and how they are printed.

use std::time::Duration;

/// The median and the slow end of many samples.
pub struct Times {
    pub p50: Duration,
    pub p99: Duration,
}

impl Times {
    pub fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |percent: usize| samples[(samples.len() - 1) * percent / 100];
        Self { p50: at(50), p99: at(99) }
    }
}

/// Prints a row of a table: a name, its times, and how many times as long the compared times are.
pub fn row(name: &str, times: &Times, compared: Option<&Times>) {
    let micros = |d: Duration| format!("{:.0} µs", d.as_secs_f64() * 1e6);
    let ratio = compared.map(|c| format!("{:.2}×", c.p50.as_secs_f64() / times.p50.as_secs_f64())).unwrap_or_default();
    println!("{name:<44} {:>9} {:>9} {ratio:>9}", micros(times.p50), micros(times.p99));
}

pub fn megabytes_per_second(bytes: u64, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure to be read by people")]
    let bytes = bytes as f64;
    bytes / 1e6 / took.as_secs_f64()
}

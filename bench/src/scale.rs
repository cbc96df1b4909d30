//! The amount of work of each benchmark.

use std::time::Duration;

/// The number of samples of each kind, and the number of streamed bytes.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// The number of calls before the first measured one.
    pub warm_up: usize,
    pub execs: usize,
    /// The number of started programs: slower than an exec, so fewer samples.
    pub programs: usize,
    /// The number of created sandboxes, which are slower still.
    pub creates: usize,
    /// The number of calls of the container engine's own client: each takes a good part of a second.
    pub engine_calls: usize,
    /// The number of commands beside an idle session, for each kind of bomb.
    pub idle_execs: usize,
    /// The number of commands beside a bomb. A bomb that ends earlier is started again.
    pub bomb_execs: usize,
    pub bomb_timeout: Duration,
    pub claims: usize,
    pub streamed_bytes: u64,
    /// What is on the disk of a session that is copied.
    pub held_bytes: u64,
}

impl Scale {
    /// The scale for published figures.
    pub const FULL: Self = Self {
        warm_up: 200,
        execs: 5000,
        programs: 1000,
        creates: 50,
        engine_calls: 50,
        // With this many, the p99 is not simply the worst sample.
        idle_execs: 2000,
        bomb_execs: 2000,
        bomb_timeout: Duration::from_secs(8),
        claims: 200,
        streamed_bytes: 1 << 30,
        held_bytes: 2 << 30,
    };

    /// The scale for tests: every step once or a few times, in seconds. The times mean nothing.
    pub const SHORT: Self = Self {
        warm_up: 2,
        execs: 20,
        programs: 5,
        creates: 2,
        engine_calls: 2,
        idle_execs: 5,
        bomb_execs: 1,
        bomb_timeout: Duration::from_millis(300),
        claims: 3,
        // This is more than the kernel and the daemon buffer, so that it arrives in many pieces.
        streamed_bytes: 32 << 20,
        held_bytes: 8 << 20,
    };

    /// A command that prints the bytes to stream. JSON escapes none of them.
    pub fn print_command(&self) -> String {
        format!("head -c {} /dev/zero | tr '\\0' x", self.streamed_bytes)
    }

    /// The number of streamed bytes, for a table.
    pub fn streamed(&self) -> String {
        match self.streamed_bytes >> 30 {
            0 => format!("{} MiB", self.streamed_bytes >> 20),
            gigabytes => format!("{gigabytes} GiB"),
        }
    }
}

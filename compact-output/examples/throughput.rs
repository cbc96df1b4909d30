//! Measures throughput and memory: `cargo run --release -p compact-output --example throughput`.

use std::time::Instant;

use compact_output::{CommandHint, Compactor, Options};

const TOTAL_BYTES: usize = 512 * 1024 * 1024;

fn main() {
    let log: String = (0..4000)
        .map(|n| {
            format!(
                "2026-01-05 10:{:02}:{:02},123 INFO [web] GET /api/orders/{} 200 in {} ms\n",
                n / 60 % 60,
                n % 60,
                n * 7,
                n % 90
            )
        })
        .collect();
    let code: String =
        (0..4000).map(|n| format!("    let value_{n} = compute(\"{}\", {n});\n", "abc".repeat(n % 9))).collect();
    let bars: String = (0..4000).map(|n| format!("\r\x1b[32m{:3}%\x1b[0m [{}]", n / 40, "#".repeat(n / 100))).collect();
    let wide: String = (0..4000).map(|n| format!("✓ größe {n} — 漢字\n")).collect();
    for (name, text) in [("plain log", log), ("source code", code), ("progress bar", bars), ("not ASCII", wide)] {
        let mut compactor =
            Compactor::new(CommandHint::of("./app"), Options { max_tokens: Some(8000), max_bytes: None });
        let (start, mut sent, mut held) = (Instant::now(), 0, 0);
        while sent < TOTAL_BYTES {
            for chunk in text.as_bytes().chunks(32 * 1024) {
                compactor.push(chunk);
                sent += chunk.len();
            }
            held = held.max(compactor.held_bytes());
        }
        let compact = compactor.finish(Some(0));
        let rate = sent as f64 / 1e6 / start.elapsed().as_secs_f64();
        println!("{name}: {rate:.0} MB/s, at most {} KiB held, {} bytes of text", held / 1024, compact.text.len());
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM is not known"));
}

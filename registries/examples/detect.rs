//! Prints what this machine's package managers download from: `cargo run -p registries --example detect`. With `--json`, as the
//! daemon keeps it.

use registries::{CommandFetch, LocalTools, detect};

fn main() {
    let start = std::time::Instant::now();
    let detected = detect(&LocalTools, &CommandFetch::new(&LocalTools));
    if std::env::args().any(|argument| argument == "--json") {
        println!("{}", serde_json::to_string_pretty(&detected).unwrap_or_default());
        return;
    }
    for source in &detected.found {
        let private = if source.is_private { " private" } else { "" };
        println!(
            "{:5} {} {:?} {}{private}: {}",
            source.tool, source.host, source.ports, source.url_scheme, source.because
        );
    }
    for problem in &detected.problems {
        println!("{:5} {:?}: {}", problem.tool, problem.kind, problem.message);
    }
    println!("{} rules in {:.1?}", detected.rules().len(), start.elapsed());
}

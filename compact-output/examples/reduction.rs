//! Prints how many tokens the compact view saves for each program of the corpus:
//! `cargo run --release -p compact-output --example reduction`. With the name of an output, prints its compact view.

#[allow(dead_code, reason = "the example needs no facts")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use compact_output::Options;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let cases = support::corpus();
    if !wanted.is_empty() {
        for case in cases.iter().filter(|case| wanted.contains(&case.name)) {
            println!(
                "##### {} ({}), exit {}\n{}",
                case.name,
                case.command,
                case.exit_code,
                case.compact(Options::default()).text
            );
        }
        return;
    }
    let tokenizer = tiktoken_rs::o200k_base().expect("the tokenizer carries its vocabulary");
    let count = |text: &str| tokenizer.encode_ordinary(text).len();
    let mut programs: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for case in &cases {
        let row = programs.entry(&case.program).or_default();
        row[0] += 1;
        row[1] += count(&String::from_utf8_lossy(&case.raw));
        row[2] += count(&case.compact(Options::default()).text);
    }
    let mut rows: Vec<(&str, [usize; 3])> = programs.into_iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row[1]));
    let all = rows.iter().fold([0; 3], |sum, (_, row)| [sum[0] + row[0], sum[1] + row[1], sum[2] + row[2]]);
    println!("| program | outputs | tokens | compact | saved |\n|---|---:|---:|---:|---:|");
    for (program, [outputs, before, after]) in rows.into_iter().chain([("**all**", all)]) {
        let saved = 100 - (after * 100 + before / 2) / before.max(1);
        println!("| {program} | {outputs} | {before} | {after} | {saved} % |");
    }
}

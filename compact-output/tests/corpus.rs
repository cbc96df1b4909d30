//! The compact view of real outputs: no fact is lost, and most tokens are gone.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::BTreeMap;

use compact_output::{Options, estimate_tokens};
use support::corpus;

#[test]
fn no_fact_is_lost() {
    let mut lost = Vec::new();
    for case in corpus() {
        let text = case.compact(Options::default()).text;
        for fact in case.facts.iter().filter(|fact| !text.contains(fact.as_str())) {
            lost.push(format!("{}: {fact}", case.name));
        }
    }
    assert!(lost.is_empty(), "{} facts are lost:\n{}", lost.len(), lost.join("\n"));
}

#[test]
fn the_corpus_has_many_outputs_and_each_has_a_fact() {
    let cases = corpus();
    assert!(cases.len() >= 120, "{} outputs", cases.len());
    assert!(cases.iter().all(|case| !case.facts.is_empty()));
}

#[test]
fn most_tokens_are_gone_by_a_real_tokenizer() {
    let tokenizer = tiktoken_rs::o200k_base().unwrap();
    let count = |text: &str| tokenizer.encode_ordinary(text).len();
    let mut programs: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for case in corpus() {
        let (before, after) = programs.entry(case.program.clone()).or_default();
        *before += count(&String::from_utf8_lossy(&case.raw));
        *after += count(&case.compact(Options::default()).text);
    }
    let (before, after) = programs.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(after * 10 <= before * 4, "{after} of {before} tokens are left");
    let mut largest: Vec<_> = programs.into_iter().collect();
    largest.sort_by_key(|(_, (before, _))| std::cmp::Reverse(*before));
    for (program, (before, after)) in largest.into_iter().take(5) {
        assert!(after * 10 <= before * 2, "{program}: {after} of {before} tokens are left");
    }
}

#[test]
fn the_estimate_is_near_a_real_tokenizer() {
    let tokenizer = tiktoken_rs::o200k_base().unwrap();
    let (mut estimated, mut real) = (0, 0);
    for case in corpus() {
        let text = case.compact(Options::default()).text;
        estimated += estimate_tokens(&text);
        real += tokenizer.encode_ordinary(&text).len() as u64;
    }
    assert!(estimated * 5 >= real * 4 && estimated * 5 <= real * 6, "estimated {estimated}, real {real}");
}

#[test]
fn a_view_of_a_failed_run_is_never_empty() {
    for case in corpus().iter().filter(|case| case.exit_code != 0) {
        assert!(!case.compact(Options::default()).text.trim().is_empty(), "{}", case.name);
    }
}

#[test]
fn a_limit_holds_for_every_output() {
    for case in corpus() {
        let compact = case.compact(Options { max_tokens: Some(500), max_bytes: None });
        assert!(compact.estimated_tokens_kept <= 500, "{}: {}", case.name, compact.estimated_tokens_kept);
        assert_eq!(compact.estimated_tokens_kept, estimate_tokens(&compact.text), "{}", case.name);
        assert_eq!(compact.is_cut, compact.text.contains(" left out\n"), "{}", case.name);
    }
}

#[test]
fn a_limit_of_four_thousand_tokens_loses_no_fact_of_a_failed_run() {
    let mut lost = Vec::new();
    for case in corpus().iter().filter(|case| case.exit_code != 0) {
        let text = case.compact(Options { max_tokens: Some(4000), max_bytes: None }).text;
        lost.extend(
            case.facts.iter().filter(|fact| !text.contains(fact.as_str())).map(|fact| format!("{}: {fact}", case.name)),
        );
    }
    assert!(lost.is_empty(), "{} facts are lost:\n{}", lost.len(), lost.join("\n"));
}

//! Any bytes in any pieces: no panic, one result, a bound on memory and on the result.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use compact_output::{CommandHint, Compact, Compactor, MAX_HELD_BYTES, Options};
use proptest::prelude::*;

const COMMANDS: &[&str] = &[
    "",
    "pytest",
    "python3 -m unittest -v",
    "cargo test",
    "go test -v ./...",
    "npx jest",
    "gcc -c a.c",
    "npx eslint .",
    "pip install x",
    "make",
    "git status",
    "git diff",
    "git log -p",
    "ls -la",
    "find .",
    "tree",
    "grep -rn x",
    "curl -v x",
    "psql -c x",
    "cat x",
];

fn compact(command: &str, chunks: &[&[u8]], options: Options) -> Compact {
    let mut compactor = Compactor::new(CommandHint::of(command), options);
    for chunk in chunks {
        compactor.push(chunk);
        assert!(compactor.held_bytes() < MAX_HELD_BYTES);
    }
    compactor.finish(Some(1))
}

/// Lines that views look for, in any order.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let pieces = [
        "=== test session starts ===",
        "=== FAILURES ===",
        "____ test_x ____",
        "E   boom",
        "FAILED a.py::x - y",
        "1 failed in 0.1s",
        "running 2 tests",
        "test a ... ok",
        "test b ... FAILED",
        "failures:",
        "---- b stdout ----",
        "test result: FAILED. 1 passed",
        "error[E1]: x",
        " --> a.rs:1:1",
        "warning: y",
        "=== RUN   TestA",
        "--- FAIL: TestA (0s)",
        "--- PASS: TestA (0s)",
        "panic: x",
        "FAIL\tx\t0.1s",
        "PASS a.js",
        "  ● x",
        "    > 7 | x",
        "Tests: 1 failed",
        "a.c:1:2: error: x",
        "a.c:1:2: note: x",
        "   1 | x",
        "     | ^",
        "Collecting x",
        "npm error x",
        "make: *** [x] Error 1",
        "diff --git a/x b/x",
        "@@ -1 +1 @@",
        "-a",
        "+b",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "Author: A <b>",
        "    title",
        "-rw-r--r-- 1 u u 12 Jan  5 10:00 a.txt",
        "./a/b.rs",
        "a/b.rs:1:x",
        "{",
        "  \"a\": 1,",
        "}",
        " a | b ",
        "----+----",
        "2026-01-05 10:00:01 INFO x",
        "\x1b[2A\x1b[K",
        "50%\r",
        "",
        "Traceback (most recent call last):",
        "  File \"/usr/lib/python3/x.py\", line 1, in f",
        "    at f (node:internal/x)",
        "é漢\u{1f600}",
        "\u{fffd}",
    ];
    prop::collection::vec((prop::sample::select(pieces.to_vec()), any::<bool>()), 0..80).prop_map(|lines| {
        lines
            .into_iter()
            .flat_map(|(line, is_ended)| [line, if is_ended { "\n" } else { " " }].concat().into_bytes())
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_result_does_not_depend_on_the_chunks(
        bytes in prop_oneof![lines(), prop::collection::vec(any::<u8>(), 0..2000)],
        cut in 1usize..40,
        command in prop::sample::select(COMMANDS.to_vec()),
    ) {
        let split: Vec<&[u8]> = bytes.chunks(cut).collect();
        let whole = compact(command, &[&bytes], Options::default());
        prop_assert_eq!(&whole, &compact(command, &split, Options::default()));
        prop_assert_eq!(whole.original_bytes, bytes.len() as u64);
        prop_assert_eq!(whole.kept_bytes, whole.text.len() as u64);
    }

    #[test]
    fn the_limit_holds(bytes in lines(), command in prop::sample::select(COMMANDS.to_vec()), tokens in 0usize..400, limit in 0usize..3000) {
        let result = compact(command, &[&bytes], Options { max_tokens: Some(tokens), max_bytes: Some(limit) });
        prop_assert!(result.estimated_tokens_kept <= tokens.max(128) as u64);
        prop_assert!(result.text.len() <= limit.max(1024));
    }

    #[test]
    fn a_failure_of_an_unknown_program_is_kept(before in lines(), after in lines()) {
        // A cursor that moves up may overwrite the line, as it does on a screen.
        let still = |bytes: Vec<u8>| bytes.into_iter().filter(|byte| !matches!(byte, 0x1b | b'\r')).collect::<Vec<u8>>();
        let bytes = [&still(before)[..], b"\n\nqueue: fatal error 4711 in step nine\n", &still(after)[..], b"\n"].concat();
        let text = compact("./run.sh", &[&bytes], Options::default()).text;
        prop_assert!(text.contains("queue: fatal error 4711 in step nine"), "{}\n==>\n{text}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn memory_has_a_bound_whatever_comes() {
    let long = vec![b'x'; 1 << 20];
    let wide: Vec<u8> = "漢".bytes().cycle().take(3 << 18).collect();
    let errors: Vec<u8> =
        (0..20_000).flat_map(|n| format!("error {n}: something is wrong with part {n}\n").into_bytes()).collect();
    let numbers: Vec<u8> = (0..30_000).flat_map(|n| format!("{n}\n{}\n", n * 7919).into_bytes()).collect();
    let failed: Vec<u8> = (0..20_000)
        .flat_map(|n| {
            format!("test t{n} ... FAILED\ntests/a.py::t{n} FAILED\nx{n} (a.b) ... FAIL\n  ● t{n}\n").into_bytes()
        })
        .collect();
    let short = b"a\nb\n".repeat(30_000);
    for command in COMMANDS {
        // What views do not hold is the same for all of them.
        let generic = [&long, &wide, &numbers, &short].into_iter().filter(|_| command.is_empty());
        for bytes in [&errors, &failed].into_iter().chain(generic) {
            let mut compactor = Compactor::new(CommandHint::of(command), Options::default());
            for _ in 0..2 {
                for chunk in bytes.chunks(65_536) {
                    compactor.push(chunk);
                }
                let held = compactor.held_bytes();
                assert!(held < 4 << 20, "{command}: {held} bytes");
            }
            let compact = compactor.finish(Some(1));
            assert!(compact.text.len() < 3 << 20, "{command}: {} bytes", compact.text.len());
        }
    }
}

#[test]
fn the_compact_view_of_a_log_stays_when_it_is_compacted_again() {
    for case in support::corpus().iter().filter(|case| case.program == "log") {
        let once = case.compact(Options::default()).text;
        let twice = compact(&case.command, &[once.as_bytes()], Options::default()).text;
        assert_eq!(once, twice, "{}", case.name);
    }
}

#[test]
fn a_result_that_is_the_same_is_not_changed() {
    let same = compact("cat x", &[b"a\nb\n"], Options::default());
    assert!(!same.is_changed && !same.is_cut);
    let folded = compact("cat x", &[b"a\n\n\n\nb\n"], Options::default());
    assert!(folded.is_changed && !folded.is_cut);
    let many: String = (0..9000).map(|n| format!("word{}\n", "x".repeat(n % 50))).collect();
    assert!(compact("cat x", &[many.as_bytes()], Options { max_tokens: Some(200), max_bytes: None }).is_cut);
}

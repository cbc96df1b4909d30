//! Tests of `local_tools`, with real programs and files.

use super::*;

fn sh(script: &str) -> Invocation {
    Invocation::new("sh", &["-c", script]).timeout(Duration::from_secs(10))
}

#[test]
fn a_program_gets_its_input_and_its_output_and_code_are_returned() {
    let output = LocalTools.run(&sh("cat; echo problem >&2; pwd; exit 3").stdin(b"in ".to_vec())).unwrap();
    assert_eq!((output.code, output.stdout, output.stderr), (Some(3), b"in /\n".to_vec(), b"problem\n".to_vec()));
}

#[test]
fn a_missing_program_is_not_installed() {
    let result = LocalTools.run(&Invocation::new("cove-has-no-such-program", &[]));
    assert!(matches!(result, Err(RunError::NotInstalled)));
}

#[test]
fn a_program_that_hangs_is_killed_with_its_children() {
    let start = Instant::now();
    let result = LocalTools.run(&sh("sleep 1000 & sleep 1000").timeout(Duration::from_millis(200)));
    assert!(matches!(result, Err(RunError::TimedOut)));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_program_that_ends_does_not_wait_for_a_child_that_holds_its_output() {
    let start = Instant::now();
    let output = LocalTools.run(&sh("sleep 1000 & echo done")).unwrap();
    assert_eq!(output.stdout, b"done\n");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_program_that_prints_without_end_is_stopped() {
    assert!(matches!(LocalTools.run(&sh("exec cat /dev/zero")), Err(RunError::TooMuchOutput)));
}

#[test]
fn a_scratch_directory_is_empty_private_and_removed() {
    let output = LocalTools
        .run(&sh("ls -A \"$D\"; stat -c %a \"$D\"; touch \"$D/x\"; echo \"$D\"").scratch_variable("D"))
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (mode, path) = text.trim().split_once('\n').unwrap();
    assert_eq!(mode, "700");
    assert!(!Path::new(path).exists());
}

#[test]
fn only_small_text_files_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("text"), "text \u{e9}").unwrap();
    fs::write(path("binary"), b"a\0b").unwrap();
    fs::write(path("huge"), vec![b'a'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1]).unwrap();
    assert_eq!(LocalTools.read(&path("text")).unwrap(), "text \u{e9}");
    assert!(matches!(LocalTools.read(&path("binary")), Err(ReadError::NotText)));
    assert!(matches!(LocalTools.read(&path("huge")), Err(ReadError::TooLarge)));
    assert!(matches!(LocalTools.read(&path("missing")), Err(ReadError::Missing)));
    assert!(matches!(LocalTools.read(directory.path()), Err(ReadError::NotText)));
    assert_eq!(LocalTools.list(directory.path()), [path("binary"), path("huge"), path("text")]);
}

#[test]
fn an_address_resolves_to_itself() {
    assert_eq!(LocalTools.resolve("10.1.2.3"), ["10.1.2.3".parse::<IpAddr>().unwrap()]);
}

//! Programs that a command leaves behind have the same user as every later command of the session. They get no hold of what
//! belongs to one exec or one shell: its output, its command, its variables, its saved state, and what the runner knows of it.

use std::process::Command;
use std::time::Duration;

use e2e::{Ask as _, DEADLINE, MemoryCgroup, Runner, SANDBOX_USER, ask, run, skipped, wait_until};
use shared_protocol::runner::{OpenShellRequest, OutcomeKind, ShellKind};

/// Reads and poisons whatever it can open in the directory of its own standard output, until the file `stop` appears. It
/// knows more about the runner than a test should: an attacker who has read the source would do this. The names are those
/// that the runner once used for every command.
const LEFTOVER: &str = r#"
my $out = readlink("/proc/self/fd/1");
my ($dir) = $out =~ m{^(.*)/[^/]*$};
my @guesses = map { "$dir/$_" } qw(c g i o x w0 w1 r b k t s);
my %texts;
open(SEEN, ">>", "seen");
open(HIT, ">>", "hit");
$_->autoflush(1) for *SEEN, *HIT;
until (-e "stop") {
    my $names = opendir(my $list, $dir) ? join(" ", readdir $list) : "";
    for my $path (@guesses, $out, "control", map { "$dir/$_" } split(/ /, $names)) {
        next if -d $path;
        if (sysopen(my $read, $path, 2048)) { sysread($read, my $text, 4096); print SEEN $text unless $texts{$text // ""}++ }
        sysopen(my $write, $path, 1 | 1024 | 2048) or next;
        syswrite($write, -p $path ? "poisoned\n" : "\ngit() { echo poisoned; }\numask 0022\n") and print HIT "$path\n";
    }
    open(READY, ">", "ready");
    select(undef, undef, undef, 0.001);
}
"#;

fn needs_root(name: &str) -> bool {
    if !e2e::is_root() {
        skipped(name, "commands of a runner that is not root have its user, and SECURITY.md promises nothing then");
    }
    !e2e::is_root()
}

/// A runner with such a program, which a command has left behind.
async fn with_leftover() -> Runner {
    let runner = Runner::start().await;
    for (name, text) in [("leftover.pl", LEFTOVER), ("control", "a file that it can open\n")] {
        let path = runner.workspace().join(name);
        std::fs::write(&path, text).expect("our own directory");
        std::os::unix::fs::chown(&path, Some(SANDBOX_USER), Some(SANDBOX_USER)).expect("root's right");
    }
    runner.sh("perl -MIO::Handle leftover.pl 2>errors & disown -a").await;
    wait_until("it has tried everything once", DEADLINE, async || {
        runner.workspace().join("ready").exists().then_some(())
    })
    .await;
    runner
}

/// Ends the program, and returns what it could read and where it could write.
async fn stop(runner: &Runner) -> (String, String) {
    runner.sh("touch stop").await;
    wait_until("it has ended", DEADLINE, async || {
        (!runner.descendants().iter().any(|process| process.name == "perl")).then_some(())
    })
    .await;
    let file = |name: &str| std::fs::read_to_string(runner.workspace().join(name)).expect("it wrote one");
    let (seen, hit) = (file("seen"), file("hit"));
    assert!(seen.contains("a file that it can open") && hit.contains("control\n"), "the control: {seen} {hit}");
    (seen, hit)
}

#[tokio::test]
async fn a_leftover_does_not_write_into_the_output_of_later_commands() {
    if needs_root("a_leftover_does_not_write_into_the_output_of_later_commands") {
        return;
    }
    let runner = with_leftover().await;
    for streams in 0..20 {
        let request = ask("echo clean; sleep 0.02");
        let done = runner.exec(if streams % 2 == 0 { request } else { request.split() }).await;
        assert_eq!(done.text(), "clean\n");
    }
    stop(&runner).await;
}

#[tokio::test]
async fn a_leftover_does_not_read_the_commands_variables_and_input_of_others() {
    if needs_root("a_leftover_does_not_read_the_commands_variables_and_input_of_others") {
        return;
    }
    let runner = with_leftover().await;
    for _ in 0..10 {
        let request = ask("sleep 0.02; : hidden-text; cat >/dev/null");
        runner.exec(request.env("TOKEN", "hidden-token").stdin("hidden-input")).await;
    }
    let variables = [("TOKEN".to_owned(), "hidden-opened".to_owned())];
    for (kind, name) in [(ShellKind::Exec, "other"), (ShellKind::Terminal, "person")] {
        let name = Some(name.to_owned().try_into().expect("a valid name"));
        runner
            .open_shell(&OpenShellRequest { name, kind, env: variables.clone().into(), ..OpenShellRequest::default() })
            .await;
    }
    assert_eq!(runner.exec(ask("echo $TOKEN").in_shell("other")).await.text(), "hidden-opened\n");
    let (seen, _) = stop(&runner).await;
    assert!(!seen.contains("hidden"), "{seen}");
}

#[tokio::test]
async fn a_leftover_does_not_change_the_state_that_a_new_shell_restores() {
    if needs_root("a_leftover_does_not_change_the_state_that_a_new_shell_restores") {
        return;
    }
    let runner = with_leftover().await;
    for round in 0..5 {
        runner.sh(&format!("x=kept-{round}; sleep 0.02")).await;
        // The run takes the time in which the state lies there.
        runner.run(run(["sleep", "0.05"])).await;
        runner.sh("kill -9 $$").await;
        assert_eq!(runner.output_of("echo $x; type -t git").await, format!("kept-{round}\nfile\n"));
    }
    stop(&runner).await;
}

#[tokio::test]
async fn every_file_of_a_command_is_gone_after_it() {
    let runner = Runner::start().await;
    let files = || {
        let mut found = Vec::new();
        let mut directories = vec![runner.scratch()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                    _ => found.push(entry.file_name().to_string_lossy().into_owned()),
                }
            }
        }
        found.sort();
        found
    };
    wait_until("the start's files are gone", DEADLINE, async || (files() == ["s", "t"]).then_some(())).await;
    for request in [ask("cat").stdin("x"), ask("true").split(), ask("true").tty(), ask("(").split(), ask("exit 3")] {
        runner.exec(request).await;
        wait_until("its files are gone", DEADLINE, async || (files() == ["s", "t"]).then_some(())).await;
    }
}

/// The directory in which the command's output once was, and the names that the runner once used in it.
const OLD_FILES: &str = "d=$(readlink /proc/self/fd/2); d=${d%/*}; set -- $d/g $d/w0 $d/w1";

#[tokio::test]
async fn a_command_that_kills_its_shell_has_run_once_whatever_it_clears() {
    let runner = Runner::start().await;
    let cmd = format!("echo run >>count; {OLD_FILES}; for f in \"$@\"; do : >$f; done 2>/dev/null; kill -9 $$");
    let done = runner.sh(&cmd).await.outcome;
    assert_eq!((done.kind, done.exit_code), (OutcomeKind::Signaled, 137), "{done:?}");
    assert_eq!(runner.output_of("cat count").await, "run\n");
}

#[tokio::test]
async fn what_a_command_can_grow_does_not_grow_in_the_runner() {
    // The limit ends a runner that reads without a bound, before it takes the memory of the machine.
    let cgroup = match MemoryCgroup::with_limit(256 << 20) {
        Ok(cgroup) => cgroup,
        Err(why) => return skipped("what_a_command_can_grow_does_not_grow_in_the_runner", &why),
    };
    let runner = Runner::builder().in_cgroup(&cgroup).start().await;
    for target in ["$d/g", "$d/w0", "$d/w1"] {
        let cmd = format!("x=kept; {OLD_FILES}; truncate -s 8G {target} 2>/dev/null; kill -9 $$");
        runner.sh(&cmd).await;
    }
    // The state of a shell with a large variable is too large to be restored.
    runner.sh("y=kept; x=$(head -c 3000000 /dev/zero | tr '\\0' x)").await;
    runner.sh("kill -9 $$").await;
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
    assert!(runner.peak_rss_kib() < 64 << 10, "{} KiB", runner.peak_rss_kib());
}

/// A small file system in memory. Dropping it removes it.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(bytes: u32) -> Result<Self, String> {
        let disk = Self(tempfile::tempdir().map_err(|e| e.to_string())?);
        let options = format!("size={bytes},mode=755");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(disk.0.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Ok(disk),
            failed => Err(format!("a tmpfs cannot be mounted: {failed:?}")),
        }
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).output();
    }
}

#[tokio::test]
async fn a_state_without_room_is_not_saved_and_everything_goes_on() {
    let (scratch, state) = match (SmallDisk::new(4 << 20), SmallDisk::new(1 << 20)) {
        (Ok(scratch), Ok(state)) => (scratch, state),
        (Err(why), _) | (_, Err(why)) => {
            return skipped("a_state_without_room_is_not_saved_and_everything_goes_on", &why);
        }
    };
    // Variables and not flags, so that a runner without a place for states can take the same test.
    let builder =
        Runner::builder().env("COVE_RUNNER_STATE", &state.path()).arg(&format!("--scratch={}", scratch.path()));
    let runner = builder.start().await;
    runner.sh("y=before").await;
    let large = runner.sh("y=after; x=$(head -c 8000000 /dev/zero | tr '\\0' x)").await;
    assert_eq!(large.code(), 0);
    let long = format!("echo {} | wc -c", "x".repeat(1 << 20));
    for _ in 0..3 {
        let done = runner.exec(ask(&long).timeout_ms(10_000)).await;
        assert_eq!((done.text().trim(), done.outcome.shell_restarted), ("1048577", false), "{:?}", done.outcome);
    }
    runner.open("other").await;
    assert_eq!(runner.exec(ask("echo ok").in_shell("other")).await.text(), "ok\n");
    runner.sh("kill -9 $$").await;
    assert_eq!(runner.output_of("echo $y").await, "before\n", "the last state that was saved");
    runner.sh("y=again").await;
    runner.run(run(["sleep", "0.1"])).await;
    runner.sh("kill -9 $$").await;
    assert_eq!(runner.output_of("echo $y").await, "again\n");
}

/// PTRACE_SEIZE with these options, by number, so that no package is needed. Writes the file `traced` when it traces. The
/// wait for it starts no program: a traced process that gets a signal, such as CHLD, stops for its tracer.
fn seize(pid: &str, options: u32, then: &str) -> Option<String> {
    let number = match std::env::consts::ARCH {
        "x86_64" => 101,
        "aarch64" => 117,
        _ => return None,
    };
    let attach = format!("syscall({number}, 0x4206, int($ARGV[0]), 0, {options}) == 0 or die $!");
    let tracer = format!("perl -e '{attach}; open(F, \">\", \"traced\"); close F; {then}' {pid}");
    Some(format!("rm -f traced; {tracer} >/dev/null 2>refused & until [ -s refused ] || [ -e traced ]; do :; done"))
}

/// PTRACE_O_TRACEEXIT: a killed process stops once more on its way out.
const TRACE_EXIT: u32 = 0x40;

/// A runner whose commands have its own user. With a runner that is root, nobody else can trace its shells.
async fn runner_that_can_be_traced() -> Runner {
    let builder = Runner::builder();
    if e2e::is_root() { builder.as_user(65534).start().await } else { builder.start().await }
}

#[tokio::test]
async fn a_traced_shell_that_dies_is_replaced() {
    let runner = runner_that_can_be_traced().await;
    let Some(traced) = seize("$$", 0, "sleep 1000") else {
        return skipped("a_traced_shell_that_dies_is_replaced", "the number of ptrace is not known here");
    };
    runner.sh("x=kept").await;
    let done = runner.sh(&format!("{traced}; kill -9 $$")).await.outcome;
    assert!(runner.workspace().join("traced").exists(), "the control: it is traced");
    assert_eq!((done.kind, done.signal), (OutcomeKind::Signaled, Some(9)), "{done:?}");
    assert_eq!(runner.output_of("echo $x").await, "kept\n");
}

#[tokio::test]
async fn a_traced_shell_does_not_outlive_a_timeout() {
    let runner = runner_that_can_be_traced().await;
    for options in [0, TRACE_EXIT] {
        let Some(traced) = seize("$$", options, "sleep 1000") else {
            return skipped("a_traced_shell_does_not_outlive_a_timeout", "the number of ptrace is not known here");
        };
        let cmd = format!("{traced}; trap '' INT TERM; while :; do :; done");
        let done = runner.exec_stream(ask(cmd).timeout_ms(2000)).await.finish_within(Duration::from_secs(15)).await;
        assert!(runner.workspace().join("traced").exists(), "the control: it is traced");
        assert_eq!(done.outcome.kind, OutcomeKind::TimedOut, "{:?}", done.outcome);
        assert_eq!(runner.output_of("echo ok").await, "ok\n");
    }
}

#[tokio::test]
async fn a_traced_run_does_not_outlive_a_timeout_or_its_own_end() {
    let runner = Runner::start().await;
    for options in [0, TRACE_EXIT] {
        let Some(traced) = seize("$$", options, "sleep 1000") else {
            let name = "a_traced_run_does_not_outlive_a_timeout_or_its_own_end";
            return skipped(name, "the number of ptrace is not known here");
        };
        let mut request = run(["sh", "-c", &format!("{traced}; trap '' TERM; while :; do :; done")]);
        request.timeout_ms = Some(2000);
        let stream = runner.run_stream(request).await.expect("it is started");
        assert_eq!(stream.finish_within(Duration::from_secs(15)).await.outcome.kind, OutcomeKind::TimedOut);
        assert!(runner.workspace().join("traced").exists(), "the control: it is traced");
    }
    // With the other options it has not ended: its tracer holds it until its time is up.
    let traced = seize("$$", 0, "sleep 1000").expect("its number is known");
    let ends = runner.run_stream(run(["sh", "-c", &format!("{traced}; exit 7")])).await.expect("it is started");
    let ended = ends.finish_within(Duration::from_secs(15)).await.outcome;
    assert_eq!((ended.kind, ended.exit_code), (OutcomeKind::Exited, 7), "{ended:?}");
}

#[tokio::test]
async fn a_tracer_that_lets_a_dead_process_go_is_left_alone() {
    let runner = Runner::start().await;
    let Some(traced) = seize("$$", 0, "waitpid($ARGV[0], 0); sleep 1000") else {
        return skipped("a_tracer_that_lets_a_dead_process_go_is_left_alone", "the number of ptrace is not known here");
    };
    let done = runner.run(run(["sh", "-c", &format!("{traced}; exit 7")])).await;
    assert_eq!((done.outcome.kind, done.code()), (OutcomeKind::Exited, 7));
    assert!(runner.workspace().join("traced").exists(), "the control: it was traced");
    // The time after which a tracer that does not let go is killed.
    runner.run(run(["sleep", "0.5"])).await;
    assert!(runner.descendants().iter().any(|process| process.name == "perl"));
}

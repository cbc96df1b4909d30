//! The separation of the sandbox's code and the runner. Each probe has a control: the same probe where it must succeed, so
//! that a broken probe does not look like a working protection.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::{Runner, SANDBOX_USER, ask, procfs, run, skipped};

/// Opens a process's memory for reading.
const OPEN_MEMORY: &str = "perl -e 'open(M, \"<\", \"/proc/$ARGV[0]/mem\") or die $!'";
const READ_ENVIRONMENT: &str = "perl -e 'open(E, \"<\", \"/proc/$ARGV[0]/environ\") or die $!; defined(<E>) or die $!'";
const READ_MAPS: &str = "perl -e 'open(E, \"<\", \"/proc/$ARGV[0]/maps\") or die $!; defined(<E>) or die $!'";
const LIST_DESCRIPTORS: &str = "perl -e 'opendir(D, \"/proc/$ARGV[0]/fd\") or die $!; readdir(D) or die $!'";
const CONNECT: &str =
    "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack_sockaddr_un($ARGV[0])) or die $!'";

/// PTRACE_SEIZE, which attaches to a process without stopping it. It is called by number, so that no package is needed.
fn trace() -> Option<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Some("perl -e 'syscall(101, 0x4206, int($ARGV[0]), 0, 0) == 0 or die $!'"),
        "aarch64" => Some("perl -e 'syscall(117, 0x4206, int($ARGV[0]), 0, 0) == 0 or die $!'"),
        _ => None,
    }
}

fn probes() -> Vec<&'static str> {
    [OPEN_MEMORY, READ_ENVIRONMENT, READ_MAPS, LIST_DESCRIPTORS].into_iter().chain(trace()).collect()
}

/// Whether the probe succeeds when the sandbox runs it.
async fn sandbox_can(runner: &Runner, probe: &str, target: impl std::fmt::Display) -> bool {
    runner.sh(&format!("{probe} {target}")).await.code() == 0
}

/// Whether the probe succeeds when the tests' user runs it.
fn we_can(probe: &str, target: impl std::fmt::Display) -> bool {
    let status = Command::new("sh").arg("-c").arg(format!("{probe} {target} 2>/dev/null")).status();
    status.expect("sh can be started").success()
}

fn needs_root(name: &str) -> bool {
    if !e2e::is_root() {
        skipped(name, "only a runner that is root has another user to run commands as");
    }
    !e2e::is_root()
}

#[tokio::test]
async fn commands_run_as_another_user_without_any_capability() {
    if needs_root("commands_run_as_another_user_without_any_capability") {
        return;
    }
    let runner = Runner::start().await;
    let pid = runner.shell("main").await.pid.unwrap();
    let user = format!("{SANDBOX_USER} {SANDBOX_USER} {SANDBOX_USER} {SANDBOX_USER}");
    assert_eq!((procfs::status_text(pid, "Uid"), procfs::status_text(pid, "Gid")), (user.clone(), user));
    assert_eq!(
        (procfs::status_text(pid, "Groups"), procfs::status_text(pid, "NoNewPrivs")),
        (String::new(), "1".into())
    );
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(procfs::status_text(pid, set), "0000000000000000", "{set}");
    }
    let ran = runner.run(run(["sh", "-c", "grep -E '^(Cap|NoNew|Uid)' /proc/self/status"])).await.text();
    assert!(ran.contains("CapBnd:\t0000000000000000") && ran.contains("NoNewPrivs:\t1"), "{ran}");
    // The control: the same lines of the runner itself, which is root and has everything that the tests have.
    assert!(procfs::status_text(runner.pid(), "Uid").starts_with("0 "));
    assert_ne!(procfs::status_text(runner.pid(), "CapEff"), "0000000000000000");
    let separation = runner.health().await.separation;
    assert!(separation.separate_user && separation.no_new_privs, "{separation:?}");
    assert_eq!((separation.runner_uid, separation.command_uid), (0, SANDBOX_USER));
}

#[tokio::test]
async fn a_command_is_chosen_before_the_runner_when_memory_runs_out() {
    let runner = Runner::start().await;
    let score = |pid: i32| -> i32 {
        std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap()
    };
    assert!(score(runner.shell("main").await.pid.unwrap()) > score(runner.pid()));
}

#[tokio::test]
async fn the_sandbox_cannot_look_into_the_runner() {
    if needs_root("the_sandbox_cannot_look_into_the_runner") {
        return;
    }
    let runner = Runner::start().await;
    for probe in probes() {
        assert!(!sandbox_can(&runner, probe, runner.pid()).await, "{probe}");
        assert!(sandbox_can(&runner, probe, "$$").await, "the control, on the sandbox's own shell: {probe}");
        assert!(we_can(probe, runner.pid()), "the control, as root: {probe}");
    }
}

#[tokio::test]
async fn the_sandbox_cannot_look_into_a_runner_of_its_own_user() {
    if needs_root("the_sandbox_cannot_look_into_a_runner_of_its_own_user") {
        return;
    }
    let runner = Runner::builder().as_user(65534).start().await;
    assert!(!runner.health().await.separation.separate_user);
    for probe in probes() {
        assert!(!sandbox_can(&runner, probe, runner.pid()).await, "{probe}");
        assert!(sandbox_can(&runner, probe, "$$").await, "the control, on a plain process of that user: {probe}");
    }
}

#[tokio::test]
async fn the_sandbox_cannot_look_into_an_init() {
    if needs_root("the_sandbox_cannot_look_into_an_init") {
        return;
    }
    let runner = Runner::start_as_pid1().await;
    for probe in probes() {
        assert!(!sandbox_can(&runner, probe, 1).await, "{probe}");
        assert!(sandbox_can(&runner, probe, "$$").await, "the control: {probe}");
    }
}

#[tokio::test]
async fn the_runners_secrets_are_in_nobodys_environment() {
    if needs_root("the_runners_secrets_are_in_nobodys_environment") {
        return;
    }
    let secret = "hush-0123456789";
    let shows = |pid: i32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        environ.windows(secret.len()).any(|w| w == secret.as_bytes())
    };
    let runner = Runner::builder().env("COVE_RUNNER_TOKEN", secret).env("OTHER", "visible").start().await;
    assert!(!shows(runner.pid()), "in the runner's own");
    assert!(!runner.output_of("env; set; echo $OTHER").await.contains(secret));
    assert!(!runner.run(run(["env"])).await.text().contains(secret));
    assert_eq!(runner.output_of("echo $OTHER").await, "visible\n", "the control: what is no secret is passed on");
    let mut plain = Command::new("sleep").arg("1000").env("COVE_RUNNER_TOKEN", secret).spawn().unwrap();
    let pid = i32::try_from(plain.id()).unwrap();
    let control = "the control: of a plain process the same look finds it";
    e2e::wait_until(control, Duration::from_secs(10), async || shows(pid).then_some(())).await;
    plain.kill().unwrap();
    plain.wait().unwrap();
}

#[tokio::test]
async fn the_sandbox_cannot_connect_to_the_runners_socket() {
    if needs_root("the_sandbox_cannot_connect_to_the_runners_socket") {
        return;
    }
    // The directory is open to everyone, so only the socket itself keeps the sandbox out.
    let runner = Runner::builder().with_open_socket_directory().start().await;
    let socket = runner.socket().display().to_string();
    assert!(!sandbox_can(&runner, CONNECT, &socket).await);
    assert!(!sandbox_can(&runner, "rm -f", &socket).await, "it can be removed");
    assert!(we_can(CONNECT, &socket), "the control: root can");
    let open = runner.workspace().join("open.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    assert!(sandbox_can(&runner, CONNECT, open.display()).await, "the control: a socket that is open to it");
}

#[tokio::test]
async fn no_descriptor_of_the_runner_is_inherited() {
    let runner = Runner::start().await;
    // All descriptors except standard input and output: a shell reads its commands from a socket and reports on another.
    let targets = |pid: i32| -> Vec<String> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let others = entries.filter(|e| e.file_name() != "0" && e.file_name() != "1");
        others.filter_map(|e| Some(std::fs::read_link(e.path()).ok()?.display().to_string())).collect()
    };
    let shell = runner.shell("main").await.pid.unwrap();
    let strange = |t: &String| t.starts_with("socket:") || t.contains("eventpoll") || t.contains("ptmx");
    // While bash runs a file it moves both aside; when it is idle there is no other descriptor.
    e2e::wait_until("the shell has nothing of the runner's", Duration::from_secs(10), async || {
        (!targets(shell).iter().any(strange)).then_some(())
    })
    .await;
    if e2e::is_root() {
        let own = targets(runner.pid());
        assert!(own.iter().any(|t| t.starts_with("socket:")), "the control: the runner has some: {own:?}");
    }
}

/// The descriptors that a program finds open when it starts.
const OPEN_DESCRIPTORS: &str = "perl -e 'print join(q( ), grep { -e qq(/proc/self/fd/$_) } 0..999)'";

#[tokio::test]
async fn commands_have_their_three_streams_and_nothing_else() {
    let runner = Runner::builder().with_stray_descriptor().start().await;
    if e2e::is_root() {
        let stray = std::fs::read_link(format!("/proc/{}/fd/9", runner.pid())).ok();
        println!("descriptor 9 of the runner, which it was started with: {stray:?}");
    }
    assert_eq!(runner.run(run(["sh", "-c", OPEN_DESCRIPTORS])).await.text(), "0 1 2");
    assert_eq!(runner.output_of(OPEN_DESCRIPTORS).await, "0 1 2");
    assert_eq!(runner.tty(OPEN_DESCRIPTORS).await.tty_text(), "0 1 2");
    let control = Command::new("sh").args(["-c", &format!("exec 9</dev/null; {OPEN_DESCRIPTORS}")]).output().unwrap();
    assert!(String::from_utf8_lossy(&control.stdout).contains(" 9"), "the control: {control:?}");
}

#[tokio::test]
async fn the_sandbox_cannot_signal_the_runner() {
    if needs_root("the_sandbox_cannot_signal_the_runner") {
        return;
    }
    for (runner, pid) in [(Runner::start().await, None), (Runner::start_as_pid1().await, Some(1))] {
        let pid = pid.unwrap_or(runner.pid());
        for signal in ["0", "HUP", "INT", "TERM", "KILL", "STOP", "USR1", "SEGV"] {
            assert!(!sandbox_can(&runner, &format!("kill -s {signal}"), pid).await, "{signal} to {pid}");
        }
        assert!(sandbox_can(&runner, "sleep 1000 & kill -s KILL", "$!").await, "the control: its own can be");
        assert_eq!(runner.health().await.status, "ok");
    }
}

/// Searches the nonce in the memory of a shell and in its socket, and reports the end of its command with status 0 wherever
/// it can. It knows more about the runner than a test should: an attacker who has read the source would do this. The numbers
/// are the system calls pidfd_open and pidfd_getfd; 2 is MSG_PEEK, 64 MSG_DONTWAIT.
const FORGE: &str = r#"
my ($pid) = @ARGV;
my (%nonces, @sockets);
sub look { $nonces{$1} = 1 while $_[0] =~ m{/t ([0-9A-Za-z]{8,})}g }
open(M, "<:raw", "/proc/$pid/mem") or die "mem: $!";
open(L, "<", "/proc/$pid/maps") or die "maps: $!";
while (<L>) {
    my ($from, $to) = /^([0-9a-f]+)-([0-9a-f]+) rw/ or next;
    ($from, $to) = (hex $from, hex $to);
    next if $to - $from > 64 << 20;
    sysseek(M, $from, 0);
    sysread(M, my $memory, $to - $from) or next;
    look($memory);
}
my $process = syscall(434, $pid + 0, 0);
for my $link (glob("/proc/$pid/fd/*")) {
    next unless (readlink($link) // "") =~ /^socket:/;
    my $fd = syscall(438, $process, ($link =~ /(\d+)$/)[0] + 0, 0);
    next if $fd < 0;
    open(my $socket, "+<&=", $fd) or next;
    push @sockets, $socket;
    look($_) if defined recv($socket, $_, 1024, 2 | 64);
}
die "no nonce found\n" unless %nonces;
die "no socket found\n" unless @sockets;
for my $nonce (keys %nonces) {
    syswrite($_, "\0D $nonce 0\0/forged\0") for @sockets;
}
print "tried\n";
"#;

/// Writes a forged end of a command to every reachable FIFO and descriptor, without knowing the nonce.
const FORGE_BLINDLY: &str = r#"
my ($scratch, $shell) = @ARGV;
my @records = map { ("\0D $_ 0\0/forged\0", "\0D $_ 0 1\0/forged\0", "D $_ 0\n", "$_ 0\n") } ("", "0", "x", "0" x 16, "0" x 32, "f" x 32);
my @places = (split(/\n/, `find $scratch -type p -o -type f`), glob("/proc/$shell/fd/*"), glob("/proc/self/fd/*"));
for my $place (@places) {
    next if -d $place;
    sysopen(F, $place, 2 | 2048) or sysopen(F, $place, 1 | 2048) or next;
    syswrite(F, $_) for @records;
    close F;
}
"#;

fn script(runner: &Runner, text: &str) -> String {
    let path = runner.workspace().join("forge.pl");
    std::fs::write(&path, text).expect("our own directory");
    path.display().to_string()
}

/// Checks that a command ends only by itself. A forged end would come without the output after it, and with another status.
async fn ends_only_by_itself(runner: &Runner, attack: &str) {
    let done = runner.sh(&format!("{{ {attack}; }} >/dev/null 2>&1; sleep 0.3; echo after; (exit 7)")).await;
    // An attack may also write to the command's own output, which is allowed.
    assert!(done.text().ends_with("after\n") && done.code() == 7, "{:?}", done.outcome);
    assert_ne!(done.outcome.cwd.as_deref(), Some("/forged"));
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
}

#[tokio::test]
async fn a_command_cannot_forge_its_end_by_writing_wherever_it_can() {
    let runner = Runner::start().await;
    let script = script(&runner, FORGE_BLINDLY);
    ends_only_by_itself(&runner, &format!("perl {script} {} $$", runner.scratch().display())).await;
}

#[tokio::test]
async fn a_command_cannot_forge_its_end_by_looking_into_its_shell() {
    let runner = Runner::start().await;
    let script = script(&runner, FORGE);
    ends_only_by_itself(&runner, &format!("perl {script} $$ >tried")).await;
    assert_eq!(runner.output_of("cat tried").await, "tried\n", "the attack itself did not come about");
}

#[tokio::test]
async fn a_command_cannot_end_another_shells_command() {
    let runner = Runner::start().await;
    runner.open("other").await;
    let script = script(&runner, FORGE);
    let mut victim = runner.exec_stream(ask("echo begun; until [ -e go ]; do sleep 0.01; done; (exit 7)")).await;
    victim.until_output("begun").await;
    let target = runner.shell("main").await.pid.unwrap();
    let attack = ask(format!("perl {script} {target} >tried; touch go"));
    runner.exec(e2e::Ask::in_shell(attack, "other")).await;
    assert_eq!(victim.finish().await.code(), 7);
    assert_eq!(runner.output_of("cat tried").await, "tried\n", "the attack itself did not come about");
}

#[tokio::test]
async fn with_the_nonce_and_as_the_shell_itself_an_end_can_be_forged() {
    // This is the control of the tests above: the same record does end a running command if bash itself takes the line from
    // its socket and writes to it. SECURITY.md says so.
    let runner = Runner::start().await;
    let cmd = r#"for fd in {10..20}; do
        line=$(timeout 0.2 dd bs=1024 count=1 <&$fd) && [[ $line =~ /t\ ([0-9a-f]+) ]] &&
            for to in {10..20}; do printf '\0D %s 0\0/forged\0' "${BASH_REMATCH[1]}" >&$to; done
    done 2>/dev/null; sleep 1000"#;
    let forged = runner.sh(cmd).await;
    assert_eq!((forged.code(), forged.outcome.cwd.as_deref()), (0, Some("/forged")));
}

#[tokio::test]
async fn a_set_user_id_program_gives_the_sandbox_nothing() {
    if needs_root("a_set_user_id_program_gives_the_sandbox_nothing") {
        return;
    }
    let runner = Runner::start().await;
    let copy = runner.workspace().join("rooted");
    std::fs::copy("/usr/bin/id", &copy).unwrap();
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    assert_eq!(runner.output_of("./rooted -u").await.trim(), SANDBOX_USER.to_string());
    let user = SANDBOX_USER.to_string();
    let setpriv = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
    let control = Command::new(setpriv[0]).args(&setpriv[1..]).arg(&copy).arg("-u").output().unwrap();
    if is_mounted_nosuid(&copy) {
        return skipped("the control of a_set_user_id_program_gives_the_sandbox_nothing", "mounted nosuid");
    }
    assert_eq!(String::from_utf8_lossy(&control.stdout).trim(), "0", "the control: without no_new_privs it is root");
}

fn is_mounted_nosuid(path: &Path) -> bool {
    use nix::sys::statvfs::{FsFlags, statvfs};
    statvfs(path).is_ok_and(|s| s.flags().contains(FsFlags::ST_NOSUID))
}

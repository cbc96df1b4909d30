//! Input that breaks other shells. After each of these, the next `echo ok` prints only `ok`, exits with 0, and does so at
//! once.
//!
//! Every case has its own runner: a case damages only its own directory, and nothing can recover before the next case looks.

use std::time::{Duration, Instant};

use e2e::{Ask as _, Builder, Runner, ask, skipped};
use shared_protocol::ErrorCode;
use shared_protocol::runner::{ExecRequest, OutcomeKind};

/// The longest time for the next command. One second is promised; a loaded machine gets this much.
const NEXT_COMMAND_DEADLINE: Duration = Duration::from_secs(5);

/// The longest time for a command to end after its timeout: INT, TERM, KILL, and a new shell.
const LADDER_DEADLINE: Duration = Duration::from_secs(15);

/// The timeout of commands that never end by themselves.
const SHORT_TIMEOUT_MS: u64 = 300;

/// The timeout of commands that must end by themselves, so that a hang fails the case that hung.
const LONG_TIMEOUT_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
enum Expect {
    /// The command ends by itself, with any status.
    Ends,
    Code(i32),
    Fails,
    /// The command ends by the request's timeout.
    TimesOut,
    /// The command never runs: the request is refused as invalid.
    Refused,
}
use Expect::{Code, Ends, Fails, Refused, TimesOut};

#[derive(Clone, Debug)]
struct Case {
    name: &'static str,
    request: ExecRequest,
    expect: Expect,
    /// Whether bash's own trace of the next command may appear on its standard error.
    is_traced: bool,
}

fn case(name: &'static str, cmd: impl Into<String>, expect: Expect) -> Case {
    let timeout_ms = if matches!(expect, TimesOut) { SHORT_TIMEOUT_MS } else { LONG_TIMEOUT_MS };
    Case { name, request: ask(cmd).timeout_ms(timeout_ms), expect, is_traced: false }
}

impl Case {
    fn tty(self) -> Self {
        Self { request: self.request.tty(), ..self }
    }

    fn traced(self) -> Self {
        Self { is_traced: true, ..self }
    }
}

fn broken_syntax() -> Vec<Case> {
    let here_document =
        format!("cat >heard <<'END'\n{}END\n[ $(wc -l <heard) = 10000 ]", "a line of it\n".repeat(10_000));
    let megabyte = format!("x='{}'; [ ${{#x}} = 1048576 ]", "x".repeat(1 << 20));
    vec![
        case("an open double quote", "echo \"abc", Fails),
        case("an open single quote", "echo 'abc", Fails),
        case("an open backquote", "echo `date", Fails),
        case("an open command substitution", "echo $(date", Fails),
        case("an open brace expansion", "echo ${x", Fails),
        case("for i in 1 2, unfinished", "for i in 1 2", Fails),
        case("a loop without done", "for i in 1 2; do echo $i", Fails),
        case("an if without fi", "if true; then echo yes", Fails),
        case("a function without its brace", "f() { echo", Fails),
        case("a stray }", "}", Fails),
        case("a stray )", "echo a )", Fails),
        case("a stray done", "done", Fails),
        case("a case without esac", "case x in", Fails),
        case("an unterminated here-document", "cat <<END\nhello", Ends),
        case("a here-document of 10,000 lines", here_document, Code(0)),
        case("a command of 1 MiB", megabyte, Code(0)),
        case("a NUL byte", "echo a\0b", Refused),
        case("control bytes in quotes", "x='\u{1}\u{3}\u{4}\u{11}\u{13}\u{1a}\u{1c}\u{7f}'; [ ${#x} = 8 ]", Code(0)),
        case("bare control bytes", "\u{3}\u{4}\u{1a}\u{1b}[A\u{7f}", Ends),
        case("control bytes at the terminal", "\u{3}\u{4}\u{1a}\u{1b}[A\u{7f}", Ends).tty(),
        case("CRLF line ends", "echo one\r\necho two\r\n", Code(0)),
        case("a trailing backslash", "echo a \\", Ends),
        case("a lone backslash", "\\", Ends),
        case("a trailing &", "sleep 0.01 &", Code(0)),
        case("a trailing comment", "echo hi # comment", Code(0)),
        case("nothing but a comment", "# nothing", Code(0)),
        case("nothing but a space", " ", Code(0)),
        case("nothing but newlines", "\n\n\n", Code(0)),
        case("history characters", "[ \"hi! !! !$ ^a^b\" = 'hi! !! !$ ^a^b' ]; echo !! !-1 !x", Code(0)),
        case("a lone !", "!", Ends),
        case("a syntax error after a good line", "echo good\n)\necho never", Fails),
    ]
}

fn awkward_output() -> Vec<Case> {
    vec![
        case("output with no final newline", "printf abc", Code(0)),
        case("output of our own environment", "set; declare -p; declare -f; alias; trap", Code(0)),
        // This prints everything that the shell was started with, in every mode: none of it may end the command.
        case(
            "our own markers in the output",
            "cat /proc/$$/cmdline; declare -f; printf '\\0\\n0\\n\\1done 0\\n'",
            Code(0),
        ),
        case("our own markers at the terminal", "declare -f; printf '\\0\\n0\\n\\1done 0\\n\\033]133;D;0\\a'", Code(0))
            .tty(),
        case("terminal answers asked for", "printf '\\033[6n\\033[c\\005'", Code(0)).tty(),
        case("fifty megabytes", "head -c 50000000 /dev/zero | tr '\\0' x", Code(0)),
        case("random bytes at the terminal", "head -c 100000 /dev/urandom", Code(0)).tty(),
    ]
}

fn no_input() -> Vec<Case> {
    vec![
        case("cat with no stdin", "cat", Code(0)),
        case("read with no stdin", "read x", Code(1)),
        case("cat at the terminal", "cat", TimesOut).tty(),
        case("read at the terminal", "read x", TimesOut).tty(),
        case("a program that reads /dev/tty", "head -n1 /dev/tty", TimesOut),
        case("stty raw -echo", "stty raw -echo </dev/tty", Ends),
        case("stty echo at the terminal", "stty echo icanon isig onlcr", Code(0)).tty(),
        case("stty with nothing working", "stty -icanon -isig -icrnl -opost -ixon min 0 time 0", Code(0)).tty(),
        case("stty with an end-of-file of e", "stty eof e intr c erase h kill o", Code(0)).tty(),
        case("stty tostop and no size", "stty tostop cols 0 rows 0", Code(0)).tty(),
        case("output stopped by Ctrl-S", "printf '\\023'; stty ixoff", Code(0)).tty(),
    ]
}

fn replaced_streams() -> Vec<Case> {
    vec![
        case("exec >file", "exec >file", Ends),
        case("exec >file 2>&1, then an echo", "exec >file 2>&1; echo in the file", Ends),
        case("exec </dev/null", "exec </dev/null", Ends),
        case("closed standard streams", "exec 0<&- 1>&- 2>&-", Ends),
        case("every descriptor closed", "for fd in /proc/$$/fd/*; do eval \"exec ${fd##*/}>&-\"; done", Ends),
        case(
            "every descriptor made /dev/null",
            "for fd in /proc/$$/fd/*; do eval \"exec ${fd##*/}<>/dev/null\"; done",
            Ends,
        ),
        case("exec bash", "exec bash", Ends),
        case("exec bash at the terminal", "exec bash", TimesOut).tty(),
        case("exec sleep", "exec sleep 1000", TimesOut),
        case("exec true", "exec true", Code(0)),
        case("exec of what is not there", "exec /no/such/program", Ends),
    ]
}

fn ends_of_the_shell() -> Vec<Case> {
    vec![
        case("exit 3", "exit 3", Code(3)),
        case("exit 3 at the terminal", "exit 3", Code(3)).tty(),
        case("exit in a function", "f() { exit 4; }; f", Code(4)),
        case("return 3", "return 3", Ends),
        case("break and continue outside a loop", "break; continue", Ends),
        case("logout", "logout", Ends),
        case("set -e; false", "set -e; false", Code(1)),
        case("set -e alone", "set -e", Code(0)),
        case("set -eu -o pipefail", "set -euo pipefail; false | true", Fails),
        case("set -u; $nope", "set -u; $nope", Fails),
        case("set -u alone", "set -u", Code(0)),
        case("set -x", "set -x", Code(0)).traced(),
        case("set -v", "set -v", Code(0)).traced(),
        case("kill -9 $$", "kill -9 $$", Code(137)),
        case("kill -TERM $$", "kill -TERM $$", Ends),
        case("kill -HUP $$", "kill -HUP $$", Ends),
        case("kill -INT $$", "kill -INT $$", Ends),
        case("kill -SEGV $$", "kill -SEGV $$", Fails),
        case("a child that kills the shell", "sh -c 'kill -9 $PPID'; echo never", Fails),
        case("kill -STOP $$", "kill -STOP $$", Ends),
    ]
}

fn stubborn_processes() -> Vec<Case> {
    vec![
        case("trap '' INT TERM; sleep 1000", "trap '' INT TERM; sleep 1000", TimesOut),
        case("the same at the terminal", "trap '' INT TERM; sleep 1000", TimesOut).tty(),
        case("while :; do :; done", "while :; do :; done", TimesOut),
        case("an endless loop that ignores everything", "trap '' INT TERM HUP QUIT; while :; do :; done", TimesOut),
        case("an endless pipeline", "yes | cat >/dev/null", TimesOut),
        case("endless output", "yes", TimesOut),
        case("an endless function of children", "f() { sleep 0.01; f; }; f", TimesOut),
        case("a child that stops itself", "sh -c 'kill -STOP $$'; echo went on", Ends),
        case("a fork that keeps stdout open", "sleep 1000 &", Code(0)),
        case("a subshell that keeps all its descriptors", "(sleep 1000; echo late) & echo now", Code(0)),
        case("nohup setsid sleep 1000 &", "nohup setsid sleep 1000 &", Code(0)),
        case("a disowned job", "sleep 1000 & disown -a", Code(0)),
        case("a stopped job", "sleep 1000 & kill -STOP $!", Code(0)),
        case("wait for what never ends", "sleep 1000 & wait", TimesOut),
        case("a coprocess", "coproc cat", Code(0)),
        case("a background reader of the terminal", "cat & sleep 0.05", Ends).tty(),
    ]
}

fn redefined_names() -> Vec<Case> {
    let functions =
        ["printf", "read", "eval", "builtin", "command", "unset", "trap", "exec", "set", "shopt", "declare"];
    let others =
        ["export", "local", "source", "cd", "pwd", "test", "alias", "unalias", "return", "exit", "umask", "stty"];
    let define = |names: &[&str]| names.iter().map(|n| format!("{n}() {{ echo hijacked; }}\n")).collect::<String>();
    let all = functions.iter().chain(&others).map(|n| format!("alias {n}='echo hijacked'\n")).collect::<String>();
    vec![
        case("a function printf", define(&["printf"]), Code(0)),
        case("a function read", define(&["read"]), Code(0)),
        case("a function eval", define(&["eval"]), Code(0)),
        case("a function builtin", define(&["builtin"]), Code(0)),
        case("functions builtin, eval and command", define(&["builtin", "eval", "command"]), Code(0)),
        case("functions of every name a shell needs", define(&functions), Ends),
        case("functions of more such names", define(&others), Ends),
        case("functions [ : true .", "[() { echo hijacked; }; :() { echo hijacked; }; true() { echo hijacked; }", Ends),
        case("aliases of all these names", all, Ends),
        case("POSIXLY_CORRECT", "POSIXLY_CORRECT=1", Ends),
        case("set -o posix and a function eval", "eval() { echo hijacked; }; set -o posix", Ends),
        case("builtins disabled", "enable -n printf read builtin eval trap unset", Ends),
        case("all functions unset", "unset -f $(compgen -A function)", Ends),
        case("all functions readonly", "readonly -f $(compgen -A function)", Ends),
        case("an ERR trap", "trap 'false' ERR", Code(0)),
    ]
}

fn redefined_variables() -> Vec<Case> {
    vec![
        case("PROMPT_COMMAND", "PROMPT_COMMAND='echo prompted'", Code(0)),
        case("PROMPT_COMMAND as a list", "PROMPT_COMMAND=('echo one' 'echo two')", Code(0)),
        case("PROMPT_COMMAND unset", "unset PROMPT_COMMAND", Code(0)),
        case("PROMPT_COMMAND readonly", "readonly PROMPT_COMMAND='echo prompted'", Ends),
        case("PROMPT_COMMAND that exits", "PROMPT_COMMAND='exit 9'", Ends),
        case("PS1", "PS1='prompt> '", Code(0)),
        case("PS1 with a command", "PS1='$(echo prompted; echo prompted >&2)'", Code(0)),
        case("PS0 PS2 PS3", "PS0='zero '; PS2='two '; PS3='three '", Code(0)),
        case("all prompts readonly", "readonly PS0=zero PS1=one PS2=two PS4=four", Ends),
        case("prompts unset", "unset PS0 PS1 PS2 PS3 PS4", Ends),
        case("IFS of letters", "IFS=oke0123456789", Code(0)),
        case("IFS empty", "IFS=", Code(0)),
        case("IFS unset", "unset IFS", Code(0)),
        case("IFS readonly", "readonly IFS=/", Ends),
        case("PATH empty", "PATH=", Code(0)),
        case("PATH unset", "unset PATH", Code(0)),
        case("PATH readonly", "readonly PATH=/nowhere", Ends),
        case("every variable unset", "unset $(compgen -v) 2>/dev/null", Ends),
        // `_` is excluded, because bash itself complains about it at every command.
        case("every variable readonly", "readonly $(compgen -v | grep -vx _) 2>/dev/null", Ends),
        case("readonly variables of likely names", likely_names(), Ends),
        case(
            "every variable a nameref to itself",
            "for v in $(compgen -v); do declare -n $v=$v; done 2>/dev/null",
            Ends,
        ),
        case(
            "HOME TERM SHELL BASH_ENV ENV",
            "HOME=/nowhere TERM= SHELL=/bin/false BASH_ENV=/no ENV=/no; export ENV",
            Ends,
        ),
        case("a locale that is not there", "export LC_ALL=xx_YY.UTF-8 2>/dev/null", Ends),
        case("HISTFILE and history", "HISTFILE=h; set -o history -H; history -s ok", Ends),
        case("mail that came", "MAIL=$PWD/mail MAILCHECK=0; echo >>mail", Ends),
    ]
}

/// The names that a shell driver would use, and the names with an underscore that this one uses.
fn likely_names() -> String {
    let likely = "__cove __COVE COVE __cove_status __cove_nonce __cove_fd __cove_cmd __cove_code __status __nonce __fd \
                  _status status code nonce fd cmd command rc ret exit_code line reply REPLY result __rc __ret __cwd";
    format!("readonly {likely}\nfor v in $(compgen -v | grep '^_.'); do readonly $v; done 2>/dev/null; true")
}

fn shell_options() -> Vec<Case> {
    vec![
        case("set -f -k -m", "set -f -k; set +m; set -m", Code(0)),
        case("set +m", "set +m", Code(0)),
        case("set -n", "set -n", Ends),
        case("set -t", "set -t", Ends),
        case("set -r", "set -r", Ends),
        case("set -C noclobber", "set -C", Code(0)),
        case("set -a allexport", "set -a", Code(0)),
        case("set -T -E functrace", "set -TE", Code(0)),
        case("shopt of everything on", "shopt -s $(shopt -u | grep -v -e restricted -e compat | cut -f1)", Ends),
        case("shopt of everything off", "shopt -u $(shopt -s | cut -f1)", Ends),
        case("all of bash's old behaviour", "BASH_COMPAT=3.1", Ends),
        case("line editing", "set -o vi; set -o emacs", Ends),
    ]
}

fn damaged_surroundings() -> Vec<Case> {
    vec![
        case("the directory deleted", "mkdir d; cd d; rmdir ../d", Code(0)),
        case("the directory closed", "mkdir e; cd e; chmod 000 .", Code(0)),
        case("the workspace moved away", "mv \"$PWD\" \"$PWD-gone\"; true", Ends),
        case("ulimit -n 3", "ulimit -n 3", Ends),
        case("ulimit -n 0", "ulimit -n 0", Ends),
        case("ulimit -f 0", "ulimit -f 0", Ends),
        case("ulimit -u 0", "ulimit -u 0", Ends),
        case("umask 777", "umask 777", Code(0)),
        case("every scratch file deleted", "rm -rf SCRATCH/* SCRATCH/.[!.]*", Ends),
        case("every scratch file unreadable", "chmod -R 000 SCRATCH/*", Ends),
        case(
            "every scratch file garbage",
            "find SCRATCH -type f -exec sh -c 'echo \"garbage )\" >\"$1\"' sh {} \\;",
            Ends,
        ),
        case("every scratch file a directory", "for f in SCRATCH/*; do rm -rf $f; mkdir $f; done", Ends),
        case(
            "garbage in every FIFO",
            "find SCRATCH -type p -exec timeout 0.2 sh -c 'printf \"garbage\\n0\\n\\0\" >\"$1\"' sh {} \\;",
            Ends,
        ),
        case("a reader at every FIFO", "find SCRATCH -type p -exec timeout 0.2 cat {} \\;", Ends),
        case(
            "a reader at every FIFO that stays",
            "for p in $(find SCRATCH -type p); do cat $p >/dev/null & done",
            Ends,
        ),
        case("every descriptor of the shell written to", garbage_to_every_descriptor(), Ends),
        case("every descriptor of the shell read from", "for fd in /proc/$$/fd/*; do timeout 0.1 cat $fd; done", Ends),
        case("a megabyte typed ahead", "sh -c 'head -c 1000000 /dev/zero >/dev/tty'", Ends),
    ]
}

fn garbage_to_every_descriptor() -> String {
    let inherited = "for fd in /proc/$$/fd/*; do timeout 0.2 sh -c \"printf 'garbage\\n0\\n' >&${fd##*/}\"; done";
    format!("{inherited}; for fd in /proc/$$/fd/*; do timeout 0.2 sh -c \"printf 'garbage\\n' >$fd\"; done")
}

/// Runs the case, and then two commands that must not be affected.
async fn survives(builder: Builder, case: Case) {
    let runner = builder.start().await;
    let mut request = case.request.clone();
    request.cmd = request.cmd.replace("SCRATCH", &runner.scratch().to_string_lossy());
    let limit = Duration::from_millis(request.timeout_ms.expect("every case has one")) + LADDER_DEADLINE;
    match runner.try_exec_stream(&request).await {
        Err(refused) => {
            assert!(matches!(case.expect, Refused), "{refused:?}");
            assert_eq!(refused.body.error_code, ErrorCode::InvalidRequest);
        }
        Ok(stream) => {
            let outcome = stream.finish_within(limit).await.outcome;
            let as_expected = match case.expect {
                Ends => !outcome.timed_out,
                Code(code) => !outcome.timed_out && outcome.exit_code == code,
                Fails => !outcome.timed_out && outcome.exit_code != 0,
                TimesOut => outcome.timed_out && outcome.exit_code == 124 && outcome.kind == OutcomeKind::TimedOut,
                Refused => false,
            };
            assert!(as_expected, "expected {:?}, got {outcome:?}", case.expect);
        }
    }
    let ended = Instant::now();
    let next = runner.exec_stream(ask("echo ok").split()).await.finish_within(NEXT_COMMAND_DEADLINE).await;
    let took = ended.elapsed();
    assert_eq!((next.stdout_text().as_str(), next.code()), ("ok\n", 0), "{:?} {}", next.outcome, next.text());
    assert!(took < NEXT_COMMAND_DEADLINE, "the next command took {took:?}");
    if case.is_traced {
        let stderr = next.stderr_text();
        // Bash prints one `+` for each level of nesting.
        let strange: Vec<&str> =
            stderr.lines().filter(|l| l.trim_start_matches('+').trim_start() != "echo ok").collect();
        assert!(strange.is_empty(), "the trace shows more than the command: {strange:?}");
        return;
    }
    assert_eq!(next.stderr_text(), "", "on the next command's standard error");
    assert_eq!(next.tty_text(), "", "on the next command's terminal");
    let merged = runner.exec_stream(ask("echo ok")).await.finish_within(NEXT_COMMAND_DEADLINE).await;
    assert_eq!((merged.text().as_str(), merged.code()), ("ok\n", 0), "with merged streams");
    let at_terminal = runner.exec_stream(ask("echo ok").tty()).await.finish_within(NEXT_COMMAND_DEADLINE).await;
    assert_eq!(at_terminal.tty_text().trim_end(), "ok", "at the terminal");
}

/// Runs all cases and names every one that failed, so that one broken case does not hide the next.
async fn all_survive(builder: impl Fn() -> Builder, cases: Vec<Case>) {
    let mut failed = Vec::new();
    let tasks = tokio::task::LocalSet::new();
    for case in cases {
        let (name, cmd) = (case.name, case.request.cmd.chars().take(100).collect::<String>());
        // A separate task turns a failed assertion into a value.
        let task = tasks.spawn_local(survives(builder(), case));
        if let Err(failure) = tasks.run_until(task).await {
            let panic = failure.into_panic();
            let message = panic.downcast_ref::<String>().cloned();
            let message = message.or_else(|| panic.downcast_ref::<&str>().map(|m| (*m).to_owned()));
            failed.push(format!("* {name} ({cmd:?}): {}", message.unwrap_or_default()));
        }
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

#[tokio::test]
async fn the_shell_survives_broken_syntax() {
    all_survive(Runner::builder, broken_syntax()).await;
}

#[tokio::test]
async fn the_shell_survives_awkward_output() {
    all_survive(Runner::builder, awkward_output()).await;
}

#[tokio::test]
async fn the_shell_survives_commands_that_want_input() {
    all_survive(Runner::builder, no_input()).await;
}

#[tokio::test]
async fn the_shell_survives_replaced_streams() {
    all_survive(Runner::builder, replaced_streams()).await;
}

#[tokio::test]
async fn the_shell_survives_its_own_end() {
    all_survive(Runner::builder, ends_of_the_shell()).await;
}

#[tokio::test]
async fn the_shell_survives_stubborn_processes() {
    all_survive(Runner::builder, stubborn_processes()).await;
}

#[tokio::test]
async fn the_shell_survives_redefined_names() {
    all_survive(Runner::builder, redefined_names()).await;
}

#[tokio::test]
async fn the_shell_survives_redefined_variables() {
    all_survive(Runner::builder, redefined_variables()).await;
}

#[tokio::test]
async fn the_shell_survives_changed_options() {
    all_survive(Runner::builder, shell_options()).await;
}

#[tokio::test]
async fn the_shell_survives_damage_to_its_surroundings() {
    all_survive(Runner::builder, damaged_surroundings()).await;
}

#[tokio::test]
async fn the_shell_of_an_init_survives_the_same() {
    if !e2e::is_root() {
        return skipped("the_shell_of_an_init_survives_the_same", "a pid namespace needs root");
    }
    let mut cases: Vec<Case> = [ends_of_the_shell(), stubborn_processes(), damaged_surroundings()].concat();
    cases.extend([broken_syntax(), redefined_names(), redefined_variables()].concat().into_iter().step_by(4));
    // This signals every process that may be signalled, so it runs only here, where it reaches no others.
    cases.push(case("kill -9 -1", "kill -9 -1", Ends));
    cases.push(case("kill -TERM 1", "kill -TERM 1; kill -9 1; kill -STOP 1", Fails));
    let fork_bomb = "ulimit -u 50; b() { b | b & }; b 2>/dev/null; sleep 0.2";
    cases.push(case("a fork bomb under a limit", fork_bomb, Ends));
    all_survive(|| Runner::builder().as_pid1(), cases).await;
}

#[tokio::test]
async fn the_shell_of_a_runner_without_privileges_survives_the_same() {
    if !e2e::is_root() {
        return skipped("the_shell_of_a_runner_without_privileges_survives_the_same", "switching the user needs root");
    }
    let all = [broken_syntax(), ends_of_the_shell(), stubborn_processes(), redefined_names(), redefined_variables()];
    // With the same user, a command can open what the runner opens, and take another command's output out of its FIFO: there
    // is no defence, and SECURITY.md says so.
    let damage = damaged_surroundings().into_iter().filter(|case| case.name != "a reader at every FIFO that stays");
    let cases: Vec<Case> = all.concat().into_iter().step_by(3).chain(damage).collect();
    all_survive(|| Runner::builder().as_user(65534), cases).await;
}

#[tokio::test]
async fn an_idle_timeout_of_bash_does_not_end_the_shell_unnoticed() {
    let runner = Runner::start().await;
    runner.sh("TMOUT=1").await;
    // The run measures the time: at its end, bash would have exited at its prompt.
    runner.run(e2e::run(["sleep", "1.5"])).await;
    let next = runner.split("echo ok").await;
    assert_eq!((next.stdout_text().as_str(), next.stderr_text().as_str(), next.code()), ("ok\n", "", 0));
}

#[tokio::test]
async fn a_debug_trap_sees_the_commands_and_not_the_machinery() {
    let runner = Runner::start().await;
    runner.sh("trap 'echo D' DEBUG").await;
    assert_eq!(runner.split("echo ok").await.stdout_text(), "D\nok\n");
}

#[tokio::test]
async fn a_command_that_unsets_every_variable_is_run_once() {
    let runner = Runner::start().await;
    runner.sh("echo run >>count; for v in $(compgen -v); do unset $v; done 2>/dev/null; true").await;
    assert_eq!(runner.output_of("/bin/cat count").await, "run\n");
}

#[tokio::test]
async fn a_command_that_ends_the_shell_at_once_is_run_once() {
    let runner = Runner::start().await;
    for _ in 0..100 {
        assert_eq!(runner.sh("echo run >>count; exec true").await.code(), 0);
    }
    assert_eq!(runner.output_of("wc -l <count").await.trim(), "100");
}

#[tokio::test]
async fn a_program_that_takes_the_shells_place_runs_as_long_as_it_likes() {
    let runner = Runner::start().await;
    let done = runner.sh("exec sh -c 'sleep 2; echo done; exit 5'").await;
    assert_eq!((done.text().as_str(), done.code()), ("done\n", 5));
}

#[tokio::test]
async fn a_timed_out_command_keeps_its_output_and_its_shell() {
    let runner = Runner::start().await;
    runner.sh("x=kept").await;
    let cut = runner.exec(ask("echo before; sleep 1000; echo never").timeout_ms(SHORT_TIMEOUT_MS)).await;
    assert_eq!((cut.text().as_str(), cut.code(), cut.outcome.timed_out), ("before\n", 124, true));
    assert!(!cut.outcome.shell_restarted, "a plain sleep ends by INT, the shell stays");
    assert_eq!(runner.output_of("echo $x").await, "kept\n");
}

#[tokio::test]
async fn a_timeout_leaves_no_process_of_the_command_behind() {
    let runner = Runner::start().await;
    let stubborn = "trap '' INT TERM; sh -c 'trap \"\" INT TERM; sleep 1234 | sleep 1234'";
    runner.exec(ask(stubborn).timeout_ms(SHORT_TIMEOUT_MS)).await;
    e2e::wait_until("the sleeps are gone", NEXT_COMMAND_DEADLINE, async || {
        (!runner.descendants().iter().any(|p| p.name == "sleep")).then_some(())
    })
    .await;
}

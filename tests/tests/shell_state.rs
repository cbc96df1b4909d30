//! The shell keeps its state: what one command leaves is there for the next.

use e2e::{Ask as _, Runner, ask, skipped};
use shared_protocol::ShellName;
use shared_protocol::runner::OpenShellRequest;

/// How many shells are closed in the middle of a script. A script that goes on shows in one of them.
const CLOSED_SHELLS: usize = 40;

/// Runs `first`, then expects `second` to print exactly `expected`.
async fn carries_over(first: &str, second: &str, expected: &str) {
    let runner = Runner::start().await;
    let before = runner.sh(first).await;
    assert_eq!(before.code(), 0, "{first}: {}", before.text());
    let after = runner.split(second).await;
    assert_eq!(after.stdout_text(), expected, "{first} … {second}: {}", after.stderr_text());
    assert_eq!(after.stderr_text(), "", "{second}");
    assert!(!after.outcome.shell_restarted, "the shell was replaced between {first} and {second}");
}

#[tokio::test]
async fn a_changed_directory_carries_over_and_is_reported() {
    carries_over("cd /usr/lib", "pwd", "/usr/lib\n").await;
    let runner = Runner::start().await;
    assert_eq!(runner.sh("cd /usr/lib").await.outcome.cwd.as_deref(), Some("/usr/lib"));
}

#[tokio::test]
async fn a_new_shell_begins_in_the_workspace() {
    let runner = Runner::start().await;
    assert_eq!(runner.output_of("pwd").await, format!("{}\n", runner.workspace().display()));
}

#[tokio::test]
async fn login_files_do_not_override_the_variables_of_the_session() {
    let path = "/of-the-session:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let builder = Runner::builder().env("PATH", path).env("TMPDIR", "/tmp").env("TMOUT", "1");
    let runner = builder.env("COVE_RUNNER_SESSION_VARIABLES", "PATH,TMPDIR,TMOUT,HOME").start().await;
    let show = "echo $PATH $TMPDIR";
    let expected = format!("{path} /tmp\n");
    assert_eq!(runner.output_of(show).await, expected);
    runner.open("second").await;
    assert_eq!(runner.exec(ask(show).in_shell("second")).await.text(), expected);
    runner.sh("PATH=$PATH:/added").await;
    runner.sh("kill -9 $$").await;
    assert_eq!(runner.output_of(show).await, format!("{path}:/added /tmp\n"), "a restored shell has its last state");
    runner.reset_shell("main").await;
    assert_eq!(runner.output_of(show).await, expected);
}

#[tokio::test]
async fn what_login_files_print_on_the_terminal_is_not_output_of_the_first_command() {
    let runner = Runner::start().await;
    runner.sh("echo 'echo noise >/dev/tty' >$HOME/.bash_profile").await;
    // Whether the runner sees the terminal or the end of the login first is by chance.
    for round in 0..40 {
        runner.reset_shell("main").await;
        assert_eq!(runner.output_of("echo mine").await, "mine\n", "round {round}");
    }
    assert_eq!(runner.exec(ask("echo mine").tty()).await.text(), "mine\r\n");
    // The control: the login file runs.
    assert_eq!(runner.exec(ask(". $HOME/.bash_profile").tty()).await.text(), "noise\r\n");
}

#[tokio::test]
async fn exported_variables_carry_over() {
    carries_over("export COLOUR='dark  blue'", "sh -c 'echo \"$COLOUR\"'", "dark  blue\n").await;
}

#[tokio::test]
async fn unexported_variables_carry_over() {
    carries_over("plain=$'two\\nlines'", "echo \"$plain\"; sh -c 'echo ${plain-unset}'", "two\nlines\nunset\n").await;
}

#[tokio::test]
async fn functions_carry_over() {
    carries_over("greet() { echo \"hello $1\"; return 4; }", "greet you; echo $?", "hello you\n4\n").await;
}

#[tokio::test]
async fn aliases_carry_over_and_are_expanded() {
    carries_over("alias hi='echo alias works'", "hi there", "alias works there\n").await;
}

#[tokio::test]
async fn associative_arrays_carry_over() {
    carries_over("declare -A ages=([ann]=30 ['b b']=40)", "echo ${ages[ann]} ${ages[b b]} ${#ages[@]}", "30 40 2\n")
        .await;
}

#[tokio::test]
async fn indexed_arrays_and_integer_variables_carry_over() {
    carries_over("list=(a 'b c'); declare -i n=2+3", "n+=1; echo ${#list[@]} \"${list[1]}\" $n", "2 b c 6\n").await;
}

#[tokio::test]
async fn shopt_carries_over() {
    carries_over("shopt -s extglob nullglob", "echo /no-such-*; shopt -q extglob && echo on", "\non\n").await;
}

#[tokio::test]
async fn set_o_carries_over() {
    carries_over(
        "set -o pipefail -o noclobber",
        "false | true; echo $?; echo $SHELLOPTS | grep -c noclobber",
        "1\n1\n",
    )
    .await;
}

#[tokio::test]
async fn umask_carries_over() {
    carries_over("umask 027", "umask; touch f; stat -c %a f", "0027\n640\n").await;
}

#[tokio::test]
async fn the_last_status_is_visible_to_the_next_command() {
    let runner = Runner::start().await;
    for code in [0, 1, 7, 130, 255] {
        assert_eq!(runner.sh(&format!("(exit {code})")).await.code(), code);
        assert_eq!(runner.output_of("echo $?").await, format!("{code}\n"));
    }
}

#[tokio::test]
async fn positional_parameters_carry_over() {
    carries_over("set -- one 'two three'", "echo $# \"$2\"", "2 two three\n").await;
}

#[tokio::test]
async fn open_descriptors_carry_over() {
    carries_over("exec 7>kept; echo first >&7", "echo second >&7; cat kept", "first\nsecond\n").await;
}

#[tokio::test]
async fn a_background_job_goes_on_and_wait_gives_its_status() {
    let runner = Runner::start().await;
    assert_eq!(runner.sh("sh -c 'while [ ! -e go ]; do sleep 0.01; done; exit 9' & job=$!").await.code(), 0);
    assert!(runner.output_of("jobs").await.contains("Running"));
    // Bash may first report that the job has ended, as any interactive shell does.
    assert!(runner.output_of("touch go; wait $job; echo $?").await.ends_with("9\n"));
}

#[tokio::test]
async fn a_trap_set_in_one_command_fires_in_a_later_one() {
    carries_over("trap 'echo trapped' USR1", "kill -USR1 $$; echo after", "trapped\nafter\n").await;
}

#[tokio::test]
async fn an_exit_trap_runs_when_the_shell_exits() {
    let runner = Runner::start().await;
    runner.sh("trap 'echo bye >farewell' EXIT").await;
    assert_eq!(runner.sh("exit 5").await.code(), 5);
    assert_eq!(runner.output_of("cat farewell").await, "bye\n");
}

#[tokio::test]
async fn an_activated_virtual_environment_stays_active() {
    let runner = Runner::start().await;
    let made = runner.sh("/usr/bin/python3 -m venv --without-pip venv").await;
    if made.code() != 0 {
        return skipped("an_activated_virtual_environment_stays_active", &format!("no venv: {}", made.text().trim()));
    }
    runner.sh("source venv/bin/activate").await;
    let python = runner.workspace().join("venv/bin/python3");
    assert_eq!(runner.output_of("command -v python3").await, format!("{}\n", python.display()));
    runner.sh("deactivate").await;
    assert_ne!(runner.output_of("command -v python3").await, format!("{}\n", python.display()));
}

#[tokio::test]
async fn declare_at_top_level_is_not_local() {
    carries_over("declare x=1; declare -r y=2", "echo $x $y", "1 2\n").await;
}

#[tokio::test]
async fn variables_of_the_request_are_for_that_command_alone() {
    let runner = Runner::start().await;
    runner.sh("export KEPT=old").await;
    let inside = runner.exec(ask("echo $KEPT $ONCE; sh -c 'echo $ONCE'").env("KEPT", "new").env("ONCE", "a b")).await;
    assert_eq!(inside.text(), "new a b\na b\n");
    assert_eq!(runner.output_of("echo $KEPT ${ONCE-unset}").await, "old unset\n");
}

#[tokio::test]
async fn the_directory_of_the_request_is_for_that_command_alone() {
    let runner = Runner::start().await;
    let home = format!("{}\n", runner.workspace().display());
    assert_eq!(runner.exec(ask("pwd").cwd("/usr")).await.text(), "/usr\n");
    assert_eq!(runner.output_of("pwd").await, home);
    // A command that changes the directory itself stays there.
    assert_eq!(runner.exec(ask("cd /etc").cwd("/usr")).await.code(), 0);
    assert_eq!(runner.output_of("pwd").await, "/etc\n");
}

#[tokio::test]
async fn standard_input_of_the_request_is_read_and_then_empty() {
    let runner = Runner::start().await;
    assert_eq!(
        runner.exec(ask("read a; read b; echo $b$a; cat; echo end").stdin("1\n2\n3\n")).await.text(),
        "21\n3\nend\n"
    );
    assert_eq!(runner.output_of("cat; echo end").await, "end\n");
}

#[tokio::test]
async fn a_dead_shell_comes_back_with_its_state() {
    let runner = Runner::start().await;
    runner.sh("cd /usr; export A=1; f() { echo in f; }; alias g='echo in g'; shopt -s nullglob; set -o pipefail").await;
    let died = runner.sh("kill -9 $$").await;
    assert!(died.outcome.shell_restarted, "{:?}", died.outcome);
    let after = runner.sh("pwd; echo $A; f; g; shopt -q nullglob && false | true; echo $?").await;
    assert_eq!(after.text(), "/usr\n1\nin f\nin g\n1\n");
}

#[tokio::test]
async fn a_reset_shell_is_fresh() {
    let runner = Runner::start().await;
    runner.sh("cd /usr; export A=1; f() { :; }; set -u").await;
    runner.reset_shell("main").await;
    let fresh = format!("{}\nunset\nno f\n", runner.workspace().display());
    assert_eq!(runner.output_of("pwd; echo ${A-unset}; declare -F f || echo no f; : $nope").await, fresh);
}

#[tokio::test]
async fn shells_do_not_share_state() {
    let runner = Runner::start().await;
    runner.open("other").await;
    runner.sh("cd /usr; x=main").await;
    let other = runner.exec(ask("pwd; echo ${x-unset}").in_shell("other")).await;
    assert_eq!(other.text(), format!("{}\nunset\n", runner.workspace().display()));
}

#[tokio::test]
async fn a_shell_can_begin_with_a_copy_of_another() {
    let runner = Runner::start().await;
    runner.sh("cd /usr; export A=1; f() { echo in f; }; alias g='echo in g'").await;
    let name = Some(ShellName::new("copy").unwrap());
    runner.open_shell(&OpenShellRequest { name, from: Some(ShellName::main()), ..Default::default() }).await;
    assert_eq!(runner.exec(ask("pwd; echo $A; f; g").in_shell("copy")).await.text(), "/usr\n1\nin f\nin g\n");
}

#[tokio::test]
async fn state_carries_over_in_every_stream_mode() {
    let runner = Runner::start().await;
    runner.tty("x=tty; cd /usr").await;
    runner.split("x+=,split").await;
    runner.sh("x+=,merged").await;
    assert_eq!(runner.tty("echo $x in $PWD").await.tty_text(), "tty,split,merged in /usr\n");
}

#[tokio::test]
async fn nothing_waits_for_a_key_by_default() {
    let runner = Runner::start().await;
    let quiet = "cat cat 0 noninteractive 1\n";
    let names = "$PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT $DEBIAN_FRONTEND $PYTHONUNBUFFERED";
    assert_eq!(runner.output_of(&format!("sh -c 'echo {names}'")).await, quiet);
}

#[tokio::test]
async fn state_carries_over_where_the_runner_is_pid_1() {
    if !e2e::is_root() {
        return skipped("state_carries_over_where_the_runner_is_pid_1", "a pid namespace needs root");
    }
    let runner = Runner::start_as_pid1().await;
    assert_eq!(runner.health().await.pid, 1);
    runner.sh("cd /usr; plain=1; f() { echo f $plain; }; alias g=f").await;
    assert_eq!(runner.output_of("pwd; g; ps -o pid= -p 1 | tr -d ' '").await, "/usr\nf 1\n1\n");
}

/// Bash 5.2 damages its own memory in this case, and used to die at one of the next commands, which then ended with 134.
#[tokio::test]
async fn after_an_open_command_substitution_commands_end_as_they_should() {
    let runner = Runner::start().await;
    for turn in 0..10 {
        runner.output_of(&format!("export TURN={turn}; cd /tmp")).await;
        // The command ends by a refusal or by the death of bash, never with success.
        assert_ne!(runner.sh("echo $(date").await.code(), 0);
        for _ in 0..10 {
            let next = runner.sh("echo $TURN $PWD").await;
            assert_eq!((next.text(), next.code()), (format!("{turn} /tmp\n"), 0));
        }
    }
}

#[tokio::test]
async fn the_script_of_a_closed_shell_does_not_go_on_after_its_program() {
    let runner = Runner::start().await;
    for turn in 0..CLOSED_SHELLS {
        let name = format!("s{turn}");
        runner.open(&name).await;
        let mut stream = runner.exec_stream(ask("echo begun; sleep 1000; echo went on >> mark").in_shell(&name)).await;
        stream.until_output("begun").await;
        runner.close_shell(&name).await;
        let (transcript, _) = stream.drain().await;
        assert_eq!(transcript.text(), "begun\n");
    }
    assert!(!runner.workspace().join("mark").exists());
}

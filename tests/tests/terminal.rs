//! A person at the keyboard: an interactive bash with its prompt, on a raw attach.

use std::time::Duration;

use e2e::{Ask as _, Attached, DEADLINE, Runner, ask, wait_until};
use hyper::Method;
use shared_protocol::ShellName;
use shared_protocol::runner::{OpenShellRequest, ShellEndView, ShellKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// An attached terminal and everything that it has printed.
struct Screen {
    io: Attached,
    printed: String,
}

impl Screen {
    async fn attach(runner: &Runner, shell: &str) -> Self {
        Self { io: runner.attach(shell, 80, 24).await, printed: String::new() }
    }

    async fn types(&mut self, keys: &str) {
        self.io.write_all(keys.as_bytes()).await.expect("the terminal takes it");
    }

    /// Reads until `needle` was printed, and forgets the output up to it.
    async fn shows(&mut self, needle: &str) {
        let reading = async {
            while !self.printed.contains(needle) {
                let mut buffer = [0; 4096];
                let count = self.io.read(&mut buffer).await.expect("the terminal is there");
                assert!(count > 0, "the terminal closed before {needle:?}: {:?}", self.printed);
                self.printed.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        };
        if tokio::time::timeout(DEADLINE, reading).await.is_err() {
            panic!("{needle:?} was not shown: {:?}", self.printed);
        }
        let end = self.printed.find(needle).expect("it was just found") + needle.len();
        self.printed.drain(..end);
    }

    /// Waits until the other side closes the connection.
    async fn closes(&mut self) {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(DEADLINE, self.io.read_to_end(&mut rest)).await;
        assert!(read.is_ok(), "still open; it printed {:?}", String::from_utf8_lossy(&rest));
    }
}

async fn open_terminal(runner: &Runner, name: &str, from: Option<ShellName>) {
    let name = Some(ShellName::new(name).expect("a valid name"));
    let env = [("PS1".to_owned(), "prompt> ".to_owned())].into();
    runner.open_shell(&OpenShellRequest { name, kind: ShellKind::Terminal, from, env, ..Default::default() }).await;
}

#[tokio::test]
async fn login_files_do_not_override_the_path_of_the_session() {
    let path = "/of-the-session:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let builder = Runner::builder().env("PATH", path).env("COVE_RUNNER_SESSION_VARIABLES", "PATH");
    let runner = builder.start().await;
    open_terminal(&runner, "person", None).await;
    let mut screen = Screen::attach(&runner, "person").await;
    screen.shows("prompt> ").await;
    screen.types("echo \"<${PATH%%:*}>\"; ls /proc/self/fd | tr '\\n' ,\n").await;
    screen.shows("</of-the-session>").await;
    // `ls` itself has the fourth one open.
    screen.shows("0,1,2,3,").await;
    screen.shows("prompt> ").await;
}

#[tokio::test]
async fn an_interactive_shell_has_a_prompt_and_echoes_what_is_typed() {
    let runner = Runner::start().await;
    open_terminal(&runner, "person", None).await;
    let mut screen = Screen::attach(&runner, "person").await;
    screen.types("echo six times seven is $((6 * 7))\r").await;
    screen.shows("echo six times seven is $((6 * 7))").await;
    screen.shows("six times seven is 42").await;
    screen.types("[[ $- == *i* ]] && echo inter''active\r").await;
    screen.shows("interactive").await;
}

#[tokio::test]
async fn a_person_has_a_pager_prompts_and_colours() {
    let runner = Runner::start().await;
    runner.sh("export KEPT=1").await;
    for (name, from) in [("fresh", None), ("copy", Some(ShellName::main()))] {
        open_terminal(&runner, name, from).await;
        let mut screen = Screen::attach(&runner, name).await;
        let names = "$PAGER$GIT_PAGER$GIT_TERMINAL_PROMPT$DEBIAN_FRONTEND$PYTHONUNBUFFERED";
        screen.types(&format!("echo \"with<{names}>$TERM\"\r")).await;
        screen.shows("with<>xterm-256color").await;
        screen.types("mkdir -p /tmp/colours/directory; ls /tmp/colours; rm -r /tmp/colours\r").await;
        screen.shows("\u{1b}[01;34mdirectory").await;
    }
    // Commands still have what keeps them from waiting for a key.
    assert_eq!(runner.output_of("echo $PAGER $KEPT").await, "cat 1\n");
}

#[tokio::test]
async fn lines_can_be_edited_and_programs_interrupted() {
    let runner = Runner::start().await;
    open_terminal(&runner, "person", None).await;
    let mut screen = Screen::attach(&runner, "person").await;
    screen.types("echo wronk\u{7f}g | tr a-z A-Z\r").await;
    screen.shows("WRONG").await;
    screen.types("echo be''fore; sleep 1000\r").await;
    screen.shows("before").await;
    runner.until_program("sleep").await;
    screen.types("\u{3}").await;
    screen.types("echo status $((100 + $?))\r").await;
    screen.shows("status 230").await;
}

#[tokio::test]
async fn an_attach_sets_the_size_and_a_resize_changes_it() {
    let runner = Runner::start().await;
    open_terminal(&runner, "person", None).await;
    let mut screen = Screen { io: runner.attach("person", 97, 31).await, printed: String::new() };
    screen.types("stty size\r").await;
    screen.shows("31 97").await;
    runner.resize(Some("person"), 120, 50).await;
    screen.types("stty size\r").await;
    screen.shows("50 120").await;
}

#[tokio::test]
async fn exit_closes_the_terminal() {
    let runner = Runner::start().await;
    open_terminal(&runner, "person", None).await;
    let mut screen = Screen::attach(&runner, "person").await;
    screen.types("exit\r").await;
    screen.closes().await;
}

#[tokio::test]
async fn how_a_terminal_ended_can_be_asked_for() {
    let runner = Runner::start().await;
    open_terminal(&runner, "person", None).await;
    let mut screen = Screen::attach(&runner, "person").await;
    assert_eq!(runner.raw(Method::GET, "/v1/shells/person/end", "").await.status, 404);
    screen.types("exit 7\n").await;
    screen.closes().await;
    let end: ShellEndView = runner.get("/v1/shells/person/end").await.expect("it has just ended");
    assert_eq!(end.exit_code, 7);
}

#[tokio::test]
async fn who_detaches_finds_everything_as_it_was() {
    let runner = Runner::start().await;
    open_terminal(&runner, "person", None).await;
    let mut screen = Screen::attach(&runner, "person").await;
    screen.types("cd /usr; x=kept; echo read''y\r").await;
    screen.shows("ready").await;
    drop(screen);
    let mut again = Screen::attach(&runner, "person").await;
    again.types("echo \"<$x in $PWD>\"\r").await;
    again.shows("<kept in /usr>").await;
}

#[tokio::test]
async fn a_program_goes_on_while_nobody_is_attached() {
    let runner = Runner::start().await;
    open_terminal(&runner, "person", None).await;
    let mut screen = Screen::attach(&runner, "person").await;
    screen.types("echo be''gun; sleep 0.2; touch finished\r").await;
    screen.shows("begun").await;
    drop(screen);
    let file = runner.workspace().join("finished");
    wait_until("the program finished", Duration::from_secs(10), async || file.exists().then_some(())).await;
}

#[tokio::test]
async fn two_who_attach_see_the_same() {
    let runner = Runner::start().await;
    open_terminal(&runner, "person", None).await;
    let mut first = Screen::attach(&runner, "person").await;
    let mut second = Screen::attach(&runner, "person").await;
    first.types("echo shar''ed\r").await;
    first.shows("shared").await;
    second.shows("shared").await;
}

#[tokio::test]
async fn a_terminal_can_begin_with_the_state_of_another_shell() {
    let runner = Runner::start().await;
    runner.sh("cd /usr; export COLOUR=blue; greet() { echo hello $1; }; alias hi=greet").await;
    open_terminal(&runner, "person", Some(ShellName::main())).await;
    let mut screen = Screen::attach(&runner, "person").await;
    screen.types("echo \"<$PWD $COLOUR>\"; hi yo''u\r").await;
    screen.shows("</usr blue>").await;
    screen.shows("hello you").await;
}

#[tokio::test]
async fn a_terminal_takes_no_commands() {
    let runner = Runner::start().await;
    open_terminal(&runner, "person", None).await;
    let refused = runner.try_exec_stream(&ask("true").in_shell("person")).await.err().unwrap();
    assert!((400..500).contains(&refused.status), "{refused:?}");
}

#[tokio::test]
async fn input_by_request_reaches_the_same_terminal() {
    let runner = Runner::start().await;
    open_terminal(&runner, "person", None).await;
    let mut screen = Screen::attach(&runner, "person").await;
    runner.input_to(Some("person"), "echo by re''quest\r").await;
    screen.shows("by request").await;
}

#[tokio::test]
async fn a_closed_terminal_leaves_no_process() {
    let runner = Runner::start().await;
    runner.sh("true").await;
    open_terminal(&runner, "person", None).await;
    let mut screen = Screen::attach(&runner, "person").await;
    screen.types("echo be''gun; sleep 1000\r").await;
    screen.shows("begun").await;
    runner.close_shell("person").await;
    screen.closes().await;
    wait_until("its processes are gone", Duration::from_secs(10), async || {
        (!runner.descendants().iter().any(|p| p.name == "sleep")).then_some(())
    })
    .await;
    assert!(runner.shells().await.iter().all(|s| s.name.as_str() != "person"));
}

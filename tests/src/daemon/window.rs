//! A terminal window like a person's: a real PTY in which a command of `cove` runs, the keys that are typed into it, and the
//! screen that its output draws.
//!
//! The window outlives the command, as a person's shell would. However the command ends, [`TerminalWindow::ended`] checks
//! that it restored the terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use vt100::{Parser, Screen};

use super::Cove;
use crate::wait::{DEADLINE, blocks_until, wait_until};

/// The size of a new window.
const COLS: u16 = 80;
const ROWS: u16 = 24;

/// The longest wait for the end. A command with its own daemon has to stop it first.
const END_DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

/// Questions of programs and what a terminal types as the answer: where the cursor is, and what the terminal is.
const ANSWERS: &[(&[u8], &[u8])] =
    &[(b"\x1b[6n", b"\x1b[2;2R"), (b"\x1b[>c", b"\x1b[>84;0;0c"), (b"\x1b[c", b"\x1b[?1;2c")];

pub struct TerminalWindow {
    master: Box<dyn MasterPty + Send>,
    /// The program's side of the terminal, held open so that the terminal still exists after the program has ended.
    terminal: File,
    child: Box<dyn Child + Send + Sync>,
    keys: Sender<Vec<u8>>,
    screen: Arc<Mutex<Parser>>,
    /// The terminal's modes before the program started.
    found: Termios,
}

/// How a command in a window ended, and the last screen.
#[derive(Debug)]
pub struct WindowEnd {
    pub code: u32,
    pub screen: String,
}

impl TerminalWindow {
    /// Opens a window in which `cove ARGS` runs. It does not answer what programs ask the terminal.
    pub fn open(cove: &Cove, args: &[&str]) -> Self {
        Self::with(&cove.command(args), &[])
    }

    /// Opens a window that answers a few of the questions that every real terminal answers.
    pub fn open_answering(cove: &Cove, args: &[&str]) -> Self {
        Self::with(&cove.command(args), ANSWERS)
    }

    /// Opens a window in which another program runs, with the environment of commands.
    pub fn open_program(cove: &Cove, program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args);
        for (name, value) in cove.command(&[""; 0]).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Self::with(&command, &[])
    }

    fn with(command: &Command, answers: &'static [(&[u8], &[u8])]) -> Self {
        let size = PtySize { rows: ROWS, cols: COLS, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a PTY");
        let path = pair.master.tty_name().expect("a terminal has a name");
        let terminal = OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_NOCTTY).open(path);
        let terminal = terminal.expect("our own terminal");
        let found = tcgetattr(&terminal).expect("a terminal has modes");
        let screen = Arc::new(Mutex::new(Parser::new(cells(ROWS), cells(COLS), 0)));
        let output = pair.master.try_clone_reader().expect("a second handle");
        let input = pair.master.take_writer().expect("taken once");
        let (keys, typed) = mpsc::channel();
        let shown = Arc::clone(&screen);
        let answer = keys.clone();
        std::thread::spawn(move || show(output, &shown, answers, &answer));
        std::thread::spawn(move || type_keys(input, &typed));
        let child = pair.slave.spawn_command(in_pty(command)).expect("cove can be started");
        Self { master: pair.master, terminal, child, keys, screen, found }
    }

    /// Types keys. It does not wait until the program has read them.
    pub fn types(&self, keys: impl AsRef<[u8]>) {
        self.keys.send(keys.as_ref().to_vec()).expect("the terminal takes keys");
    }

    /// Changes the size of the window, as a person does with the mouse.
    pub fn resize(&self, cols: u16, rows: u16) {
        self.parser().screen_mut().set_size(cells(rows), cells(cols));
        self.master.resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }).expect("our own terminal");
    }

    fn parser(&self) -> MutexGuard<'_, Parser> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The text on the screen, row by row.
    pub fn text(&self) -> String {
        self.parser().screen().contents()
    }

    /// Waits until the screen satisfies `condition`.
    pub async fn until(&self, what: &str, condition: impl Fn(&Screen) -> bool) {
        let waited = tokio::time::timeout(
            DEADLINE,
            wait_until(what, DEADLINE * 2, async || condition(self.parser().screen()).then_some(())),
        );
        if waited.await.is_err() {
            panic!("{what}: not within {DEADLINE:?}. The screen:\n{}", self.text());
        }
    }

    /// Waits until the screen shows this text.
    pub async fn shows(&self, text: &str) {
        self.until(&format!("the screen shows {text:?}"), |screen| screen.contents().contains(text)).await;
    }

    /// Waits until a shell waits for a command: the cursor is after a prompt.
    pub async fn prompts(&self) {
        self.until("a prompt", |screen| line_of_cursor(screen).ends_with('$')).await;
    }

    /// The current modes of the terminal.
    pub fn modes(&self) -> Termios {
        tcgetattr(&self.terminal).expect("our own terminal")
    }

    /// Whether the program has changed the modes since its start, which it does to make the terminal raw.
    pub fn is_changed(&self) -> bool {
        self.modes() != self.found
    }

    /// Restores the modes from before the program, as a shell does when it takes the terminal back.
    pub fn put_modes_back(&self) {
        tcsetattr(&self.terminal, SetArg::TCSANOW, &self.found).expect("our own terminal");
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.process_id().expect("a process has an id")).expect("a pid")
    }

    /// Waits until the command has ended, and checks that it restored the terminal.
    pub async fn ended(mut self) -> WindowEnd {
        let status =
            wait_until("the command's end", END_DEADLINE, async || self.child.try_wait().expect("our own child"));
        let code = status.await.exit_code();
        assert!(!self.is_changed(), "the terminal is not as it was: {:?} before, {:?} now", self.found, self.modes());
        // The last output may still be on its way to the screen, so a mark is printed after it.
        self.terminal.write_all(b"\r\nend of the command").expect("our own terminal");
        self.shows("end of the command").await;
        let parser = self.parser();
        let screen = parser.screen();
        assert!(!screen.alternate_screen(), "the alternate screen is still shown:\n{}", screen.contents());
        assert!(!screen.hide_cursor(), "the cursor is hidden");
        assert!(!screen.application_cursor() && !screen.application_keypad(), "keys are not those of a line editor");
        assert!(!screen.bracketed_paste(), "pastes are still bracketed");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None, "the mouse is still reported");
        WindowEnd { code, screen: screen.contents() }
    }
}

impl Drop for TerminalWindow {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        if std::thread::panicking() {
            eprintln!("-- the screen:\n{}", self.text());
        }
        let _ = self.child.kill();
        blocks_until(DEADLINE, || self.child.try_wait().is_ok_and(|status| status.is_some()));
    }
}

/// The same command in a form for a PTY.
fn in_pty(command: &Command) -> CommandBuilder {
    let mut builder = CommandBuilder::new(command.get_program());
    builder.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => builder.env(name, value),
            None => builder.env_remove(name),
        }
    }
    builder.env("TERM", "xterm-256color");
    builder.env("LANG", "C.UTF-8");
    builder
}

/// Draws the output until the window is closed, and types the answers to its questions.
fn show(mut output: impl Read, screen: &Mutex<Parser>, answers: &[(&[u8], &[u8])], keys: &Sender<Vec<u8>>) {
    let mut buffer = [0; 4096];
    let (mut seen, mut answered) = (Vec::new(), vec![0; answers.len()]);
    while let Ok(count @ 1..) = output.read(&mut buffer) {
        screen.lock().unwrap_or_else(PoisonError::into_inner).process(&buffer[..count]);
        seen.extend_from_slice(&buffer[..count]);
        for ((question, answer), answered) in answers.iter().zip(&mut answered) {
            let asked = seen.windows(question.len()).filter(|window| window == question).count();
            for _ in *answered..asked {
                let _ = keys.send(answer.to_vec());
            }
            *answered = asked;
        }
    }
}

/// Types in a separate thread: a terminal whose program does not read takes only a few kilobytes.
fn type_keys(mut input: impl Write, typed: &Receiver<Vec<u8>>) {
    while let Ok(keys) = typed.recv() {
        if input.write_all(&keys).and_then(|()| input.flush()).is_err() {
            return;
        }
    }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).expect("a window has rows and columns")
}

fn line_of_cursor(screen: &Screen) -> String {
    let (row, _) = screen.cursor_position();
    let (_, cols) = screen.size();
    screen.rows(0, cols.get()).nth(usize::from(row)).unwrap_or_default().trim_end().to_owned()
}

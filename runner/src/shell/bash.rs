//! One bash: the process, its terminal, and two sockets. On its standard input the runner sends commands, and bash says that
//! one begins; on its standard output bash reports the end of a command.
//!
//! The runner reads the first socket only when it needs to know whether a command had begun: that message wakes nobody.
//!
//! This code carries bytes and decides nothing; the machine decides. After the process has exited, it first returns
//! everything left in the socket and on the terminal, then the exit, then nothing.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::termios::Termios;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::control::{Parser, Record};
use super::scratch::Scratch;
use super::script;
use crate::environment::Environment;
use crate::reaper::{ChildEvent, Exit, Reaper, Watch};
use crate::sys::identity::Identity;
use crate::sys::spawn::{Session, spawn};
use crate::sys::tty::{self, Master, Size, Slave};
use crate::sys::{pipe, proc, signal};

/// The most typed bytes that wait for a program that does not read them.
pub const MAX_PENDING_INPUT: usize = 64 << 10;

const READ_BYTES: usize = 16 << 10;

/// The most reads that empty the terminal at once.
const MAX_TERMINAL_READS: usize = 64;

/// A process that has used this much processor time is not starved: it is busy.
const SPINNING: Duration = Duration::from_secs(2);

/// The most messages that are read from a socket at once. Its buffer holds fewer.
const MAX_MESSAGES: usize = 1024;

pub enum Event {
    Record(Record),
    /// Output of the terminal.
    Terminal(Vec<u8>),
    Stopped,
    Exited(Exit),
}

pub struct Bash {
    pub watch: Watch,
    pub scratch: Scratch,
    /// The other end of bash's standard input. It is not registered with the event loop.
    commands: OwnedFd,
    begun: Begun,
    /// The other end of bash's standard output.
    reports: AsyncFd<OwnedFd>,
    /// Whether no process holds the other end of `reports` any more.
    is_hung_up: bool,
    parser: Parser,
    terminal: AsyncFd<Master>,
    slave: Slave,
    fresh_modes: Termios,
    /// The typed bytes that the terminal has not taken yet.
    input: VecDeque<u8>,
    was_typed_at: bool,
    events: VecDeque<Event>,
}

/// What bash said about commands that begin.
#[derive(Default)]
struct Begun {
    parser: Parser,
    /// The variable of the command that began last.
    last: Option<String>,
}

pub struct BashSpec<'a> {
    pub program: &'a Path,
    pub identity: Identity,
    /// The environment. `None`: bash gets all its variables from the state that it restores.
    pub environment: Option<&'a Environment>,
    pub size: Size,
}

impl Bash {
    pub fn start(spec: &BashSpec<'_>, reaper: &Reaper, scratch: Scratch) -> io::Result<Self> {
        let owner = spec.identity.switch.then_some((spec.identity.uid, spec.identity.gid));
        let (master, slave) = tty::open(spec.size, owner)?;
        let fresh_modes = slave.modes()?;
        let (stdin, commands) = pipe::message_pair()?;
        let (stdout, reports) = pipe::message_pair()?;
        let mut command = Command::new(spec.program);
        command.args(["--noprofile", "--noediting", "-l", "-i"]);
        command.env_clear();
        if let Some(environment) = spec.environment {
            command.envs(environment.variables());
        }
        // Bash looks for its terminal at /dev/tty, which gVisor does not open, and then at its standard error. Without a
        // terminal it has no job control. The first line that the runner sends redirects standard error to /dev/null.
        let errors = if master.tells_foreground() { Stdio::null() } else { slave.try_clone()?.into() };
        command.stdin(stdin).stdout(stdout).stderr(errors).current_dir("/");
        let pid = spawn(command, spec.identity, Session::Terminal(&slave))?;
        Ok(Self {
            watch: reaper.watch_program(pid),
            scratch,
            commands,
            begun: Begun::default(),
            reports: crate::sys::poll::register(reports, Interest::READABLE)?,
            is_hung_up: false,
            parser: Parser::default(),
            terminal: crate::sys::poll::register(master, Interest::READABLE | Interest::WRITABLE)?,
            slave,
            fresh_modes,
            input: VecDeque::new(),
            was_typed_at: false,
            events: VecDeque::new(),
        })
    }

    pub fn pid(&self) -> i32 {
        self.watch.pid()
    }

    pub fn terminal_path(&self) -> &Path {
        &self.slave.path
    }

    /// Sends a line for bash to run, as a whole or not at all. If the socket is full, bash does not read.
    pub fn send_line(&self, line: &str) -> io::Result<()> {
        if line.len() > script::MAX_LINE_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        nix::unistd::write(&self.commands, line.as_bytes())?;
        Ok(())
    }

    /// Whether bash has said that the command with this variable begins. Also makes room for the next such message, which a
    /// command could take up with its own.
    pub fn has_begun(&mut self, variable: &str) -> bool {
        let (pid, mut buffer) = (self.pid(), [0; READ_BYTES]);
        for _ in 0..MAX_MESSAGES {
            if self.begun.last.as_deref() == Some(variable) {
                return true;
            }
            match pipe::receive(&self.commands, &mut buffer) {
                Ok((count, writer)) if count > 0 => {
                    if writer == Some(pid) {
                        self.begun.feed(&buffer[..count]);
                    }
                }
                _ => break,
            }
        }
        // On gVisor the message of a bash that has ended is not to be had. What may have begun must not run a second time.
        !self.terminal.get_ref().tells_foreground()
    }

    /// Whether bash is asleep and in the terminal's foreground: at its prompt, or in a builtin that waits. A program that
    /// replaced bash by `exec` is not bash, and has no socket.
    pub fn sleeps(&self) -> bool {
        !self.is_hung_up
            && self.terminal.get_ref().foreground() == Some(self.pid())
            && proc::stat(self.pid()).is_some_and(|s| s.state == b'S')
    }

    /// Whether bash has sent a report that the driver has not handled yet.
    pub fn has_reported(&mut self) -> bool {
        self.receive_reports();
        self.events.iter().any(|event| matches!(event, Event::Record(_)))
    }

    /// The next event that is already here.
    pub fn next_received(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.receive_reports();
        }
        self.events.pop_front()
    }

    /// Whether bash or one of its programs could go on and gets no processor or no answer of a disk.
    pub fn is_starved(&self) -> bool {
        let waits = |pid: i32| {
            proc::stat(pid).is_some_and(|stat| matches!(stat.state, b'R' | b'D') && stat.processor_time < SPINNING)
        };
        waits(self.pid()) || self.children().into_iter().any(waits)
    }

    /// Whether bash has read every line that was sent. It reads a line only after it has run all lines before it.
    pub fn has_read_all(&self) -> bool {
        self.unread() == 0
    }

    /// How much of the sent lines bash has not read yet, in the kernel's own measure.
    pub fn unread(&self) -> usize {
        pipe::unsent(&self.commands)
    }

    /// Waits for the next event. Without `read_terminal`, the terminal's output stays in the kernel.
    pub async fn next(&mut self, read_terminal: bool) -> Event {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            tokio::select! {
                ready = self.reports.readable(), if !self.is_hung_up => {
                    if let Ok(mut ready) = ready {
                        let mut buffer = [0; READ_BYTES];
                        if let Ok(Ok(received)) = ready.try_io(|fd| pipe::receive(fd, &mut buffer)) {
                            self.on_message(&buffer, received);
                        }
                    }
                }
                ready = self.terminal.readable(), if read_terminal => {
                    if let Ok(mut ready) = ready {
                        let mut buffer = [0; READ_BYTES];
                        if let Ok(Ok(count)) = ready.try_io(|fd| fd.get_ref().read(&mut buffer)) {
                            self.events.push_back(Event::Terminal(buffer[..count].to_vec()));
                        }
                    }
                }
                ready = self.terminal.writable(), if !self.input.is_empty() => {
                    if let Ok(mut ready) = ready {
                        let (front, _) = self.input.as_slices();
                        if let Ok(Ok(count)) = ready.try_io(|fd| fd.get_ref().write(front)) {
                            self.input.drain(..count);
                        }
                    }
                }
                event = self.watch.next() => match event {
                    ChildEvent::Stopped => return Event::Stopped,
                    ChildEvent::Exited(exit) => {
                        self.read_the_rest();
                        self.events.push_back(Event::Exited(exit));
                    }
                },
            }
        }
    }

    /// Handles a message from the socket. Another process may hold a copy of bash's end; messages from it are ignored.
    fn on_message(&mut self, buffer: &[u8], (count, writer): (usize, Option<i32>)) {
        if count == 0 {
            self.is_hung_up = true;
        } else if writer == Some(self.watch.pid()) {
            self.parser.feed(&buffer[..count], |r| self.events.push_back(Event::Record(r)));
        }
    }

    /// Reads the reports that are in the socket.
    fn receive_reports(&mut self) {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..MAX_MESSAGES {
            match pipe::receive(self.reports.get_ref(), &mut buffer) {
                Ok(received) if received.0 > 0 => self.on_message(&buffer, received),
                _ => break,
            }
        }
    }

    fn read_the_rest(&mut self) {
        self.receive_reports();
        if let Some(bytes) = self.drain_terminal() {
            self.events.push_back(Event::Terminal(bytes));
        }
    }

    /// Reads what is on the terminal now. The kernel includes everything that was written before this call, so after a
    /// command's end none of its output is missing.
    pub fn drain_terminal(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut buffer = [0; READ_BYTES];
        for _ in 0..MAX_TERMINAL_READS {
            match self.terminal.get_ref().read(&mut buffer) {
                Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
                _ => break,
            }
        }
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Types bytes at the terminal. Returns false if too many bytes already wait to be read.
    pub fn type_in(&mut self, bytes: &[u8]) -> bool {
        if self.input.len() + bytes.len() > MAX_PENDING_INPUT {
            return false;
        }
        self.was_typed_at = true;
        let mut rest = bytes;
        if self.input.is_empty()
            && let Ok(count) = self.terminal.get_ref().write(bytes)
        {
            rest = &bytes[count..];
        }
        self.input.extend(rest);
        true
    }

    pub fn resize(&self, size: Size) -> io::Result<()> {
        self.terminal.get_ref().resize(size)
    }

    /// Resets the terminal: restores its modes and discards typed input.
    pub fn refresh_terminal(&mut self) {
        if std::mem::take(&mut self.was_typed_at) {
            self.input.clear();
            self.slave.discard_typed();
        }
        let _ = self.slave.restore_modes(&self.fresh_modes);
    }

    /// The foreground process group, if this shell started it.
    ///
    /// The terminal may hold the number of a group that ended long ago, and another process may have that number now. If
    /// that process belongs to another session, the group is not this shell's. If no process has the number, the kernel has
    /// not given it to another process.
    pub fn foreground(&self) -> Option<i32> {
        let group = self.terminal.get_ref().foreground()?;
        let is_ours = proc::stat(group).is_none_or(|s| s.session == self.pid() && s.group == group);
        is_ours.then_some(group)
    }

    /// Signals the foreground group.
    pub fn signal_foreground(&self, number: i32) -> io::Result<()> {
        if matches!(number, libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP)
            && self.terminal.get_ref().signal_foreground(number).is_ok()
        {
            return Ok(());
        }
        match self.in_front() {
            Some(group) => signal::kill_group(group, number),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The group of the job that this shell started last, or bash's own group, on a kernel that does not report the
    /// foreground group. While bash waits for a foreground job it starts no other job, so the last job is the foreground
    /// job, unless bash itself is busy and the last job is in the background. `None` on a kernel that reports it.
    fn newest_job(&self) -> Option<i32> {
        let leads = |pid: &i32| proc::stat(*pid).is_some_and(|s| s.group == *pid);
        let is_told = self.terminal.get_ref().tells_foreground();
        (!is_told).then(|| self.children().into_iter().filter(leads).max().unwrap_or(self.pid()))
    }

    /// Bash's child processes in its session, whether or not they lead a group.
    pub fn children(&self) -> Vec<i32> {
        let shell = self.pid();
        let is_child = |pid: &i32| proc::stat(*pid).is_some_and(|s| s.parent == shell && s.session == shell);
        proc::pids().unwrap_or_default().into_iter().filter(is_child).collect()
    }

    /// Whether a child of bash would lose an interrupt: it still has bash's signal handlers, and forgets a caught signal
    /// when it becomes its program or subshell. `None` if the kernel does not tell and the child still has bash's name.
    pub fn loses_interrupts(&self, child: i32) -> Option<bool> {
        match proc::catches_and_ignores(child, libc::SIGINT, libc::SIGQUIT) {
            None if proc::name(child).is_some_and(|name| Some(name) == proc::name(self.pid())) => None,
            told => Some(told.unwrap_or(false)),
        }
    }

    /// Whether an interrupt would now go to bash itself or to a child that loses it. If the kernel does not tell, the answer
    /// is true if that is possible.
    pub fn may_lose_interrupts(&self) -> bool {
        self.foreground().is_none_or(|group| group == self.pid() || self.loses_interrupts(group) != Some(false))
    }

    /// The foreground group, or the likely one if the kernel does not report it.
    pub fn in_front(&self) -> Option<i32> {
        self.foreground().or_else(|| self.newest_job())
    }

    /// Whether a foreground program waits for input at the terminal. `None` if the kernel does not tell.
    pub fn is_awaiting_input(&self) -> Option<bool> {
        let group = self.foreground()?;
        let mut seen = None;
        for pid in proc::pids().ok()? {
            if proc::stat(pid).is_some_and(|s| s.group == group && s.state == b'S') {
                match proc::waits_for_terminal(pid, self.terminal_path()) {
                    Some(true) => return Some(true),
                    other => seen = seen.or(other),
                }
            }
        }
        seen
    }
}

impl Begun {
    fn feed(&mut self, bytes: &[u8]) {
        let last = &mut self.last;
        self.parser.feed(bytes, |record| {
            if let Record::Begun { variable } = record {
                *last = Some(variable);
            }
        });
    }
}

impl std::fmt::Debug for Bash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bash(pid {}, terminal {})", self.pid(), self.terminal.get_ref().as_raw_fd())
    }
}

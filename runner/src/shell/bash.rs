//! One incarnation of bash: the process, its terminal, and the socket by which its commands come and its reports go.
//!
//! It carries bytes and decides nothing; the driver does. When the process has ended the incarnation is over: whatever it
//! left in the socket and on the terminal is given first, then the exit, then nothing.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::termios::Termios;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::control::{Parser, Record};
use super::scratch::Scratch;
use super::script::{self, Mark};
use crate::environment::Environment;
use crate::reaper::{ChildEvent, Exit, Reaper, Watch};
use crate::sys::identity::Identity;
use crate::sys::spawn::{Session, spawn};
use crate::sys::tty::{self, Master, Size, Slave};
use crate::sys::{pipe, proc, signal};

/// Bytes typed at a terminal whose program does not read them.
pub const MAX_PENDING_INPUT: usize = 64 << 10;

const READ_BYTES: usize = 16 << 10;

/// Reads in a row of what an ended bash has left behind.
const MAX_LAST_READS: usize = 64;

pub enum Event {
    Record(Record),
    /// Printed on the terminal.
    Terminal(Vec<u8>),
    Stopped,
    Exited(Exit),
}

pub struct Bash {
    pub watch: Watch,
    pub scratch: Scratch,
    socket: AsyncFd<OwnedFd>,
    /// Nobody holds the other end any more.
    is_hung_up: bool,
    parser: Parser,
    terminal: AsyncFd<Master>,
    slave: Slave,
    fresh_modes: Termios,
    /// Typed, and not yet taken by the terminal.
    input: VecDeque<u8>,
    was_typed_at: bool,
    events: VecDeque<Event>,
}

pub struct BashSpec<'a> {
    pub program: &'a Path,
    pub identity: Identity,
    /// `None`: nothing but what the state to be restored brings.
    pub environment: Option<&'a Environment>,
    pub size: Size,
}

impl Bash {
    pub fn start(spec: &BashSpec<'_>, reaper: &Reaper, scratch: Scratch) -> io::Result<Self> {
        let owner = spec.identity.switch.then_some((spec.identity.uid, spec.identity.gid));
        let (master, slave) = tty::open(spec.size, owner)?;
        let fresh_modes = slave.modes()?;
        let (commands, socket) = pipe::message_pair()?;
        let mut command = Command::new(spec.program);
        command.args(["--noprofile", "--noediting", "-l", "-i"]);
        command.env_clear();
        if let Some(environment) = spec.environment {
            command.envs(environment.variables());
        }
        // Bash looks for its terminal at /dev/tty, which gVisor does not open, and then at its standard error. Without one it has no
        // job control. The first line that it is sent turns its errors away.
        let errors = if master.tells_foreground() { Stdio::null() } else { slave.try_clone()?.into() };
        command.stdin(commands).stdout(Stdio::null()).stderr(errors).current_dir("/");
        let pid = spawn(command, spec.identity, Session::Terminal(&slave))?;
        Ok(Self {
            watch: reaper.watch(pid),
            scratch,
            socket: crate::sys::poll::register(socket, Interest::READABLE)?,
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

    /// Sends a line to be run. It goes whole or not at all; a socket that is full belongs to a shell that reads nothing.
    pub fn feed(&self, line: &str) -> io::Result<()> {
        if line.len() > script::MAX_LINE_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        nix::unistd::write(self.socket.get_ref(), line.as_bytes())?;
        Ok(())
    }

    /// Has the line about a command's end run once more: an interrupt may have hit the first.
    pub fn feed_tail(&self, mark: &Mark) {
        let _ = self.feed(&script::tail_line(self.scratch.dir(), mark));
    }

    /// Whether bash sleeps as its terminal's foreground: at its prompt, or in a builtin that waits. What it was replaced with
    /// by `exec` is not bash, and has no socket.
    pub fn sleeps(&self) -> bool {
        !self.is_hung_up
            && self.terminal.get_ref().foreground() == Some(self.pid())
            && proc::stat(self.pid()).is_some_and(|s| s.state == b'S')
    }

    /// Whether bash has read every line it was sent. It reads the next one only when all before it have been run.
    pub fn has_read_all(&self) -> bool {
        self.unread() == 0
    }

    /// How much of what it was sent bash has not read, in the kernel's own measure.
    pub fn unread(&self) -> usize {
        pipe::unsent(self.socket.get_ref())
    }

    /// The next thing that happened. With `read_terminal` unset the terminal's output waits in the kernel.
    pub async fn next(&mut self, read_terminal: bool) -> Event {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            tokio::select! {
                ready = self.socket.readable(), if !self.is_hung_up => {
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

    /// Takes what came by the socket. Another process may hold a copy of bash's end; what that writes is not bash's word.
    fn on_message(&mut self, buffer: &[u8], (count, writer): (usize, Option<i32>)) {
        if count == 0 {
            self.is_hung_up = true;
        } else if writer == Some(self.watch.pid()) {
            self.parser.feed(&buffer[..count], |r| self.events.push_back(Event::Record(r)));
        }
    }

    fn read_the_rest(&mut self) {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..MAX_LAST_READS {
            match pipe::receive(self.socket.get_ref(), &mut buffer) {
                Ok(received) if received.0 > 0 => self.on_message(&buffer, received),
                _ => break,
            }
        }
        if let Some(bytes) = self.drain_terminal() {
            self.events.push_back(Event::Terminal(bytes));
        }
    }

    /// What lies on the terminal now. The kernel brings in all that was written before this call, so after a command's end
    /// nothing of it is missing.
    pub fn drain_terminal(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut buffer = [0; READ_BYTES];
        for _ in 0..MAX_LAST_READS {
            match self.terminal.get_ref().read(&mut buffer) {
                Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
                _ => break,
            }
        }
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Types at the terminal; false where too much is waiting to be read already.
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

    /// Puts the terminal back as a new one is: modes, and nothing typed.
    pub fn refresh_terminal(&mut self) {
        if std::mem::take(&mut self.was_typed_at) {
            self.input.clear();
            self.slave.discard_typed();
        }
        let _ = self.slave.restore_modes(&self.fresh_modes);
    }

    /// The foreground process group, if it is one that this shell started.
    ///
    /// The terminal may hold the number of a group that is long gone and whose number another process has now. A number that
    /// a process of another session has is not ours; one that no process has cannot have been given away.
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

    /// The group of the job that this shell started last, or its own, where the kernel does not tell which one is in front. While
    /// bash waits for a job in front it starts no other, so it is that one, unless bash itself is busy and the last job is in the
    /// background.
    fn newest_job(&self) -> Option<i32> {
        let leads = |pid: &i32| proc::stat(*pid).is_some_and(|s| s.group == *pid);
        let is_told = self.terminal.get_ref().tells_foreground();
        (!is_told).then(|| self.children().into_iter().filter(leads).max().unwrap_or(self.pid()))
    }

    /// The processes that this shell has started, leaders of their groups or not.
    pub fn children(&self) -> Vec<i32> {
        let shell = self.pid();
        let is_child = |pid: &i32| proc::stat(*pid).is_some_and(|s| s.parent == shell && s.session == shell);
        proc::pids().unwrap_or_default().into_iter().filter(is_child).collect()
    }

    /// Whether an interrupt would be lost on a child of bash: it still has bash's way with signals and forgets what it caught when it
    /// becomes its program or subshell. `None` where the kernel does not tell, and it still has bash's name.
    pub fn loses_interrupts(&self, child: i32) -> Option<bool> {
        match proc::catches_and_ignores(child, libc::SIGINT, libc::SIGQUIT) {
            None if proc::name(child).is_some_and(|name| Some(name) == proc::name(self.pid())) => None,
            told => Some(told.unwrap_or(false)),
        }
    }

    /// Whether an interrupt would go to bash itself now, or to a child that loses it; or might, where the kernel does not tell.
    pub fn may_lose_interrupts(&self) -> bool {
        self.foreground().is_none_or(|group| group == self.pid() || self.loses_interrupts(group) != Some(false))
    }

    /// The group in front: where the kernel does not tell, the one that should be.
    pub fn in_front(&self) -> Option<i32> {
        self.foreground().or_else(|| self.newest_job())
    }

    /// Whether a foreground program waits for input at the terminal. `None` where the kernel does not say.
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

impl std::fmt::Debug for Bash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bash(pid {}, terminal {})", self.pid(), self.terminal.get_ref().as_raw_fd())
    }
}

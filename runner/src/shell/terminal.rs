//! A shell of kind `terminal`: a plain interactive bash for a person, with prompt, line editing and job control, on its own
//! terminal. The runner carries its bytes and does not look at them; the shell takes no execs.
//!
//! It can start as a copy of another shell. If the person disconnects, it keeps running; it ends when bash exits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;
use std::rc::Rc;

use shared_protocol::runner::{ShellState, ShellView};
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

use super::attach::Attachments;
use super::bash::MAX_PENDING_INPUT;
use super::driver::{Context, Request};
use super::end_session;
use super::saved_state::SavedState;
use super::scratch::Scratch;
use super::script::{self, TerminalScripts};
use crate::reaper::{ChildEvent, Exit, Watch};
use crate::sys::spawn::{Session, spawn_with};
use crate::sys::tty::{self, Master, Size, Slave};

const READ_BYTES: usize = 16 << 10;

pub struct Terminal {
    context: Context,
    view: Rc<RefCell<ShellView>>,
    requests: mpsc::Receiver<Request>,
    watch: Watch,
    master: AsyncFd<Master>,
    /// The slave side, kept open so that the master never reports a hang-up.
    _slave: Slave,
    input: VecDeque<u8>,
    /// Typed input that the terminal had no room for. Each attached client has at most one piece here.
    blocked_input: VecDeque<(Vec<u8>, oneshot::Sender<()>)>,
    attachments: Attachments,
}

impl Terminal {
    pub fn start(
        context: Context,
        view: Rc<RefCell<ShellView>>,
        requests: mpsc::Receiver<Request>,
        copy_of: Option<&SavedState>,
        variables: &[(String, String)],
    ) -> std::io::Result<Self> {
        let identity = context.identity;
        let (size, cwd) = {
            let view = view.borrow();
            (Size { cols: view.cols, rows: view.rows }, view.cwd.clone())
        };
        let only_for_commands: Vec<_> = context.environment.only_for_commands().collect();
        // The scripts may hold secrets. Bash gets them as descriptors of files without a name, so no other process of the
        // session can open them.
        let scratch = Scratch::new(&context.scratch, identity)?;
        let restore = copy_of.map(|state| scratch.unnamed(|_| state.restore_file(None))).transpose()?;
        let init = scratch.unnamed(|init| {
            let scripts = TerminalScripts { init, restore: restore.as_ref().map(OwnedFd::as_raw_fd) };
            let opened_with = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            // A restored state has the session's variables, as the commands before have left them.
            let of_session = context.environment.of_session().filter(|_| copy_of.is_none());
            script::terminal_file(scripts, &cwd, &mut of_session.chain(opened_with), &only_for_commands).into_bytes()
        })?;
        let (master, slave) = tty::open(size, identity.switch.then_some((identity.uid, identity.gid)))?;
        let mut command = Command::new(&context.config.shell);
        command.arg("--rcfile").arg(script::own_descriptor(init.as_raw_fd())).arg("-i");
        command.env_clear().envs(context.environment.variables()).current_dir("/");
        for (name, _) in only_for_commands {
            command.env_remove(name);
        }
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave.try_clone()?);
        let scripts = restore.into_iter().chain([init]).collect();
        let pid = spawn_with(command, identity, Session::Terminal(&slave), scripts)?;
        let watch = context.reaper.watch_program(pid);
        {
            let mut view = view.borrow_mut();
            view.pid = Some(pid);
            view.state = ShellState::Busy;
        }
        Ok(Self {
            context,
            view,
            requests,
            watch,
            master: crate::sys::poll::register(master, Interest::READABLE | Interest::WRITABLE)?,
            _slave: slave,
            input: VecDeque::new(),
            blocked_input: VecDeque::new(),
            attachments: Attachments::default(),
        })
    }

    /// Owns the terminal until bash has exited, and returns how it exited, or until the terminal is closed.
    pub async fn run(mut self) -> Option<Exit> {
        loop {
            let ready_to_send = self.attachments.are_ready();
            tokio::select! {
                ready = self.master.readable(), if ready_to_send => {
                    let mut buffer = [0; READ_BYTES];
                    if let Ok(mut ready) = ready
                        && let Ok(Ok(count)) = ready.try_io(|fd| fd.get_ref().read(&mut buffer))
                    {
                        self.attachments.send(&buffer[..count]);
                    }
                }
                () = self.attachments.wait(), if !ready_to_send => {}
                ready = self.master.writable(), if !self.input.is_empty() => {
                    let (front, _) = self.input.as_slices();
                    if let Ok(mut ready) = ready
                        && let Ok(Ok(count)) = ready.try_io(|fd| fd.get_ref().write(front))
                    {
                        self.input.drain(..count);
                        self.take_blocked_input();
                    }
                }
                request = self.requests.recv() => match request {
                    Some(Request::Close { reply }) => {
                        end_session(self.watch).await;
                        let _ = reply.send(());
                        return None;
                    }
                    Some(Request::Drain) | None => {
                        end_session(self.watch).await;
                        return None;
                    }
                    Some(request) => self.on_request(request),
                },
                event = self.watch.next() => match event {
                    ChildEvent::Stopped => self.watch.signal(libc::SIGCONT),
                    ChildEvent::Exited(exit) => {
                        self.send_the_rest();
                        return Some(exit);
                    }
                },
            }
        }
    }

    fn send_the_rest(&mut self) {
        let mut buffer = [0; READ_BYTES];
        while self.attachments.are_ready() {
            match self.master.get_ref().read(&mut buffer) {
                Ok(count) if count > 0 => self.attachments.send(&buffer[..count]),
                _ => break,
            }
        }
    }

    fn has_room(&self, count: usize) -> bool {
        self.input.len() + count <= MAX_PENDING_INPUT
    }

    fn take_blocked_input(&mut self) {
        while let Some((bytes, reply)) = self.blocked_input.pop_front() {
            if !self.has_room(bytes.len()) {
                self.blocked_input.push_front((bytes, reply));
                return;
            }
            self.input.extend(bytes);
            let _ = reply.send(());
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Exec(job) => {
                self.context.execs.withdraw(&job.exec);
            }
            Request::Signal { number, reply, .. } => {
                let master = self.master.get_ref();
                let sent = match master.foreground() {
                    Some(group) => crate::sys::signal::kill_group(group, number),
                    None if master.tells_foreground() => Err(std::io::ErrorKind::NotFound.into()),
                    None => master.signal_foreground(number),
                };
                let _ = reply.send(match sent {
                    Ok(()) => Ok(()),
                    Err(_) => Err(ErrorBody::new(ErrorCode::Conflict, "no foreground program took the signal")),
                });
            }
            Request::Input { bytes, reply } => {
                let fits = self.has_room(bytes.len());
                if fits {
                    self.input.extend(bytes);
                }
                let message = format!("{MAX_PENDING_INPUT} bytes of input wait to be read already");
                let _ = reply.send(if fits { Ok(()) } else { Err(ErrorBody::new(ErrorCode::LimitReached, message)) });
            }
            Request::Type { bytes, reply } => {
                self.blocked_input.push_back((bytes, reply));
                self.take_blocked_input();
            }
            Request::Resize { size, reply } => {
                {
                    let mut view = self.view.borrow_mut();
                    (view.cols, view.rows) = (size.cols, size.rows);
                }
                let resized = self.master.get_ref().resize(size);
                let _ = reply.send(resized.map_err(|e| ErrorBody::new(ErrorCode::InternalError, e.to_string())));
            }
            Request::Attach { reply } => {
                let _ = reply.send(self.attachments.add());
            }
            // A terminal has no state to go back to: clients close it and open another one.
            Request::Reset { reply } => drop(reply),
            Request::Close { reply } => drop(reply),
            Request::State { reply } => drop(reply),
            Request::Drain | Request::Claim => {}
        }
    }
}

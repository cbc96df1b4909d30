//! A shell of kind `terminal`: a plain interactive bash for a person, with prompt, line editing and job control, on a
//! terminal of its own. The runner carries its bytes and does not look at them; it takes no execs.
//!
//! It begins as a copy of another shell where it is asked to, lives on when the person goes away, and is gone when bash is.

use std::collections::VecDeque;
use std::process::Command;

use shared_protocol::runner::ShellState;
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

use super::attach::Attachments;
use super::bash::MAX_PENDING_INPUT;
use super::driver::{Context, Request, Shared};
use super::end_session;
use super::scratch::Scratch;
use super::script::{self, file};
use super::state::State;
use crate::reaper::{ChildEvent, Exit, Watch};
use crate::sys::spawn::{Session, spawn};
use crate::sys::tty::{self, Master, Size, Slave};

const READ_BYTES: usize = 16 << 10;

pub struct Terminal {
    context: Context,
    shared: Shared,
    requests: mpsc::Receiver<Request>,
    watch: Watch,
    master: AsyncFd<Master>,
    /// Kept open so that the master never reports a hang-up.
    _slave: Slave,
    _scratch: Scratch,
    input: VecDeque<u8>,
    /// Typed while there was no room. Each who is attached waits here with one piece at most.
    typists: VecDeque<(Vec<u8>, oneshot::Sender<()>)>,
    attachments: Attachments,
}

impl Terminal {
    pub fn start(
        context: Context,
        shared: Shared,
        requests: mpsc::Receiver<Request>,
        copy_of: Option<&State>,
        variables: &[(String, String)],
    ) -> std::io::Result<Self> {
        let identity = context.identity;
        let scratch = Scratch::new(&context.scratch, identity)?;
        if let Some(state) = copy_of {
            scratch.write(file::RESTORE, &state.restore_file(None))?;
        }
        let (size, cwd) = {
            let view = shared.view.borrow();
            (Size { cols: view.cols, rows: view.rows }, view.cwd.clone())
        };
        let init = script::InitSpec {
            profile: true,
            restore: copy_of.is_some(),
            cwd: &cwd,
            variables: &mut variables.iter().map(|(name, value)| (name.as_str(), value.as_str())),
        };
        scratch.write(file::INIT, script::terminal_file(scratch.dir(), init).as_bytes())?;
        let (master, slave) = tty::open(size, identity.switch.then_some((identity.uid, identity.gid)))?;
        let mut command = Command::new(&context.config.shell);
        command.arg("--rcfile").arg(scratch.path(file::INIT)).arg("-i");
        command.env_clear().envs(context.environment.variables()).current_dir("/");
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave.try_clone()?);
        let pid = spawn(command, identity, Session::Terminal(&slave))?;
        let watch = context.reaper.watch(pid);
        {
            let mut view = shared.view.borrow_mut();
            view.pid = Some(pid);
            view.state = ShellState::Busy;
        }
        Ok(Self {
            context,
            shared,
            requests,
            watch,
            master: crate::sys::poll::register(master, Interest::READABLE | Interest::WRITABLE)?,
            _slave: slave,
            _scratch: scratch,
            input: VecDeque::new(),
            typists: VecDeque::new(),
            attachments: Attachments::default(),
        })
    }

    /// Owns the terminal until bash has ended, with the way it did, or until it is closed.
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
                        self.take_from_typists();
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

    fn take_from_typists(&mut self) {
        while let Some((bytes, reply)) = self.typists.pop_front() {
            if !self.has_room(bytes.len()) {
                self.typists.push_front((bytes, reply));
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
                self.typists.push_back((bytes, reply));
                self.take_from_typists();
            }
            Request::Resize { size, reply } => {
                {
                    let mut view = self.shared.view.borrow_mut();
                    (view.cols, view.rows) = (size.cols, size.rows);
                }
                let resized = self.master.get_ref().resize(size);
                let _ = reply.send(resized.map_err(|e| ErrorBody::new(ErrorCode::InternalError, e.to_string())));
            }
            Request::Attach { reply } => {
                let _ = reply.send(self.attachments.add());
            }
            // A terminal has no state to go back to: it is closed and opened anew.
            Request::Reset { reply } => drop(reply),
            Request::Close { reply } => drop(reply),
            Request::State { reply } => drop(reply),
            Request::Drain | Request::Claim => {}
        }
    }
}

//! Execs and runs: asking for one, and following its frames.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Request};
use shared_protocol::runner::{
    ExecRequest, Frame, MAX_ENDS_BYTES, RunRequest, ShellKind, decode_payload, encode_output,
};
use shared_protocol::{ErrorBody, ErrorCode, ExecId};
use tokio::sync::mpsc;

use super::body::{self, Body, Reply};
use super::query::Query;
use super::{allow, request};
use crate::app::SharedApp;
use crate::exec::Exec;
use crate::output::{Chunk, Ends, Follower, Step};
use crate::shell::check_variables;

/// Output in one frame: well below what a reader refuses, even if every byte is escaped to six.
const FRAME_BYTES: usize = 64 << 10;

/// Lines are sent together up to this size, so that a fast command costs few writes.
const BATCH_BYTES: usize = 128 << 10;

/// How long an answer waits for its first lines, so that they go out with its head.
const QUICK: Duration = Duration::from_millis(5);

/// Given at once, so that a client can reattach to a command that is still queued.
const EXEC_ID_HEADER: &str = "x-cove-exec-id";

pub async fn exec(app: &SharedApp, request: Request<Incoming>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let mut request: ExecRequest = request::json(request).await?;
    check(&request)?;
    let stdin = decode_payload("stdin", request.stdin.take(), request.stdin_base64.take())?;
    let shell = app.shells.get(request.shell.as_ref())?;
    let name = shell.view().name;
    if shell.kind() == ShellKind::Terminal {
        let message = format!("{name} is a terminal and takes no commands; attach to it");
        return Err(ErrorBody::new(ErrorCode::Conflict, message));
    }
    let ends = request.ends_bytes.map(Ends::of);
    let exec = app.execs.admit(request.exec_id.take(), Some(name), None)?;
    if let Err(error) = shell.exec(exec.clone(), request, stdin) {
        app.execs.withdraw(&exec);
        return Err(error);
    }
    Ok(frames(exec, Following { from: 0, live: true, ends }).await)
}

/// What serde cannot see. Pure: nothing has happened yet when it refuses.
pub fn check(request: &ExecRequest) -> Result<(), ErrorBody> {
    if request.cmd.contains('\0') || request.cwd.as_ref().is_some_and(|cwd| cwd.contains('\0')) {
        let message = "cmd and cwd cannot hold a NUL byte: bash would cut them off there";
        return Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
    }
    if let Some(bytes) = request.ends_bytes.filter(|bytes| *bytes > MAX_ENDS_BYTES) {
        let message = format!("ends_bytes is {bytes}; at most {MAX_ENDS_BYTES} are kept");
        return Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
    }
    check_variables(request.env.iter())
}

pub async fn run(app: &SharedApp, request: Request<Incoming>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let exec = crate::run::start(app, request::json::<RunRequest>(request).await?)?;
    Ok(frames(exec, Following { from: 0, live: true, ends: None }).await)
}

pub fn list(app: &SharedApp, request: &Request<Incoming>) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::GET])?;
    Ok(body::json(200, &app.execs.views()))
}

pub async fn reattach(app: &SharedApp, request: &Request<Incoming>, id: &str) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::GET])?;
    let id = ExecId::new(id).map_err(|e| ErrorBody::new(ErrorCode::InvalidRequest, e.to_string()))?;
    let query = Query::parse(request.uri().query().unwrap_or_default(), &["from", "follow"])?;
    let from = query.number("from")?.unwrap_or(0);
    let following = Following { from, live: query.flag("follow")?.unwrap_or(false), ends: None };
    Ok(frames(app.execs.get(&id)?, following).await)
}

struct Following {
    from: u64,
    /// Wait for what is yet to come.
    live: bool,
    /// Leave out what lies between.
    ends: Option<Ends>,
}

/// Answers with frames. A command that is over within `QUICK` is answered in one piece, as most are: every write that is
/// saved is a wake-up less for both sides.
async fn frames(exec: Rc<Exec>, following: Following) -> Reply {
    let live = following.live;
    if live {
        let ended = async {
            loop {
                let changed = exec.log.changed();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if exec.outcome().is_some() || exec.log.end() > following.from {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(QUICK, ended).await;
    }
    let mut frames = Frames::new(exec.clone(), following);
    let first = frames.take();
    let body = if first.is_last {
        Body::Full(Some(first.lines.into()))
    } else {
        let (sender, stream) = Body::stream();
        tokio::task::spawn_local(frames.send(first.lines, sender));
        stream
    };
    let mut reply = body::with_type(200, "application/x-ndjson", body);
    if let Ok(id) = HeaderValue::from_str(exec.id.as_str()) {
        reply.headers_mut().insert(EXEC_ID_HEADER, id);
    }
    reply
}

/// The frames of one exec for one client.
struct Frames {
    exec: Rc<Exec>,
    follower: Follower,
    live: bool,
    ends: Option<Ends>,
    started_told: bool,
    waits_told: u64,
}

/// Some lines; `is_last` where nothing comes behind them.
struct Batch {
    lines: Vec<u8>,
    is_last: bool,
}

impl Frames {
    fn new(exec: Rc<Exec>, following: Following) -> Self {
        let follower = exec.log.follow(following.from);
        Self { exec, follower, live: following.live, ends: following.ends, started_told: false, waits_told: 0 }
    }

    /// The lines there are now, up to a batch.
    fn take(&mut self) -> Batch {
        let exec = &self.exec;
        let mut lines = Vec::new();
        if !self.started_told && exec.has_begun() {
            self.started_told = true;
            lines = Frame::Started { exec_id: exec.id.clone(), shell: exec.shell.clone() }.to_line();
        }
        let outcome = exec.outcome();
        let flush = outcome.is_some() || !self.live;
        while lines.len() < BATCH_BYTES {
            let step = self.ends.map_or(Step::Take(u64::MAX), |ends| {
                ends.step(self.follower.offset(), exec.log.end(), outcome.is_some())
            });
            let chunk = match step {
                Step::Take(most) => {
                    self.follower.next(usize::try_from(most).map_or(FRAME_BYTES, |most| most.min(FRAME_BYTES)), flush)
                }
                Step::Skip(bytes) => Some(self.follower.skip(bytes)),
                Step::Wait => {
                    self.follower.let_go();
                    None
                }
            };
            match chunk {
                Some(Chunk::Bytes { stream, offset, bytes }) => encode_output(stream, offset, &bytes, &mut lines),
                Some(Chunk::Gap { offset, bytes }) => lines.extend(Frame::Gap { offset, bytes }.to_line()),
                None => break,
            }
        }
        let more = lines.len() >= BATCH_BYTES;
        if exec.waits.get() > self.waits_told && outcome.is_none() {
            self.waits_told = exec.waits.get();
            lines.extend(Frame::AwaitingInput.to_line());
        }
        let is_last = !more && (outcome.is_some() || !self.live);
        if let (true, Some(outcome)) = (is_last, outcome) {
            lines.extend(Frame::Exit(outcome).to_line());
        }
        Batch { lines, is_last }
    }

    /// Sends `lines` and all that come until the last, as fast as the client takes them and no faster.
    async fn send(mut self, lines: Vec<u8>, sender: mpsc::Sender<std::io::Result<Bytes>>) {
        let mut batch = Batch { lines, is_last: false };
        loop {
            if !batch.lines.is_empty() && sender.send(Ok(batch.lines.into())).await.is_err() {
                return;
            }
            if batch.is_last {
                return;
            }
            // Armed before the state is looked at: nothing that happens in between is missed.
            let exec = self.exec.clone();
            let changed = exec.log.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            batch = self.take();
            if batch.lines.is_empty() && !batch.is_last {
                tokio::select! {
                    () = changed => {}
                    // The client has gone; the command goes on without it.
                    () = sender.closed() => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bash_cannot_be_given_is_refused() {
        let request = |cmd: &str, name: &str| ExecRequest {
            cmd: cmd.into(),
            env: [(name.to_owned(), "v".to_owned())].into(),
            ..ExecRequest::default()
        };
        assert!(check(&request("true", "A_1")).is_ok());
        for (cmd, name) in [("a\0b", "A"), ("true", "1A"), ("true", "A B"), ("true", ""), ("true", "A;reboot")] {
            assert_eq!(check(&request(cmd, name)).unwrap_err().error_code, ErrorCode::InvalidRequest);
        }
    }
}

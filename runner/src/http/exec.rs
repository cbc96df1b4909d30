//! Starts execs and runs, and streams their frames.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Request};
use shared_protocol::runner::{
    ExecRequest, Frame, MORE_HEADER, OutcomeKind, RunRequest, ShellKind, check_page_limit, decode_payload,
    encode_output,
};
use shared_protocol::{ErrorBody, ErrorCode, ExecId};
use tokio::sync::mpsc;

use super::app::SharedApp;
use super::body::{self, Body, Reply};
use super::{allow, query, request};
use crate::exec::Exec;
use crate::output::{Chunk, Follower, HeadTail, NextPart};

/// The most output in one frame: well below a reader's limit, even if every byte is escaped to six.
const FRAME_BYTES: usize = 64 << 10;

/// The most bytes of frames that are sent together, so that a fast command needs few writes.
const BATCH_BYTES: usize = 128 << 10;

/// How long a reply waits for its first frames, so that they are sent with its head.
const QUICK: Duration = Duration::from_millis(5);

/// The header with the exec's id. It is sent at once, so that a client can reattach to a command that is still queued.
const EXEC_ID_HEADER: &str = "x-cove-exec-id";

/// The header with the process id of a run.
const PID_HEADER: &str = "x-cove-pid";

pub async fn exec(app: &SharedApp, request: Request<Incoming>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let mut request: ExecRequest = request::json(request).await?;
    request.check()?;
    let stdin = decode_payload("stdin", request.stdin.take(), request.stdin_base64.take())?;
    let shell = app.shells.get(request.shell.as_ref())?;
    let name = shell.view().name;
    if shell.kind() == ShellKind::Terminal {
        let message = format!("{name} is a terminal and takes no commands; attach to it");
        return Err(ErrorBody::new(ErrorCode::Conflict, message));
    }
    let head_tail = request.ends_bytes.map(HeadTail::of);
    let exec = app.execs.admit(request.exec_id.take(), Some(name), None)?;
    if let Err(error) = shell.exec(exec.clone(), request, stdin) {
        app.execs.withdraw(&exec);
        return Err(error);
    }
    Ok(frames(exec, Following { from: 0, live: true, head_tail }).await)
}

pub async fn run(app: &SharedApp, request: Request<Incoming>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let exec = app.runs.start(request::json::<RunRequest>(request).await?)?;
    Ok(frames(exec, Following { from: 0, live: true, head_tail: None }).await)
}

pub fn list(app: &SharedApp, request: &Request<Incoming>) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::GET])?;
    let query = query::parse(request.uri().query(), &["after", "limit"])?;
    let after = query.text("after")?.map(exec_id).transpose()?;
    let limit = check_page_limit(query.number("limit")?)?;
    let page = app.execs.page(after.as_ref(), limit)?;
    let mut reply = body::json(200, &page.views);
    if page.has_more {
        reply.headers_mut().insert(MORE_HEADER, HeaderValue::from_static("1"));
    }
    Ok(reply)
}

pub async fn reattach(app: &SharedApp, request: &Request<Incoming>, id: &str) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::GET])?;
    let id = exec_id(id)?;
    let query = query::parse(request.uri().query(), &["from", "follow"])?;
    let from = query.number("from")?.unwrap_or(0);
    let following = Following { from, live: query.flag("follow")?.unwrap_or(false), head_tail: None };
    Ok(frames(app.execs.get(&id)?, following).await)
}

/// The id in a path.
pub(super) fn exec_id(text: &str) -> Result<ExecId, ErrorBody> {
    ExecId::new(text).map_err(|e| ErrorBody::new(ErrorCode::InvalidRequest, e.to_string()))
}

/// The part of an exec that a client wants to follow.
struct Following {
    from: u64,
    /// Whether to wait for future frames.
    live: bool,
    /// If set, only the head and the tail of the output are sent.
    head_tail: Option<HeadTail>,
}

/// Replies with frames. If the command ends within `QUICK`, as most do, the reply is sent in one piece: every avoided write
/// avoids a wake-up on both sides.
async fn frames(exec: Rc<Exec>, following: Following) -> Reply {
    let live = following.live;
    if live {
        let ended = async {
            loop {
                let changed = exec.log.changed();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if exec.outcome().is_some() || exec.log.end() > following.from || exec.queued_behind().is_some() {
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
    if let Some(pid) = exec.pid.get() {
        reply.headers_mut().insert(PID_HEADER, HeaderValue::from(pid));
    }
    reply
}

/// The frames of one exec for one client.
struct Frames {
    exec: Rc<Exec>,
    follower: Follower,
    live: bool,
    head_tail: Option<HeadTail>,
    queued_told: bool,
    started_told: bool,
    waits_told: u64,
}

/// Some frames, one per line.
struct Batch {
    lines: Vec<u8>,
    is_last: bool,
}

impl Frames {
    fn new(exec: Rc<Exec>, following: Following) -> Self {
        let follower = exec.log.follow(following.from);
        Self {
            exec,
            follower,
            live: following.live,
            head_tail: following.head_tail,
            queued_told: false,
            started_told: false,
            waits_told: 0,
        }
    }

    /// The frames that are available now, up to one batch.
    fn take(&mut self) -> Batch {
        let exec = &self.exec;
        let outcome = exec.outcome();
        let mut lines = Vec::new();
        if let (false, Some(running_exec_id)) = (self.queued_told, exec.queued_behind()) {
            self.queued_told = true;
            lines = Frame::Queued { running_exec_id }.to_line();
        }
        // A command that leaves the queue without running has not started.
        let has_left = self.queued_told && outcome.as_ref().is_some_and(|o| o.kind == OutcomeKind::NeverRan);
        if !self.started_told && exec.has_begun() && !has_left {
            self.started_told = true;
            lines.extend(Frame::Started { exec_id: exec.id.clone(), shell: exec.shell.clone() }.to_line());
        }
        let flush = outcome.is_some() || !self.live;
        while lines.len() < BATCH_BYTES {
            let part = self.head_tail.map_or(NextPart::Take(u64::MAX), |head_tail| {
                head_tail.next_part(self.follower.offset(), exec.log.end(), outcome.is_some())
            });
            let chunk = match part {
                NextPart::Take(most) => {
                    self.follower.next(usize::try_from(most).map_or(FRAME_BYTES, |most| most.min(FRAME_BYTES)), flush)
                }
                NextPart::Skip(bytes) => Some(self.follower.skip(bytes)),
                NextPart::Wait => {
                    self.follower.let_go();
                    None
                }
            };
            match chunk {
                Some(Chunk::Bytes { stream, offset, at_ms, bytes }) => {
                    encode_output(stream, offset, at_ms, &bytes, &mut lines);
                }
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
            let last = exec.refusal().map_or_else(|| Frame::Exit(outcome), Frame::Error);
            lines.extend(last.to_line());
        }
        Batch { lines, is_last }
    }

    /// Sends `lines` and all frames that follow, as fast as the client takes them.
    async fn send(mut self, lines: Vec<u8>, sender: mpsc::Sender<std::io::Result<Bytes>>) {
        let mut batch = Batch { lines, is_last: false };
        loop {
            if !batch.lines.is_empty() && sender.send(Ok(batch.lines.into())).await.is_err() {
                return;
            }
            if batch.is_last {
                return;
            }
            // This is registered before the state is read, so that no change in between is missed.
            let exec = self.exec.clone();
            let changed = exec.log.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            batch = self.take();
            if batch.lines.is_empty() && !batch.is_last {
                tokio::select! {
                    () = changed => {}
                    // The client disconnected. The command keeps running.
                    () = sender.closed() => return,
                }
            }
        }
    }
}

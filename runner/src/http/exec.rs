//! Starts execs and runs, and streams their frames.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
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
use super::request_body::RequestBody;
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

pub async fn exec(app: &SharedApp, request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
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

pub async fn run(app: &SharedApp, request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let exec = app.runs.start(request::json::<RunRequest>(request).await?)?;
    Ok(frames(exec, Following { from: 0, live: true, head_tail: None }).await)
}

pub fn list(app: &SharedApp, request: &Request<RequestBody>) -> Result<Reply, ErrorBody> {
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

pub async fn reattach(app: &SharedApp, request: &Request<RequestBody>, id: &str) -> Result<Reply, ErrorBody> {
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
    /// Where the frames end, once that is known: at the end of the output when this client saw that the command had ended, or when
    /// a client asked that does not wait. Output that comes later is not waited for: a background job can print forever.
    until: Option<u64>,
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
        let until = (!following.live).then(|| exec.log.end());
        Self {
            exec,
            follower,
            until,
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
        if let Some(outcome) = &outcome {
            let until = self.until.unwrap_or_else(|| exec.log.end());
            self.until = Some(until.max(outcome.output_bytes));
        }
        let flush = self.until.is_some();
        while lines.len() < BATCH_BYTES {
            let left = self.until.map_or(u64::MAX, |until| until.saturating_sub(self.follower.offset()));
            if left == 0 {
                break;
            }
            let part = self.head_tail.map_or(NextPart::Take(left), |head_tail| {
                let end = self.until.unwrap_or_else(|| exec.log.end());
                head_tail.next_part(self.follower.offset(), end, outcome.is_some())
            });
            let chunk = match part {
                NextPart::Take(most) => {
                    let most = usize::try_from(most.min(left)).unwrap_or(FRAME_BYTES);
                    self.follower.next(most.min(FRAME_BYTES), flush)
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
        let is_last = self.until.is_some_and(|until| !more || self.follower.offset() >= until);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::ExecTable;
    use shared_protocol::runner::{ExecOutcome, Stream};

    /// More than one batch: a client that takes one batch at a time falls behind.
    const PRINTED_PER_BATCH: usize = 2 * BATCH_BYTES;

    const MAX_BATCHES: usize = 100;

    fn exited(exec: &Exec) -> ExecOutcome {
        ExecOutcome {
            exec_id: exec.id.clone(),
            kind: OutcomeKind::Exited,
            exit_code: 0,
            signal: None,
            cwd: None,
            output_bytes: exec.log.end(),
            timed_out: false,
            shell_restarted: false,
            oom_killed: false,
            awaiting_input: false,
            duration_ms: 0,
            reason: None,
        }
    }

    /// Takes batches while a background job prints more than the client takes. Returns how much was sent, and the last frame.
    fn follow_to_the_end(live: bool, ends_after: usize) -> (u64, Frame) {
        let table = ExecTable::default();
        let exec = table.admit(None, None, None).unwrap();
        let print = || exec.log.append(Stream::Merged, &[b'y'; PRINTED_PER_BATCH]);
        print();
        let mut frames = Frames::new(exec.clone(), Following { from: 0, live, head_tail: None });
        for number in 0..MAX_BATCHES {
            if number == ends_after {
                table.end(&exec, exited(&exec));
            }
            let batch = frames.take();
            if batch.is_last {
                let last = batch.lines.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap();
                return (frames.follower.offset(), serde_json::from_slice(last).unwrap());
            }
            print();
        }
        panic!("no end after {MAX_BATCHES} batches");
    }

    #[test]
    fn a_job_that_prints_forever_does_not_keep_a_client_from_the_end() {
        for ends_after in [0, 1, 5] {
            let (sent, last) = follow_to_the_end(true, ends_after);
            let Frame::Exit(outcome) = last else { panic!("{last:?}") };
            assert_eq!(sent, outcome.output_bytes);
        }
    }

    #[test]
    fn a_client_that_does_not_wait_gets_what_there_was_when_it_asked() {
        let (sent, _) = follow_to_the_end(false, MAX_BATCHES);
        assert_eq!(sent, PRINTED_PER_BATCH as u64);
    }
}

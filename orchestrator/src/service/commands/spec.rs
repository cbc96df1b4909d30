//! A checked command or program: every field is valid, and the daemon's defaults and limits are applied. Pure.
//!
//! The fields are private: only a check can make a value of these types, and only these types can start anything.

use compact_output::Options;
use shared_protocol::api::{ApiExecRequest, ApiRunRequest, MIN_COMPACT_TOKENS, OutputView, TimeLimit};
use shared_protocol::runner::{ExecRequest, MAX_ENDS_BYTES, RunRequest, StreamMode, check_page_limit};
use shared_protocol::{ExecId, ShellName};

use crate::config::ExecConfig;
use crate::service::InvalidRequest;
use crate::service::output::Rendering;

/// How a command's output reaches the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// In one reply, when the command has ended.
    Reply,
    /// Not in this call: the client gets the id and asks for the output later.
    Detached,
    /// Piece by piece, as it arrives.
    Stream,
}

impl Delivery {
    fn of_reply(detach: bool) -> Self {
        if detach { Self::Detached } else { Self::Reply }
    }
}

/// A command in a shell.
#[derive(Debug)]
pub struct ExecSpec {
    request: ExecRequest,
    max_output_bytes: usize,
    raw_output: bool,
    delivery: Delivery,
    /// The limits of the compact view, if the reply has one.
    compact: Option<Options>,
}

impl ExecSpec {
    /// Checks a command that is answered in one reply or detached.
    pub fn for_reply(request: ApiExecRequest, limits: &ExecConfig) -> Result<Self, InvalidRequest> {
        let delivery = Delivery::of_reply(request.detach);
        Self::new(request, delivery, limits)
    }

    /// Checks a command whose output is streamed.
    pub fn for_stream(request: ApiExecRequest, limits: &ExecConfig) -> Result<Self, InvalidRequest> {
        if request.detach {
            let message = "detach has no stream; use exec, and follow the command at execs/{exec_id}";
            return Err(InvalidRequest::new(message));
        }
        Self::new(request, Delivery::Stream, limits)
    }

    fn new(request: ApiExecRequest, delivery: Delivery, limits: &ExecConfig) -> Result<Self, InvalidRequest> {
        let max_output_bytes = output_limit(request.max_output_bytes, limits);
        let compact = compact(&request, delivery, max_output_bytes)?;
        let ends_bytes = match delivery {
            // A compact view is made of all of the output.
            Delivery::Reply if compact.is_some() => None,
            Delivery::Reply => ends_bytes(max_output_bytes, request.streams),
            Delivery::Detached | Delivery::Stream => None,
        };
        let spec = Self {
            max_output_bytes,
            raw_output: request.raw_output,
            delivery,
            compact,
            request: ExecRequest {
                cmd: request.cmd,
                shell: request.shell,
                exec_id: request.exec_id,
                streams: request.streams,
                stdin: request.stdin,
                stdin_base64: request.stdin_base64,
                env: request.env,
                cwd: request.cwd,
                timeout_ms: timeout(request.timeout_ms, delivery, limits)?,
                queue_timeout_ms: request.queue_timeout_ms,
                ends_bytes,
            },
        };
        spec.request.check()?;
        Ok(spec)
    }

    pub(super) fn request(&self) -> &ExecRequest {
        &self.request
    }

    pub(super) fn max_output_bytes(&self) -> usize {
        self.max_output_bytes
    }

    pub(super) fn compact(&self) -> Option<Options> {
        self.compact
    }

    pub fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Whether the shell's directory after the command becomes the session's directory.
    pub(super) fn is_in_main(&self) -> bool {
        self.request.shell.as_ref().is_none_or(|shell| *shell == ShellName::main())
    }

    pub(super) fn rendering(&self) -> Rendering {
        match (self.request.streams, self.raw_output) {
            (StreamMode::Tty, false) => Rendering::WithoutSequences,
            _ => Rendering::AsItCame,
        }
    }
}

/// A program outside the shells.
#[derive(Debug)]
pub struct RunSpec {
    request: RunRequest,
    max_output_bytes: usize,
    delivery: Delivery,
}

impl RunSpec {
    /// Checks a program that is answered in one reply or detached.
    pub fn for_reply(request: ApiRunRequest, limits: &ExecConfig) -> Result<Self, InvalidRequest> {
        let delivery = Delivery::of_reply(request.detach);
        Self::new(request, delivery, limits)
    }

    /// Checks a program whose output is streamed.
    pub fn for_stream(request: ApiRunRequest, limits: &ExecConfig) -> Result<Self, InvalidRequest> {
        if request.detach {
            let message = "detach has no stream; use run, and follow the program at execs/{exec_id}";
            return Err(InvalidRequest::new(message));
        }
        Self::new(request, Delivery::Stream, limits)
    }

    fn new(request: ApiRunRequest, delivery: Delivery, limits: &ExecConfig) -> Result<Self, InvalidRequest> {
        let spec = Self {
            max_output_bytes: output_limit(request.max_output_bytes, limits),
            delivery,
            request: RunRequest {
                argv: request.argv,
                exec_id: request.exec_id,
                stdin: request.stdin,
                stdin_base64: request.stdin_base64,
                stdin_open: request.stdin_open,
                env: request.env,
                cwd: request.cwd,
                timeout_ms: timeout(request.timeout_ms, delivery, limits)?,
            },
        };
        spec.request.check()?;
        Ok(spec)
    }

    pub(super) fn request(&self) -> &RunRequest {
        &self.request
    }

    pub(super) fn max_output_bytes(&self) -> usize {
        self.max_output_bytes
    }

    pub fn delivery(&self) -> Delivery {
        self.delivery
    }
}

/// A page of the list of execs.
#[derive(Debug)]
pub struct PageSpec {
    after: Option<ExecId>,
    limit: usize,
}

impl PageSpec {
    /// At most `limit` execs, the first one after the exec `after`.
    pub fn new(after: Option<ExecId>, limit: Option<u64>) -> Result<Self, InvalidRequest> {
        Ok(Self { after, limit: check_page_limit(limit)? })
    }

    pub(super) fn after(&self) -> Option<&ExecId> {
        self.after.as_ref()
    }

    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// The limits of a compact view, if the request asks for one.
fn compact(
    request: &ApiExecRequest,
    delivery: Delivery,
    max_output_bytes: usize,
) -> Result<Option<Options>, InvalidRequest> {
    if request.view == OutputView::Full {
        if request.max_tokens.is_some() {
            return Err(InvalidRequest::new("max_tokens is a limit of view compact; add \"view\": \"compact\""));
        }
        return Ok(None);
    }
    let refused = match delivery {
        Delivery::Stream => {
            Some("a stream shows all output: view compact is for exec, which answers when the command has ended")
        }
        Delivery::Detached => Some("a detached command has no reply that view compact could be of"),
        Delivery::Reply if request.raw_output => Some("raw_output and view compact exclude each other"),
        Delivery::Reply if request.streams == StreamMode::Split => {
            Some("view compact is one text: use streams merged or tty with it")
        }
        Delivery::Reply => None,
    };
    if let Some(message) = refused {
        return Err(InvalidRequest::new(message));
    }
    if let Some(tokens) = request.max_tokens.filter(|tokens| *tokens < MIN_COMPACT_TOKENS) {
        return Err(InvalidRequest::new(format!("max_tokens is {tokens}; it is at least {MIN_COMPACT_TOKENS}")));
    }
    let max_tokens = request.max_tokens.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
    Ok(Some(Options { max_tokens, max_bytes: Some(max_output_bytes) }))
}

/// The amount of output that the runner sends for a command whose reply is cut to a limit: a sandbox that prints without end
/// then costs the daemon nothing.
fn ends_bytes(max_output_bytes: usize, streams: StreamMode) -> Option<u64> {
    let limit = u64::try_from(max_output_bytes).unwrap_or(u64::MAX);
    // Separate streams have two heads and two tails, so the runner sends everything.
    (streams != StreamMode::Split && limit <= MAX_ENDS_BYTES).then_some(limit)
}

/// The time limit of a command, in milliseconds; `None` means no limit.
///
/// A number is taken as it is, or refused if it is over the daemon's maximum. A request that says nothing gets the default,
/// unless it is detached: nobody waits for such a command, so it has no limit. Where there would be no limit, the maximum
/// applies if the daemon has one.
fn timeout(asked: TimeLimit, delivery: Delivery, limits: &ExecConfig) -> Result<Option<u64>, InvalidRequest> {
    let set = |milliseconds: u64| (milliseconds > 0).then_some(milliseconds);
    let (default, maximum) = (set(limits.default_timeout_ms), set(limits.max_timeout_ms));
    let wanted = match (asked, delivery) {
        (TimeLimit::Milliseconds(asked), _) => {
            if let Some(most) = maximum.filter(|most| asked > *most) {
                let message = format!("timeout_ms is {asked}; this daemon allows at most {most} (exec.max_timeout_ms)");
                return Err(InvalidRequest::new(message));
            }
            Some(asked)
        }
        (TimeLimit::Unset, Delivery::Reply | Delivery::Stream) => default,
        (TimeLimit::Unset, Delivery::Detached) | (TimeLimit::Unlimited, _) => None,
    };
    Ok(match (wanted, maximum) {
        (Some(wanted), Some(maximum)) => Some(wanted.min(maximum)),
        (wanted, maximum) => wanted.or(maximum),
    })
}

/// The most output in a reply. A reply is built in memory, so output beyond the daemon's limit is cut, and the reply says
/// so.
fn output_limit(asked: Option<u64>, limits: &ExecConfig) -> usize {
    let wanted = asked.unwrap_or(limits.max_output_bytes).min(limits.max_max_output_bytes);
    usize::try_from(wanted).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(default_timeout_ms: u64, max_timeout_ms: u64) -> ExecConfig {
        ExecConfig { default_timeout_ms, max_timeout_ms, ..ExecConfig::default() }
    }

    #[test]
    fn a_command_has_the_time_it_asks_for_or_the_default() {
        for delivery in [Delivery::Reply, Delivery::Stream] {
            let timeout = |asked, limits| timeout(asked, delivery, &limits).unwrap();
            assert_eq!(timeout(TimeLimit::Milliseconds(5), limits(100, 0)), Some(5));
            assert_eq!(timeout(TimeLimit::Unset, limits(100, 0)), Some(100));
            assert_eq!(timeout(TimeLimit::Unset, limits(0, 0)), None);
            assert_eq!(timeout(TimeLimit::Unset, limits(0, 50)), Some(50));
            assert_eq!(timeout(TimeLimit::Unset, limits(100, 50)), Some(50));
        }
    }

    #[test]
    fn a_detached_command_has_no_limit_unless_it_asks_for_one() {
        let timeout = |asked, limits| timeout(asked, Delivery::Detached, &limits).unwrap();
        assert_eq!(timeout(TimeLimit::Unset, limits(100, 0)), None);
        assert_eq!(timeout(TimeLimit::Unset, limits(100, 500)), Some(500));
        assert_eq!(timeout(TimeLimit::Milliseconds(5), limits(100, 500)), Some(5));
    }

    #[test]
    fn no_limit_can_be_asked_for_within_the_daemons_maximum() {
        for delivery in [Delivery::Reply, Delivery::Stream, Delivery::Detached] {
            assert_eq!(timeout(TimeLimit::Unlimited, delivery, &limits(100, 0)).unwrap(), None);
            assert_eq!(timeout(TimeLimit::Unlimited, delivery, &limits(100, 50)).unwrap(), Some(50));
            let refused = timeout(TimeLimit::Milliseconds(51), delivery, &limits(100, 50)).unwrap_err().to_string();
            assert!(
                refused.contains("51") && refused.contains("50") && refused.contains("max_timeout_ms"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_reply_never_carries_more_than_the_daemon_allows() {
        let limits = ExecConfig { max_output_bytes: 10, max_max_output_bytes: 20, ..ExecConfig::default() };
        assert_eq!(output_limit(None, &limits), 10);
        assert_eq!(output_limit(Some(0), &limits), 0);
        assert_eq!(output_limit(Some(u64::MAX), &limits), 20);
    }

    #[test]
    fn the_directory_of_the_session_is_that_of_main() {
        let spec = |shell: Option<&str>| {
            let shell = shell.map(|name| ShellName::new(name).unwrap());
            ExecSpec::for_reply(ApiExecRequest { shell, ..ApiExecRequest::default() }, &ExecConfig::default()).unwrap()
        };
        assert!(spec(None).is_in_main() && spec(Some("main")).is_in_main());
        assert!(!spec(Some("other")).is_in_main());
    }

    #[test]
    fn only_a_reply_lets_the_runner_leave_output_out() {
        let request = |streams| ApiExecRequest { streams, ..ApiExecRequest::default() };
        let ends = |spec: Result<ExecSpec, InvalidRequest>| spec.unwrap().request.ends_bytes;
        let limits = ExecConfig::default();
        assert!(ends(ExecSpec::for_reply(request(StreamMode::Merged), &limits)).is_some());
        assert_eq!(ends(ExecSpec::for_reply(request(StreamMode::Split), &limits)), None);
        assert_eq!(ends(ExecSpec::for_stream(request(StreamMode::Merged), &limits)), None);
        let detached = ApiExecRequest { detach: true, ..ApiExecRequest::default() };
        assert_eq!(ends(ExecSpec::for_reply(detached.clone(), &limits)), None);
        assert!(ExecSpec::for_stream(detached, &limits).is_err(), "a detached command has no stream");
    }
}

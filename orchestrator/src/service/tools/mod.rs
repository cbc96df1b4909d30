//! The tools for language models: one definition each, which every front serves. This is a small set with the shape of the
//! whole: `bash`, and `where` to look without touching anything.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use shared_protocol::api::{ApiExecRequest, TimeLimit};
use shared_protocol::runner::SignalRequest;
use shared_protocol::{ExecId, SessionId};

use super::access::Access;
use super::commands::{ExecEvent, ExecSpec};
use super::shells::SignalSpec;
use super::{CallError, Caller, Commands, InvalidRequest, Shells};

/// What a tool does to the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    ReadOnly,
    Changes,
    Destroys,
}

pub struct ToolDefinition {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub effect: Effect,
    pub is_idempotent: bool,
    pub is_open_world: bool,
    /// A JSON schema with the type `object`.
    pub input_schema: Value,
    /// The schema of [`ToolReply::structured`].
    pub output_schema: Option<Value>,
}

static DEFINITIONS: LazyLock<Vec<ToolDefinition>> = LazyLock::new(|| {
    vec![
        ToolDefinition {
            name: "bash",
            title: "Run a command",
            description: "Run a command in the persistent bash of the sandbox. Directory, variables and jobs stay.",
            effect: Effect::Destroys,
            is_idempotent: false,
            is_open_world: true,
            input_schema: json!({
                "type": "object",
                "properties": {
                    "command": { "type": "string", "description": "The command" },
                    "timeout_ms": { "type": "integer", "minimum": 1, "description": "When to end the command" },
                },
                "required": ["command"],
                "additionalProperties": false,
            }),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "exit_code": { "type": "integer" },
                    "cwd": { "type": "string" },
                    "exec_id": { "type": "string" },
                },
                "required": ["exit_code", "cwd", "exec_id"],
            })),
        },
        ToolDefinition {
            name: "where",
            title: "Show the directory",
            description: "Show the directory of the sandbox's shell.",
            effect: Effect::ReadOnly,
            is_idempotent: true,
            is_open_world: false,
            input_schema: json!({ "type": "object", "properties": {}, "additionalProperties": false }),
            output_schema: None,
        },
    ]
});

pub fn definitions() -> &'static [ToolDefinition] {
    &DEFINITIONS
}

#[derive(Debug, Clone, PartialEq)]
pub enum ToolContent {
    Text(String),
    Image { media_type: &'static str, data: bytes::Bytes },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    pub content: Vec<ToolContent>,
    pub structured: Option<Value>,
    pub is_error: bool,
}

/// Something that a tool tells while it works.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress {
    pub message: String,
}

/// How the caller follows a call: where progress goes, and when the call is to be cancelled. Then the command is interrupted and the
/// call returns.
#[derive(Default)]
pub struct Following {
    pub progress: Option<tokio::sync::mpsc::Sender<ToolProgress>>,
    pub cancelled: Option<tokio::sync::watch::Receiver<bool>>,
}

/// A checked call. Only [`Tools::check`] makes one.
pub struct ToolCall(Checked);

enum Checked {
    Bash(Box<ExecSpec>, ExecId),
    Where,
}

pub struct Tools {
    access: Access,
    commands: Commands,
    shells: Shells,
}

impl Tools {
    pub(super) fn new(access: Access, commands: Commands, shells: Shells) -> Self {
        Self { access, commands, shells }
    }

    /// Pure check. The error's text lets a model correct its call in one step.
    pub fn check(&self, name: &str, arguments: Map<String, Value>) -> Result<ToolCall, InvalidRequest> {
        let invalid = |text: &str| InvalidRequest::new(text);
        match name {
            "where" => Ok(ToolCall(Checked::Where)),
            "bash" => {
                let Some(cmd) = arguments.get("command").and_then(Value::as_str) else {
                    return Err(invalid("bash needs `command`, a string, for example {\"command\": \"ls\"}"));
                };
                let timeout_ms = match arguments.get("timeout_ms") {
                    None => TimeLimit::default(),
                    Some(given) => {
                        let given = given.as_u64().ok_or_else(|| invalid("`timeout_ms` must be a whole number"))?;
                        TimeLimit::Milliseconds(given)
                    }
                };
                let id = getrandom::u64().map_err(|_| invalid("there is no randomness"))?;
                let exec_id = ExecId::new(format!("tool-{id:016x}"))?;
                let request = ApiExecRequest {
                    cmd: cmd.to_owned(),
                    timeout_ms,
                    exec_id: Some(exec_id.clone()),
                    ..ApiExecRequest::default()
                };
                Ok(ToolCall(Checked::Bash(Box::new(self.commands.check_exec_stream(request)?), exec_id)))
            }
            _ => Err(InvalidRequest::new(format!("there is no tool {name:?}"))),
        }
    }

    pub async fn call(
        &self,
        caller: &Caller,
        id: &SessionId,
        call: ToolCall,
        following: Following,
    ) -> Result<ToolReply, CallError> {
        match call.0 {
            Checked::Where => {
                let cwd = self.access.session(caller, id)?.view().cwd;
                Ok(ToolReply { content: vec![ToolContent::Text(cwd)], structured: None, is_error: false })
            }
            Checked::Bash(spec, exec_id) => self.bash(caller, id, &spec, &exec_id, following).await,
        }
    }

    async fn bash(
        &self,
        caller: &Caller,
        id: &SessionId,
        spec: &ExecSpec,
        exec_id: &ExecId,
        following: Following,
    ) -> Result<ToolReply, CallError> {
        let mut stream = self.commands.stream_exec(caller, id, spec).await?;
        let mut cancelled = following.cancelled;
        let mut output = String::new();
        loop {
            let event = tokio::select! {
                event = stream.next() => event,
                () = asked(&mut cancelled) => {
                    let request = SignalRequest { signal: "INT".into(), exec_id: Some(exec_id.clone()), shell: None };
                    if let Ok(signal) = SignalSpec::new(request) {
                        self.shells.signal(caller, id, &signal).await?;
                    }
                    cancelled = None;
                    continue;
                }
            };
            match event {
                Some(ExecEvent::Output { piece, .. }) => {
                    output.push_str(&piece.text);
                    if let Some(progress) = &following.progress {
                        let _ = progress.try_send(ToolProgress { message: piece.text });
                    }
                }
                Some(ExecEvent::Done(done)) => {
                    let structured = json!({ "exit_code": done.exit_code, "cwd": done.cwd, "exec_id": done.exec_id });
                    let is_error = done.exit_code != 0;
                    return Ok(ToolReply {
                        content: vec![ToolContent::Text(output)],
                        structured: Some(structured),
                        is_error,
                    });
                }
                Some(ExecEvent::Failed(error)) => return Err(error),
                Some(_) => {}
                None => return Ok(ToolReply { content: Vec::new(), structured: None, is_error: true }),
            }
        }
    }
}

/// Waits until the call is to be cancelled; for ever if nobody can.
async fn asked(cancelled: &mut Option<tokio::sync::watch::Receiver<bool>>) {
    let is_asked = match cancelled {
        Some(receiver) => receiver.wait_for(|asked| *asked).await.is_ok(),
        None => false,
    };
    if !is_asked {
        std::future::pending().await
    }
}

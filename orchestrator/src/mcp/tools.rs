//! The service's tools as MCP shows them, and the life of one call: check, sandbox, progress, cancellation, result.
//!
//! What a model can correct or should know is a result with `isError`, because clients show that to the model: bad arguments, a
//! sandbox that cannot be made, a command that failed. Only a tool that does not exist is an error of the protocol.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, ErrorData, JsonObject, ProgressNotificationParam, Tool,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::sandbox::Sandbox;
use crate::service::tools::{
    Effect, Following, LinkUrl, ToolContent, ToolDefinition, ToolProgress, ToolReply, definitions,
};
use crate::service::{Caller, Service};

/// The shortest time between two notes about the progress of a call. Of what a tool tells in between, the last counts.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// How many notes of a tool wait while one is being sent.
const PROGRESS_QUEUE: usize = 16;
/// The most characters of one note; the end of it is kept.
const MAX_PROGRESS_CHARS: usize = 500;

pub fn all() -> Vec<Tool> {
    definitions().iter().map(tool).collect()
}

pub fn named(name: &str) -> Option<Tool> {
    definitions().iter().find(|definition| definition.name == name).map(tool)
}

fn tool(definition: &ToolDefinition) -> Tool {
    let annotations = ToolAnnotations::with_title(definition.title)
        .read_only(definition.effect == Effect::ReadOnly)
        .destructive(definition.effect == Effect::Destroys)
        .idempotent(definition.is_idempotent)
        .open_world(definition.is_open_world);
    let tool = Tool::new(definition.name, definition.description, object(&definition.input_schema))
        .with_title(definition.title)
        .with_annotations(annotations);
    match &definition.output_schema {
        Some(schema) => tool.with_raw_output_schema(object(schema)),
        None => tool,
    }
}

fn object(schema: &Value) -> Arc<JsonObject> {
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

/// Where a call is carried out.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub service: &'a Service,
    pub link_url: &'a LinkUrl,
    pub sandbox: &'a Sandbox,
}

/// Carries out one call. If the client cancels it, the tool ends its command.
pub async fn call(
    Place { service, link_url, sandbox }: Place<'_>,
    caller: &Caller,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    if !definitions().iter().any(|definition| definition.name == request.name) {
        let known: Vec<&str> = definitions().iter().map(|definition| definition.name).collect();
        let shown: String = request.name.chars().take(64).collect();
        let message = format!("there is no tool {shown:?}; the tools are {}", known.join(", "));
        return Err(ErrorData::invalid_params(message, None));
    }
    let checked = match service.tools().check(&request.name, request.arguments.unwrap_or_default()) {
        Ok(checked) => checked,
        Err(invalid) => return Ok(failure(invalid.to_string())),
    };
    let id = tokio::select! {
        made = sandbox.session() => match made {
            Ok(id) => id,
            Err(error) => return Ok(failure(format!("There is no sandbox: {error}"))),
        },
        () = context.ct.cancelled() => return Ok(failure("The call was cancelled.".into())),
    };
    let (cancel, cancelled) = watch::channel(false);
    let token = context.meta.get_progress_token();
    let (progress, mut told) = mpsc::channel(PROGRESS_QUEUE);
    let following = Following {
        progress: token.is_some().then_some(progress),
        cancelled: Some(cancelled),
        link_url: Some(link_url.clone()),
    };
    let mut work = std::pin::pin!(service.tools().call(caller, &id, checked, following));
    let mut pace = Pace::default();
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            Some(note) = told.recv() => pace.hear(note),
            () = pace.due(), if pace.has_note() => {
                if let (Some(token), Some((message, count))) = (&token, pace.take()) {
                    let note = ProgressNotificationParam::new(token.clone(), count).with_message(message);
                    // A client that has gone does not end its command.
                    let _ = context.peer.notify_progress(note).await;
                }
            }
            () = context.ct.cancelled(), if !*cancel.borrow() => {
                // Without a reader, a command goes on.
                if sandbox.is_left() {
                    return Ok(failure("The daemon stops.".into()));
                }
                cancel.send_replace(true);
            }
        }
    };
    Ok(match done {
        Ok(reply) => {
            if let Some(next) = &reply.moved_to {
                sandbox.move_to(next).await;
            }
            result(reply)
        }
        Err(error) => {
            let consequence = sandbox.failed(&id, &error).await.unwrap_or_default();
            failure(format!("{error}. {consequence}").trim_end().to_owned())
        }
    })
}

/// When the next note may be sent, and which.
#[derive(Default)]
struct Pace {
    note: Option<String>,
    sent_at: Option<Instant>,
    sent: u32,
}

impl Pace {
    fn hear(&mut self, ToolProgress { message }: ToolProgress) {
        self.note = Some(message);
    }

    fn has_note(&self) -> bool {
        self.note.is_some()
    }

    async fn due(&self) {
        if let Some(sent_at) = self.sent_at {
            tokio::time::sleep_until(sent_at + PROGRESS_INTERVAL).await;
        }
    }

    /// The note to send now, with its number: progress must grow.
    fn take(&mut self) -> Option<(String, f64)> {
        let note = self.note.take()?;
        self.sent_at = Some(Instant::now());
        self.sent += 1;
        Some((last_chars(&note, MAX_PROGRESS_CHARS), f64::from(self.sent)))
    }
}

fn last_chars(text: &str, most: usize) -> String {
    let text = text.trim_end();
    let skipped = text.chars().count().saturating_sub(most);
    text.chars().skip(skipped).collect()
}

fn result(reply: ToolReply) -> CallToolResult {
    let content = reply.content.into_iter().map(|content| match content {
        ToolContent::Text(text) => ContentBlock::text(text),
        ToolContent::Image { media_type, data } => ContentBlock::image(STANDARD.encode(data), media_type),
    });
    let mut result = CallToolResult::success(content.collect());
    result.structured_content = reply.structured;
    result.is_error = Some(reply.is_error);
    result
}

fn failure(text: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_says_what_it_does_to_the_sandbox() {
        let shown = |effect, is_idempotent| {
            let definition = ToolDefinition {
                name: "t",
                title: "T",
                description: "d",
                effect,
                is_idempotent,
                is_open_world: false,
                input_schema: serde_json::json!({ "type": "object" }),
                output_schema: None,
            };
            serde_json::to_value(tool(&definition)).unwrap()["annotations"].clone()
        };
        for (effect, reads, destroys) in
            [(Effect::ReadOnly, true, false), (Effect::Changes, false, false), (Effect::Destroys, false, true)]
        {
            let expected = serde_json::json!({
                "title": "T", "readOnlyHint": reads, "destructiveHint": destroys, "idempotentHint": true, "openWorldHint": false
            });
            assert_eq!(shown(effect, true), expected);
        }
        assert_eq!(shown(Effect::Changes, false)["idempotentHint"], false);
    }

    #[test]
    fn an_image_is_shown_as_an_image_beside_what_is_structured() {
        let data = bytes::Bytes::from_static(b"png");
        let content = vec![ToolContent::Text("a".into()), ToolContent::Image { media_type: "image/png", data }];
        let reply =
            ToolReply { content, structured: Some(serde_json::json!({"n": 1})), is_error: true, moved_to: None };
        let shown = serde_json::to_value(result(reply)).unwrap();
        assert_eq!(shown["content"][0], serde_json::json!({"type": "text", "text": "a"}));
        let image = serde_json::json!({"type": "image", "data": "cG5n", "mimeType": "image/png"});
        assert_eq!(shown["content"][1], image);
        assert_eq!((&shown["structuredContent"]["n"], &shown["isError"]), (&1.into(), &true.into()));
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_notes_the_last_is_sent_and_not_too_often() {
        let mut pace = Pace::default();
        let note = |text: &str| ToolProgress { message: text.to_owned() };
        pace.hear(note("a"));
        let began = Instant::now();
        pace.due().await;
        assert_eq!((pace.take(), began.elapsed()), (Some(("a".into(), 1.0)), Duration::ZERO));
        pace.hear(note("b"));
        pace.hear(note(&format!("{}c\n", "x".repeat(600))));
        pace.due().await;
        assert_eq!(began.elapsed(), PROGRESS_INTERVAL);
        let (text, count) = pace.take().unwrap();
        assert!(text.ends_with("xc") && text.chars().count() == MAX_PROGRESS_CHARS, "{text}");
        assert!(count > 1.0 && !pace.has_note());
    }
}

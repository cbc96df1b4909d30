//! `/v1/tools` and `…/tools/{tool}`: the tools of agents, in the forms that model providers take.

use std::str::FromStr;

use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use serde_json::{Map, Value, json};
use shared_protocol::api::{ToolContentView, ToolReplyView};

use super::ApiState;
use super::error::ApiError;
use super::extract::{By, JsonOrNothing, SessionPath, ToolPath, query};
use crate::service::tools::{Effect, Following, ToolContent, ToolDefinition, ToolReply, definitions};

/// The forms in which the definitions are served, as `format` names them.
pub const FORMATS: [&str; 4] = ["mcp", "openai", "anthropic", "gemini"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Mcp,
    OpenAi,
    Anthropic,
    Gemini,
}

impl FromStr for Format {
    type Err = ApiError;

    fn from_str(name: &str) -> Result<Self, ApiError> {
        match name {
            "mcp" => Ok(Self::Mcp),
            "openai" => Ok(Self::OpenAi),
            "anthropic" => Ok(Self::Anthropic),
            "gemini" => Ok(Self::Gemini),
            _ => Err(ApiError::invalid(format!("format must be one of {}", FORMATS.join(", ")))),
        }
    }
}

/// Lists the tools. The answer can be given to a model's API as it is.
pub async fn list(By(_): By, uri: Uri) -> Result<Json<Vec<Value>>, ApiError> {
    let query = query(&uri, &["format"])?;
    let format = query.text("format")?.map_or(Ok(Format::Mcp), str::parse)?;
    Ok(Json(definitions().iter().map(|tool| defined(tool, format)).collect()))
}

pub async fn call(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ToolPath(tool): ToolPath,
    JsonOrNothing(arguments): JsonOrNothing<Map<String, Value>>,
) -> Result<Json<ToolReplyView>, ApiError> {
    let tools = state.service.tools();
    let call = state.checked(&caller, &id, tools.check(&tool, arguments))?;
    let following = Following { link_url: Some(state.previews.link_url()), ..Following::default() };
    Ok(Json(view(tools.call(&caller, &id, call, following).await?)))
}

fn view(reply: ToolReply) -> ToolReplyView {
    let content = reply.content.into_iter().map(|part| match part {
        ToolContent::Text(text) => ToolContentView::Text { text },
        ToolContent::Image { media_type, data } => {
            ToolContentView::Image { media_type: media_type.to_owned(), data_base64: STANDARD.encode(data) }
        }
    });
    ToolReplyView {
        content: content.collect(),
        structured: reply.structured,
        is_error: reply.is_error,
        session_id: reply.moved_to,
    }
}

/// A tool in the form that a provider takes.
fn defined(tool: &ToolDefinition, format: Format) -> Value {
    let (name, description, schema) = (tool.name, tool.description, &tool.input_schema);
    match format {
        Format::Mcp => json!({
            "name": name,
            "title": tool.title,
            "description": description,
            "inputSchema": schema,
            "outputSchema": tool.output_schema,
            "annotations": {
                "title": tool.title,
                "readOnlyHint": tool.effect == Effect::ReadOnly,
                "destructiveHint": tool.effect == Effect::Destroys,
                "idempotentHint": tool.is_idempotent,
                "openWorldHint": tool.is_open_world,
            },
        }),
        Format::OpenAi => json!({
            "type": "function",
            "function": { "name": name, "description": description, "parameters": schema },
        }),
        Format::Anthropic => json!({ "name": name, "description": description, "input_schema": schema }),
        Format::Gemini => json!({ "name": name, "description": description, "parameters": for_gemini(schema) }),
    }
}

/// Gemini takes a part of JSON schema only, and refuses the rest.
fn for_gemini(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let known = fields.iter().filter(|(name, _)| !["additionalProperties", "default"].contains(&name.as_str()));
            Value::Object(known.map(|(name, value)| (name.clone(), for_gemini(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(for_gemini).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_provider_gets_the_form_that_it_takes() {
        let bash = definitions().iter().find(|tool| tool.name == "bash").unwrap();
        assert_eq!(defined(bash, Format::OpenAi)["function"]["parameters"]["type"], "object");
        assert_eq!(defined(bash, Format::Anthropic)["input_schema"]["properties"]["command"]["type"], "string");
        let mcp = defined(bash, Format::Mcp);
        assert_eq!(mcp["annotations"]["destructiveHint"], true);
        assert_eq!(mcp["inputSchema"]["additionalProperties"], false);
        for tool in definitions() {
            assert!(!defined(tool, Format::Gemini).to_string().contains("additionalProperties"), "{}", tool.name);
        }
        for name in FORMATS {
            assert!(name.parse::<Format>().is_ok(), "{name}");
        }
    }
}

//! One line of the table: a method, a path, its handler, and what a client needs to know of it.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};
use shared_protocol::api::AttachedFrame;
use shared_protocol::id::ID_PATTERN;

use super::ApiState;

/// Turns a type into its schema, whichever the type.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

pub struct Route {
    pub method: &'static str,
    /// As axum has it: `{name}` is one segment, `{*name}` all that follows.
    pub path: &'static str,
    pub summary: &'static str,
    pub parameters: Vec<Parameter>,
    pub request: Option<Content>,
    pub replies: Vec<(u16, Option<Content>)>,
    pub needs_key: bool,
    handler: MethodRouter<ApiState>,
}

/// What a body is: a type, or bytes of some media type.
pub struct Content {
    pub media_type: &'static str,
    pub schema: Option<SchemaOf>,
    pub is_required: bool,
}

#[derive(Clone)]
pub struct Parameter {
    pub name: &'static str,
    pub place: Place,
    pub is_required: bool,
    pub schema: Value,
    pub about: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Path,
    Query,
    Header,
}

fn route<H, T>(
    filter: MethodFilter,
    method: &'static str,
    path: &'static str,
    handler: H,
    summary: &'static str,
) -> Route
where
    H: Handler<T, ApiState>,
    T: 'static,
{
    Route {
        method,
        path,
        summary,
        parameters: path_parameters(path),
        request: None,
        replies: Vec::new(),
        needs_key: true,
        handler: on(filter, handler),
    }
}

macro_rules! methods {
    ($($name:ident $filter:ident $method:literal),*) => {$(
        pub fn $name<H, T>(path: &'static str, handler: H, summary: &'static str) -> Route
        where
            H: Handler<T, ApiState>,
            T: 'static,
        {
            route(MethodFilter::$filter, $method, path, handler, summary)
        }
    )*};
}

methods!(get GET "get", post POST "post", put PUT "put", delete DELETE "delete", head HEAD "head");

impl Route {
    pub fn into_handler(self) -> (&'static str, MethodRouter<ApiState>) {
        (self.path, self.handler)
    }

    /// A JSON body.
    pub fn takes<T: JsonSchema>(mut self) -> Self {
        let schema: SchemaOf = SchemaGenerator::subschema_for::<T>;
        self.request = Some(Content { media_type: "application/json", schema: Some(schema), is_required: true });
        self
    }

    /// A JSON body that may be left out.
    pub fn may_take<T: JsonSchema>(self) -> Self {
        let mut route = self.takes::<T>();
        if let Some(request) = &mut route.request {
            request.is_required = false;
        }
        route
    }

    /// Bytes, of which there may be none: an empty file is one.
    pub fn takes_bytes(mut self, media_type: &'static str) -> Self {
        self.request = Some(Content { media_type, schema: None, is_required: false });
        self
    }

    pub fn replies<T: JsonSchema>(self, status: u16) -> Self {
        self.replies_as::<T>(status, "application/json")
    }

    /// For streams, the type of one event.
    pub fn replies_as<T: JsonSchema>(mut self, status: u16, media_type: &'static str) -> Self {
        let schema: SchemaOf = SchemaGenerator::subschema_for::<T>;
        self.replies.push((status, Some(Content { media_type, schema: Some(schema), is_required: true })));
        self
    }

    /// A stream: events, or the same as lines of JSON for who asks for that.
    pub fn replies_events(self, status: u16) -> Self {
        self.replies_bytes(status, "text/event-stream").replies_as::<AttachedFrame>(status, "application/x-ndjson")
    }

    pub fn replies_bytes(mut self, status: u16, media_type: &'static str) -> Self {
        self.replies.push((status, Some(Content { media_type, schema: None, is_required: true })));
        self
    }

    /// An answer without a body.
    pub fn replies_nothing(mut self, status: u16) -> Self {
        self.replies.push((status, None));
        self
    }

    pub fn needs_no_key(mut self) -> Self {
        self.needs_key = false;
        self
    }

    fn parameter(
        mut self,
        place: Place,
        name: &'static str,
        is_required: bool,
        schema: Value,
        about: &'static str,
    ) -> Self {
        self.parameters.push(Parameter { name, place, is_required, schema, about });
        self
    }

    pub fn query(self, name: &'static str, schema: Value, about: &'static str) -> Self {
        self.parameter(Place::Query, name, false, schema, about)
    }

    pub fn needs_query(self, name: &'static str, schema: Value, about: &'static str) -> Self {
        self.parameter(Place::Query, name, true, schema, about)
    }

    pub fn header(self, name: &'static str, schema: Value, about: &'static str) -> Self {
        self.parameter(Place::Header, name, false, schema, about)
    }
}

/// The names in braces, each with what it looks like.
fn path_parameters(path: &str) -> Vec<Parameter> {
    let known = [
        ("session_id", json!({ "type": "string", "pattern": ID_PATTERN }), "The session"),
        ("workspace_id", json!({ "type": "string", "pattern": ID_PATTERN }), "The workspace"),
        ("exec_id", json!({ "type": "string", "pattern": ID_PATTERN }), "The command or run"),
        ("shell", json!({ "type": "string", "pattern": ID_PATTERN }), "The shell"),
        (
            "image",
            json!({ "type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^\\u0000-\\u001f/]+$" }),
            "The image",
        ),
        ("path", path_schema(), "The file; behind a second slash, or an encoded one, an absolute path"),
    ];
    let is_in = |name: &str| path.contains(&format!("{{{name}}}")) || path.contains(&format!("{{*{name}}}"));
    known
        .into_iter()
        .filter(|(name, _, _)| is_in(name))
        .map(|(name, schema, about)| Parameter { name, place: Place::Path, is_required: true, schema, about })
        .collect()
}

/// Of a path in the sandbox: anything but NUL, and not nothing.
pub fn path_schema() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 4096, "pattern": "^[^\\u0000]+$" })
}

pub fn flag_schema() -> Value {
    json!({ "type": "string", "enum": ["0", "1", "true", "false"] })
}

pub fn whole_schema() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX })
}

/// Of a terminal, in characters.
pub fn size_schema() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 1_000 })
}

//! One route: its method, path and handler, and the parameters, bodies and replies that the OpenAPI document describes.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, any, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};
use shared_protocol::api::AttachedFrame;
use shared_protocol::id::ID_PATTERN;

use crate::api::ApiState;
use crate::service::tools::definitions;

/// A function that makes the schema of one type.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One route of the table.
pub struct Route {
    pub method: &'static str,
    /// The path in axum's syntax: `{name}` is one segment, `{*name}` is the rest of the path.
    pub path: &'static str,
    pub summary: &'static str,
    pub parameters: Vec<Parameter>,
    pub request: Option<Content>,
    pub replies: Vec<(u16, Option<Content>)>,
    pub needs_key: bool,
    /// Only an admin key may use it. The service decides that; a test checks that both say the same.
    pub is_for_admins: bool,
    /// A `get` that changes something, so that it belongs into the audit log. All other methods do.
    pub changes: bool,
    handler: MethodRouter<ApiState>,
}

/// A body: a JSON document of some type, or bytes of some media type.
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

fn route(handler: MethodRouter<ApiState>, method: &'static str, path: &'static str, summary: &'static str) -> Route {
    Route {
        method,
        path,
        summary,
        parameters: path_parameters(path),
        request: None,
        replies: Vec::new(),
        needs_key: true,
        is_for_admins: false,
        changes: false,
        handler,
    }
}

/// A route whose handler gets requests of every method, because they may be for a server in a sandbox. The document names one
/// of them.
pub fn any_method<H, T>(method: &'static str, path: &'static str, handler: H, summary: &'static str) -> Route
where
    H: Handler<T, ApiState>,
    T: 'static,
{
    route(any(handler), method, path, summary)
}

macro_rules! methods {
    ($($name:ident $filter:ident $method:literal),*) => {$(
        pub fn $name<H, T>(path: &'static str, handler: H, summary: &'static str) -> Route
        where
            H: Handler<T, ApiState>,
            T: 'static,
        {
            route(on(MethodFilter::$filter, handler), $method, path, summary)
        }
    )*};
}

methods!(get GET "get", post POST "post", put PUT "put", patch PATCH "patch", delete DELETE "delete");

impl Route {
    pub fn into_handler(self) -> (&'static str, MethodRouter<ApiState>) {
        (self.path, self.handler)
    }

    /// Adds a JSON body to the request.
    pub fn takes<T: JsonSchema>(mut self) -> Self {
        let schema: SchemaOf = SchemaGenerator::subschema_for::<T>;
        self.request = Some(Content { media_type: "application/json", schema: Some(schema), is_required: true });
        self
    }

    /// Adds an optional JSON body to the request.
    pub fn may_take<T: JsonSchema>(self) -> Self {
        let mut route = self.takes::<T>();
        if let Some(request) = &mut route.request {
            request.is_required = false;
        }
        route
    }

    /// Adds a body of bytes to the request. It may be empty, because a file may be empty.
    pub fn takes_bytes(mut self, media_type: &'static str) -> Self {
        self.request = Some(Content { media_type, schema: None, is_required: false });
        self
    }

    pub fn replies<T: JsonSchema>(self, status: u16) -> Self {
        self.replies_as::<T>(status, "application/json")
    }

    /// Adds a reply with a body of some media type. For a stream, `T` is the type of one event.
    pub fn replies_as<T: JsonSchema>(mut self, status: u16, media_type: &'static str) -> Self {
        let schema: SchemaOf = SchemaGenerator::subschema_for::<T>;
        self.replies.push((status, Some(Content { media_type, schema: Some(schema), is_required: true })));
        self
    }

    /// Adds a reply that is a stream: server-sent events, or JSON lines for a client that asks for them.
    pub fn replies_events(self, status: u16) -> Self {
        self.replies_bytes(status, "text/event-stream").replies_as::<AttachedFrame>(status, "application/x-ndjson")
    }

    pub fn replies_bytes(mut self, status: u16, media_type: &'static str) -> Self {
        self.replies.push((status, Some(Content { media_type, schema: None, is_required: true })));
        self
    }

    /// Adds a reply without a body.
    pub fn replies_nothing(mut self, status: u16) -> Self {
        self.replies.push((status, None));
        self
    }

    pub fn needs_no_key(mut self) -> Self {
        self.needs_key = false;
        self
    }

    /// Marks a route that only an admin key may use.
    pub fn for_admins(mut self) -> Self {
        self.is_for_admins = true;
        self
    }

    /// Marks a `get` that changes something.
    pub fn changes(mut self) -> Self {
        self.changes = true;
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

/// An id, or two with a colon between them.
const WORKSPACE_PATTERN: &str = "^([A-Za-z0-9][A-Za-z0-9._-]{0,63}:)?[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";

/// The parameters in a path's braces, with their schemas.
fn path_parameters(path: &str) -> Vec<Parameter> {
    let known = [
        ("session_id", json!({ "type": "string", "pattern": ID_PATTERN }), "The id of the session"),
        (
            "workspace_id",
            json!({ "type": "string", "pattern": WORKSPACE_PATTERN }),
            "The id of the workspace; an admin names that of another key as `OWNER:ID`",
        ),
        ("snapshot_id", json!({ "type": "string", "pattern": ID_PATTERN }), "The id of the snapshot"),
        ("secret_name", json!({ "type": "string", "pattern": ID_PATTERN }), "The name of the secret"),
        ("key_name", json!({ "type": "string", "pattern": ID_PATTERN }), "The name of the key"),
        ("exec_id", json!({ "type": "string", "pattern": ID_PATTERN }), "The id of the command or run"),
        (
            "port",
            json!({ "type": "integer", "minimum": 1, "maximum": u16::MAX }),
            "The number of the port on which the server in the sandbox listens",
        ),
        (
            "tool",
            json!({ "type": "string", "enum": definitions().iter().map(|tool| tool.name).collect::<Vec<_>>() }),
            "The name of the tool",
        ),
        ("shell", json!({ "type": "string", "pattern": ID_PATTERN }), "The name of the shell"),
        (
            "image",
            json!({ "type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^\\u0000-\\u001f/]+$" }),
            "The name of the image",
        ),
        (
            "path",
            path_schema(),
            "The path of the file, relative to /workspace; an absolute path begins with a second slash (or %2F)",
        ),
    ];
    let is_in = |name: &str| path.contains(&format!("{{{name}}}")) || path.contains(&format!("{{*{name}}}"));
    known
        .into_iter()
        .filter(|(name, _, _)| is_in(name))
        .map(|(name, schema, about)| Parameter { name, place: Place::Path, is_required: true, schema, about })
        .collect()
}

/// The schema of a path in the sandbox: anything but NUL, and not empty.
pub fn path_schema() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 4096, "pattern": "^[^\\u0000]+$" })
}

pub fn flag_schema() -> Value {
    json!({ "type": "string", "enum": ["0", "1", "true", "false"] })
}

pub fn whole_schema() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX })
}

/// The schema of a terminal's width or height, in characters.
pub fn size_schema() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 1_000 })
}

//! `/openapi.json`: an OpenAPI 3.1 document, generated from the table of routes and the schemas of the wire types.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use hyper::header::CONTENT_TYPE;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use shared_protocol::ErrorBody;

use super::all;
use super::names::{TAGS, name};
use super::route::{Content, Parameter, Place, Route};

static DOCUMENT: LazyLock<String> = LazyLock::new(|| build(&all()).to_string());

pub async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

pub fn build(routes: &[Route]) -> Value {
    let mut asked = generator(SchemaSettings::for_deserialize);
    let mut answered = generator(SchemaSettings::for_serialize);
    let error = answered.subschema_for::<ErrorBody>().to_value();
    let mut paths = Map::new();
    for route in routes {
        let operation = operation(route, &mut asked, &mut answered);
        let path = paths.entry(route.path.replace("{*", "{")).or_insert_with(|| json!({}));
        path[route.method] = operation;
    }
    // A type that is both sent and received has the same schema in both directions; a test checks that.
    let mut schemas = asked.take_definitions(true);
    schemas.extend(answered.take_definitions(true));
    schemas.values_mut().for_each(describe_marks);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cove",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Sandboxed Linux machines with persistent shells",
        },
        "security": [{ "key": [] }],
        "tags": TAGS.map(|tag| json!({ "name": tag.name, "description": tag.about })),
        "paths": paths,
        "components": {
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas,
            "responses": {
                "Error": {
                    "description": "The error: what went wrong, and what the client can do about it",
                    "content": { "application/json": { "schema": error } },
                },
            },
        },
    })
}

/// Describes the fields that tell the variants of a type apart: they come from serde, and have no comment in the sources.
fn describe_marks(schema: &mut Value) {
    let variants = schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten();
    for field in variants.filter_map(|variant| variant.get_mut("properties")?.as_object_mut()).flat_map(Map::values_mut)
    {
        if let (Some(name), None) = (field.get("const").cloned(), field.get("description")) {
            field["description"] = json!(format!("Always {name}."));
        }
    }
}

/// The errors that a client has to expect of a route besides failures of the daemon, which are `default`.
fn errors(route: &Route) -> Vec<(u16, &'static str)> {
    let in_path = |name: &str| route.path.contains(name);
    let changes = route.method != "get";
    let is_given_something = !route.parameters.is_empty() || route.request.is_some();
    [
        (400, is_given_something, "INVALID_REQUEST: the request is malformed or out of bounds"),
        (401, route.needs_key, "UNAUTHORIZED: the key is missing or wrong"),
        (403, true, "FORBIDDEN: a foreign Host or Origin, or a file that the sandbox's user may not access"),
        (404, in_path("_id}"), "What the path names does not exist: the code ends with NOT_FOUND"),
        (409, changes && in_path("_id}"), "CONFLICT or SHELL_BUSY: not in this state"),
        (410, in_path("{session_id}"), "SESSION_EXPIRED: the session has expired"),
        (413, route.request.is_some(), "TOO_LARGE: the body is too large"),
        (429, changes, "LIMIT_REACHED: there is no room; `details` may say of what"),
        (502, in_path("_id}"), "SANDBOX_LOST: the sandbox has ended by itself, or does not answer. PORT_CLOSED: nothing listens on the port, or the server gave no answer"),
    ]
    .into_iter()
    .filter_map(|(status, applies, about)| applies.then_some((status, about)))
    .collect()
}

fn generator(contract: fn(SchemaSettings) -> SchemaSettings) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    contract(settings).into_generator()
}

fn operation(route: &Route, asked: &mut SchemaGenerator, answered: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for (status, body) in &route.replies {
        let reply = responses.entry(status.to_string()).or_insert_with(|| json!({ "description": route.summary }));
        if let Some(body) = body {
            reply["content"][body.media_type] = content(body, answered);
        }
    }
    for (status, about) in errors(route) {
        let content = json!({ "application/json": { "schema": answered.subschema_for::<ErrorBody>() } });
        responses.insert(status.to_string(), json!({ "description": about, "content": content }));
    }
    responses.insert("default".into(), json!({ "$ref": "#/components/responses/Error" }));
    let mut operation = json!({ "summary": route.summary, "responses": responses });
    if let Some(name) = name(route) {
        operation["operationId"] = json!(name.id);
        operation["tags"] = json!([name.tag.name]);
        operation["description"] = json!(name.about);
    }
    if !route.parameters.is_empty() {
        operation["parameters"] = route.parameters.iter().map(parameter).collect();
    }
    if let Some(body) = &route.request {
        operation["requestBody"] =
            json!({ "required": body.is_required, "content": { body.media_type: content(body, asked) } });
    }
    if route.is_for_admins {
        operation["x-role"] = json!("admin");
    }
    if !route.needs_key {
        operation["security"] = json!([]);
    }
    operation
}

fn content(body: &Content, generator: &mut SchemaGenerator) -> Value {
    match body.schema {
        Some(schema) => json!({ "schema": schema(generator) }),
        None => json!({}),
    }
}

fn parameter(parameter: &Parameter) -> Value {
    let place = match parameter.place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
    };
    json!({
        "name": parameter.name,
        "in": place,
        "required": parameter.is_required,
        "description": parameter.about,
        "schema": parameter.schema,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_in_the_document_and_nothing_else() {
        let routes = all();
        let document = build(&routes);
        let mut listed = 0;
        for operations in document["paths"].as_object().unwrap().values() {
            listed += operations.as_object().unwrap().len();
        }
        assert_eq!(listed, routes.len());
        for route in &routes {
            let operation = &document["paths"][route.path.replace("{*", "{")][route.method];
            assert!(operation["responses"].as_object().unwrap().len() >= 2, "{} has no reply", route.path);
            let braces = route.path.matches('{').count();
            let named = route.parameters.iter().filter(|p| p.place == Place::Path).count();
            assert_eq!(braces, named, "a parameter of {} is not described", route.path);
        }
    }

    #[test]
    fn every_operation_has_an_id_of_its_own_a_group_and_a_description() {
        let document = build(&all());
        let mut ids = std::collections::BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let text = |field: &str| operation[field].as_str().unwrap_or_default().to_owned();
                assert!(
                    !text("summary").is_empty() && !text("description").is_empty(),
                    "{method} {path}: see names.rs"
                );
                let id = text("operationId");
                assert!(id.chars().all(|c| c.is_ascii_alphanumeric()) && !id.is_empty(), "{method} {path}: {id:?}");
                assert!(ids.insert(id.clone()), "{id} is there twice");
                let tag = operation["tags"][0].as_str().unwrap_or_default();
                assert!(TAGS.iter().any(|known| known.name == tag), "{method} {path}");
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    assert!(parameter["description"].is_string(), "{method} {path}: {parameter}");
                }
                for (status, response) in operation["responses"].as_object().unwrap() {
                    assert!(response["description"].is_string() || status == "default", "{method} {path}: {status}");
                }
                assert!(operation["responses"]["403"].is_object(), "{method} {path} names no error");
            }
        }
    }

    /// Every schema, the variants in it, and all of their fields.
    #[test]
    fn every_schema_and_every_property_is_described() {
        let document = build(&all());
        let mut missing = Vec::new();
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            let variants = ["oneOf", "anyOf"].iter().filter_map(|kind| schema[kind].as_array()).flatten();
            for part in std::iter::once(schema).chain(variants) {
                if !part["description"].is_string() {
                    missing.push(format!("{name}: {part}"));
                }
                for (field, property) in part["properties"].as_object().into_iter().flatten() {
                    if !property["description"].is_string() {
                        missing.push(format!("{name}.{field}"));
                    }
                }
            }
        }
        assert!(missing.is_empty(), "without a description: {missing:#?}");
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let document = build(&all());
        let mut pending = vec![&document];
        while let Some(value) = pending.pop() {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(target)) = map.get("$ref") {
                        assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target}");
                    }
                    pending.extend(map.values());
                }
                Value::Array(items) => pending.extend(items),
                _ => {}
            }
        }
    }

    #[test]
    fn a_type_that_goes_both_ways_looks_the_same_in_both() {
        let mut asked = generator(SchemaSettings::for_deserialize);
        let mut answered = generator(SchemaSettings::for_serialize);
        for route in &all() {
            operation(route, &mut asked, &mut answered);
        }
        let (asked, answered) = (asked.take_definitions(true), answered.take_definitions(true));
        for (name, schema) in &asked {
            assert!(answered.get(name).is_none_or(|other| other == schema), "{name} differs");
        }
    }
}

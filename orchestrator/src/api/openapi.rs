//! `/openapi.json`: the table of routes and the schemas of the wire types, as OpenAPI 3.1. Nothing in it is written by hand.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use hyper::header::CONTENT_TYPE;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use shared_protocol::ErrorBody;

use super::route::{Content, Parameter, Place, Route};
use super::routes;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| build(&routes::all()).to_string());

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
    // A type in both looks the same in both, or it could not be sent back as it came; a test says so.
    let mut schemas = asked.take_definitions(true);
    schemas.extend(answered.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Cove", "version": env!("CARGO_PKG_VERSION"), "description": "Sandboxes with shells that remember" },
        "security": [{ "key": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas,
            "responses": {
                "Error": {
                    "description": "What went wrong, and what to do about it",
                    "content": { "application/json": { "schema": error } },
                },
            },
        },
    })
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
    responses.insert("default".into(), json!({ "$ref": "#/components/responses/Error" }));
    let mut operation = json!({
        "summary": route.summary,
        "operationId": operation_id(route),
        "responses": responses,
    });
    if !route.parameters.is_empty() {
        operation["parameters"] = route.parameters.iter().map(parameter).collect();
    }
    if let Some(body) = &route.request {
        operation["requestBody"] =
            json!({ "required": body.is_required, "content": { body.media_type: content(body, asked) } });
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

/// `post_v1_sessions_session_id_exec`
fn operation_id(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    std::iter::once(route.method).chain(words).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_in_the_document_and_nothing_else() {
        let routes = routes::all();
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
    fn every_reference_leads_to_a_schema() {
        let document = build(&routes::all());
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
        for route in &routes::all() {
            operation(route, &mut asked, &mut answered);
        }
        let (asked, answered) = (asked.take_definitions(true), answered.take_definitions(true));
        for (name, schema) in &asked {
            assert!(answered.get(name).is_none_or(|other| other == schema), "{name} differs");
        }
    }
}

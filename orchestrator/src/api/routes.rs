//! Every route there is. A line here is a route in the router and an operation in `/openapi.json`; there is no other way in.

use serde_json::{Value, json};
use shared_protocol::api::{
    CreateSessionRequest, ImageView, OkView, SessionStatus, SessionView, StatsView, WorkspaceList,
};

use super::route::{Route, delete, flag_schema, get, post};
use super::{health, images, openapi, sessions, workspaces};

pub fn all() -> Vec<Route> {
    [about_the_daemon(), sessions(), workspaces()].into_iter().flatten().collect()
}

fn about_the_daemon() -> Vec<Route> {
    vec![
        get("/healthz", health::healthz, "Whether the daemon lives")
            .needs_no_key()
            .replies::<health::DaemonHealth>(200),
        get("/readyz", health::readyz, "Whether its runtimes answer").replies::<health::DaemonHealth>(200),
        get("/metrics", health::metrics, "Figures for Prometheus")
            .replies_bytes(200, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        get("/openapi.json", openapi::document, "This document").replies::<Value>(200),
        get("/v1/images", images::list, "What a session can be created from").replies::<Vec<ImageView>>(200),
    ]
}

fn sessions() -> Vec<Route> {
    let statuses = SessionStatus::ALL.map(SessionStatus::as_str);
    vec![
        post("/v1/sessions", sessions::create, "Create a session")
            .header(
                "Idempotency-Key",
                json!({ "type": "string", "pattern": "^[!-~]{1,255}$" }),
                "A repeat with the same key and body is answered with the same session",
            )
            .may_take::<CreateSessionRequest>()
            .replies::<SessionView>(201),
        get("/v1/sessions", sessions::list, "List sessions; without a status, those that are not over")
            .query("status", json!({ "type": "string", "enum": statuses }), "Only these; may be given more than once")
            .query(
                "label",
                json!({ "type": "string", "pattern": "^[^=]+=.*$" }),
                "KEY=VALUE; may be given more than once",
            )
            .replies::<Vec<SessionView>>(200),
        get("/v1/sessions/{session_id}", sessions::get, "Look at a session").replies::<SessionView>(200),
        delete("/v1/sessions/{session_id}", sessions::destroy, "Destroy a session").replies::<OkView>(200),
        get("/v1/sessions/{session_id}/stats", sessions::stats, "What a session uses now").replies::<StatsView>(200),
    ]
}

fn workspaces() -> Vec<Route> {
    vec![
        get("/v1/workspaces", workspaces::list, "List workspaces").replies::<WorkspaceList>(200),
        delete("/v1/workspaces/{workspace_id}", workspaces::delete, "Delete a workspace with all that is in it")
            .query("force", flag_schema(), "Destroy the sessions that use it")
            .replies::<OkView>(200),
    ]
}

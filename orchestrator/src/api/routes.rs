//! Every route there is. A line here is a route in the router and an operation in `/openapi.json`; there is no other way in.

use serde_json::{Value, json};
use shared_protocol::api::{
    ApiExecRequest, ApiExecView, ApiRunRequest, CreateSessionRequest, DetachedView, ExecReply, FsReadView,
    FsWriteRequest, ImageView, MkdirRequest, MoveRequest, OkView, PoolView, RunReply, SessionStatus, SessionView,
    SetPoolRequest, StatsView, UploadedView, WorkspaceList,
};
use shared_protocol::id::ID_PATTERN;
use shared_protocol::runner::{
    FileView, InputRequest, ListView, OpenShellRequest, ResizeRequest, ShellView, SignalRequest, WroteView,
};

use super::route::{Route, delete, flag_schema, get, path_schema, post, put, size_schema, whole_schema};
use super::{
    archive, exec, exec_stream, execs, files, fs, health, images, input, openapi, pools, run, sessions, shells,
    terminal, upload, workspaces,
};

pub fn all() -> Vec<Route> {
    [about_the_daemon(), sessions(), commands(), shells(), files(), workspaces()].into_iter().flatten().collect()
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
        get("/v1/pools", pools::list, "What was started ahead, and how often that helped")
            .replies::<Vec<PoolView>>(200),
        put("/v1/pools/{image}", pools::set, "Say how many sandboxes of an image shall wait")
            .takes::<SetPoolRequest>()
            .replies::<PoolView>(200),
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
        post("/v1/sessions/{session_id}/pause", sessions::pause, "Freeze a session until it is needed")
            .replies::<SessionView>(200),
        post("/v1/sessions/{session_id}/resume", sessions::resume, "Wake a session").replies::<SessionView>(200),
        get("/v1/sessions/{session_id}/stats", sessions::stats, "What a session uses now").replies::<StatsView>(200),
    ]
}

fn commands() -> Vec<Route> {
    vec![
        post("/v1/sessions/{session_id}/exec", exec::exec, "Run a command in a persistent shell")
            .takes::<ApiExecRequest>()
            .replies::<ExecReply>(200)
            .replies::<DetachedView>(202),
        post("/v1/sessions/{session_id}/exec/stream", exec_stream::exec_stream, "The same, its output as it comes")
            .takes::<ApiExecRequest>()
            .replies_events(200),
        get("/v1/sessions/{session_id}/execs", execs::list, "Recent commands and runs")
            .replies::<Vec<ApiExecView>>(200),
        get("/v1/sessions/{session_id}/execs/{exec_id}", execs::reattach, "Output from an offset on, then live")
            .query("from", whole_schema(), "The first byte wanted")
            .query("follow", flag_schema(), "Until the end; otherwise what there is now")
            .header("Last-Event-ID", json!({ "type": "string", "pattern": "^[0-9]{1,15}$" }), "As `from`")
            .replies_events(200),
        post("/v1/sessions/{session_id}/run", run::run, "Run a program beside the shells")
            .takes::<ApiRunRequest>()
            .replies::<RunReply>(200)
            .replies::<DetachedView>(202),
        post("/v1/sessions/{session_id}/run/stream", run::run_stream, "The same, its output as it comes")
            .takes::<ApiRunRequest>()
            .replies_events(200),
        post("/v1/sessions/{session_id}/input", input::input, "Type at a shell's terminal")
            .takes::<InputRequest>()
            .replies::<OkView>(200),
        post("/v1/sessions/{session_id}/signal", input::signal, "Signal a foreground program")
            .takes::<SignalRequest>()
            .replies::<OkView>(200),
        post("/v1/sessions/{session_id}/resize", input::resize, "Resize a shell's terminal")
            .takes::<ResizeRequest>()
            .replies::<OkView>(200),
    ]
}

fn shells() -> Vec<Route> {
    vec![
        get("/v1/sessions/{session_id}/shells", shells::list, "List shells").replies::<Vec<ShellView>>(200),
        post("/v1/sessions/{session_id}/shells", shells::open, "Open another shell")
            .takes::<OpenShellRequest>()
            .replies::<ShellView>(201),
        delete("/v1/sessions/{session_id}/shells/{shell}", shells::close, "Close a shell").replies::<OkView>(200),
        post("/v1/sessions/{session_id}/shells/{shell}/reset", shells::reset, "Put a fresh shell in its place")
            .replies::<ShellView>(200),
        get("/v1/sessions/{session_id}/terminal", terminal::terminal, "A terminal, by WebSocket")
            .query(
                "shell",
                json!({ "type": "string", "pattern": ID_PATTERN }),
                "A shell that stays when the socket closes",
            )
            .query("cols", size_schema(), "Its width")
            .query("rows", size_schema(), "Its height")
            .replies_nothing(101),
    ]
}

fn files() -> Vec<Route> {
    let path = "Absolute, or below /workspace";
    vec![
        get("/v1/sessions/{session_id}/files/{*path}", files::get, "A file's bytes; ranges are possible")
            .header(
                "Range",
                json!({ "type": "string", "pattern": "^bytes=([0-9]{1,15}-[0-9]{0,15}|-[0-9]{1,15})$" }),
                "Only these bytes",
            )
            .replies_bytes(200, "application/octet-stream")
            .replies_bytes(206, "application/octet-stream"),
        put("/v1/sessions/{session_id}/files/{*path}", files::put, "Write a file, all or nothing")
            .query("mode", json!({ "type": "string", "pattern": "^[0-7]{1,4}$" }), "Permission bits")
            .takes_bytes("application/octet-stream")
            .replies::<WroteView>(201),
        delete("/v1/sessions/{session_id}/fs", fs::delete, "Delete a file or directory")
            .needs_query("path", path_schema(), path)
            .query("recursive", flag_schema(), "With all that is in it")
            .replies::<OkView>(200),
        get("/v1/sessions/{session_id}/fs/read", fs::read, "A small file, in JSON")
            .needs_query("path", path_schema(), path)
            .query("max_bytes", whole_schema(), "How much of it at most")
            .replies::<FsReadView>(200),
        post("/v1/sessions/{session_id}/fs/write", fs::write, "Write a small file, from JSON")
            .takes::<FsWriteRequest>()
            .replies::<OkView>(200),
        post("/v1/sessions/{session_id}/fs/upload", upload::upload, "Write files of a form")
            .takes_bytes("multipart/form-data")
            .replies::<UploadedView>(200),
        get("/v1/sessions/{session_id}/fs/list", fs::list, "List a directory; without a path, the workspace")
            .query("path", path_schema(), path)
            .query("recursive", flag_schema(), "With all that is below it")
            .replies::<ListView>(200),
        get("/v1/sessions/{session_id}/fs/stat", fs::stat, "Look at a file")
            .needs_query("path", path_schema(), path)
            .query("follow", flag_schema(), "0: a link itself, rather than what it leads to")
            .replies::<FileView>(200),
        post("/v1/sessions/{session_id}/fs/mkdir", fs::mkdir, "Make a directory")
            .takes::<MkdirRequest>()
            .replies::<FileView>(201),
        post("/v1/sessions/{session_id}/fs/move", fs::rename, "Move a file or directory")
            .takes::<MoveRequest>()
            .replies::<FileView>(200),
        get("/v1/sessions/{session_id}/archive", archive::get, "A directory, as tar")
            .needs_query("path", path_schema(), path)
            .replies_bytes(200, "application/x-tar"),
        put("/v1/sessions/{session_id}/archive", archive::put, "Unpack a tar into a directory")
            .needs_query("path", path_schema(), path)
            .takes_bytes("application/x-tar")
            .replies::<WroteView>(201),
    ]
}

fn workspaces() -> Vec<Route> {
    let path = "Relative to the workspace, or absolute in a sandbox that has it mounted";
    vec![
        get("/v1/workspaces", workspaces::list, "List workspaces").replies::<WorkspaceList>(200),
        delete("/v1/workspaces/{workspace_id}", workspaces::delete, "Delete a workspace with all that is in it")
            .query("force", flag_schema(), "Destroy the sessions that use it")
            .replies::<OkView>(200),
        get("/v1/workspaces/{workspace_id}/fs", workspaces::list_files, "List a directory of a workspace")
            .query("path", path_schema(), path)
            .query("recursive", flag_schema(), "With all that is below")
            .replies::<ListView>(200),
        get("/v1/workspaces/{workspace_id}/fs/read", workspaces::read_file, "Read a small file of a workspace")
            .needs_query("path", path_schema(), path)
            .query("max_bytes", whole_schema(), "Of the content")
            .replies::<FsReadView>(200),
        post("/v1/workspaces/{workspace_id}/fs/write", workspaces::write_file, "Write a small file of a workspace")
            .takes::<FsWriteRequest>()
            .replies::<OkView>(200),
        post("/v1/workspaces/{workspace_id}/fs/upload", workspaces::upload_files, "Upload files into a workspace")
            .takes_bytes("multipart/form-data")
            .replies::<UploadedView>(200),
    ]
}

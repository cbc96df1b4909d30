//! The table of all routes. Each entry is a route of the router and an operation in `/openapi.json`; no route exists outside this
//! table. It also says which routes need no key; `server::gate` reads that from here.

mod names;
mod openapi;
mod route;

use serde_json::{Map, Value, json};
use shared_protocol::api::{
    ApiExecRequest, ApiExecView, ApiRunRequest, CommitImageRequest, CreateFrame, CreateKeyRequest,
    CreateSessionRequest, CreateSnapshotRequest, DetachedView, ExecReply, ForkRequest, ForkView, FsReadView,
    FsWriteRequest, ImageDetailsView, ImageView, KeyList, MkdirRequest, MoveRequest, NetworkDecision, NetworkLogView,
    NetworkView, NewKeyView, OkView, PackagesView, PoolView, PortUrlRequest, PortUrlView, PullFrame, PullImageRequest,
    RemovedImagesView, RunReply, SecretList, SecretView, SessionStatus, SessionView, SetNetworkRequest, SetPoolRequest,
    SetSecretRequest, SnapshotList, SnapshotView, StatsView, ToolReplyView, UpdateSessionRequest, UploadedView,
    WorkspaceList,
};
use shared_protocol::id::ID_PATTERN;
use shared_protocol::runner::{
    FileView, InputRequest, ListView, MAX_PAGE_EXECS, OpenShellRequest, PortList, ResizeRequest, ShellView,
    SignalRequest, StdinView, WatchFrame, WroteView,
};

use super::commands::{exec, execs, input, run, shells, stdin, terminal};
use super::files::{archive, documents, raw, upload, watch};
use super::{daemon, images, keys, mcp, network, ports, secrets, sessions, snapshots, tools, workspaces};
#[cfg(test)]
pub use route::Place;
pub use route::Route;
use route::{any_method, delete, flag_schema, get, patch, path_schema, post, put, size_schema, whole_schema};

pub fn all() -> Vec<Route> {
    [
        about_the_daemon(),
        keys(),
        secrets(),
        sessions(),
        snapshots(),
        networks(),
        commands(),
        tools(),
        shells(),
        ports(),
        files(),
        workspaces(),
        mcp(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The paths that answer without a key. None of them has a parameter.
pub fn paths_without_key() -> Vec<&'static str> {
    all().iter().filter(|route| !route.needs_key).map(|route| route.path).collect()
}

/// The paths whose `get` changes something. A `get` of any other path only reads.
pub fn gets_that_change() -> Vec<&'static str> {
    all().iter().filter(|route| route.changes).map(|route| route.path).collect()
}

fn about_the_daemon() -> Vec<Route> {
    vec![
        get("/healthz", daemon::healthz, "Check that the daemon answers requests")
            .needs_no_key()
            .replies::<daemon::DaemonHealth>(200),
        get("/readyz", daemon::readyz, "Check that every runtime answers and that the store can be written")
            .replies::<daemon::DaemonHealth>(200),
        get("/metrics", daemon::metrics, "Read the metrics, in the text format of Prometheus")
            .for_admins()
            .replies_bytes(200, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        get("/openapi.json", openapi::document, "Read this document").replies::<Value>(200),
        get("/v1/images", daemon::images, "List the images that a session can be created from")
            .replies::<Vec<ImageView>>(200),
        get("/v1/images/{image}", images::describe, "Describe an image that was pulled or imported")
            .replies::<ImageDetailsView>(200),
        delete("/v1/images/{image}", images::remove, "Remove an image").for_admins().replies::<RemovedImagesView>(200),
        post("/v1/images/pull", images::pull, "Pull an image from a registry and stream how far it is")
            .takes::<PullImageRequest>()
            .replies_bytes(200, "text/event-stream")
            .replies_as::<PullFrame>(200, "application/x-ndjson"),
        post("/v1/images/commit", images::commit, "Make an image from a session's root and stream how far it is")
            .for_admins()
            .takes::<CommitImageRequest>()
            .replies_bytes(200, "text/event-stream")
            .replies_as::<PullFrame>(200, "application/x-ndjson"),
        post("/v1/images/prune", images::prune, "Remove layers of images that nothing uses")
            .for_admins()
            .replies::<RemovedImagesView>(200),
        get("/v1/pools", daemon::pools, "List the pools, with how often a create found a sandbox in them")
            .for_admins()
            .replies::<Vec<PoolView>>(200),
        put("/v1/pools/{image}", daemon::set_pool, "Set how many sandboxes of an image wait in its pool")
            .for_admins()
            .takes::<SetPoolRequest>()
            .replies::<PoolView>(200),
    ]
}

fn keys() -> Vec<Route> {
    vec![
        get("/v1/keys", keys::list, "List the API keys, without their secrets").for_admins().replies::<KeyList>(200),
        post("/v1/keys", keys::create, "Create an API key; only this answer contains its secret")
            .for_admins()
            .takes::<CreateKeyRequest>()
            .replies::<NewKeyView>(201),
        delete("/v1/keys/{key_name}", keys::remove, "Remove an API key; what it owns stays")
            .for_admins()
            .replies::<OkView>(200),
    ]
}

fn secrets() -> Vec<Route> {
    vec![
        get("/v1/secrets", secrets::list, "List secrets, without their values").replies::<SecretList>(200),
        put("/v1/secrets/{secret_name}", secrets::set, "Store a secret, or replace it")
            .takes::<SetSecretRequest>()
            .replies::<SecretView>(200),
        delete("/v1/secrets/{secret_name}", secrets::remove, "Remove a secret").replies::<OkView>(200),
    ]
}

fn sessions() -> Vec<Route> {
    let statuses = SessionStatus::ALL.map(SessionStatus::as_str);
    vec![
        post("/v1/sessions", sessions::create, "Create a session")
            .header(
                "Idempotency-Key",
                json!({ "type": "string", "pattern": "^[!-~]{1,255}$" }),
                "If a request with the same key and body is sent again, the daemon answers with the same session",
            )
            .may_take::<CreateSessionRequest>()
            .replies::<SessionView>(201)
            .replies_bytes(200, "text/event-stream")
            .replies_as::<CreateFrame>(200, "application/x-ndjson"),
        get("/v1/sessions", sessions::list, "List sessions: by default, all except destroyed and expired ones")
            .query(
                "status",
                json!({ "type": "string", "enum": statuses }),
                "List only sessions with this status; may be given more than once",
            )
            .query(
                "label",
                json!({ "type": "string", "pattern": "^[^=]+=.*$" }),
                "List only sessions with this label, KEY=VALUE; may be given more than once",
            )
            .query("name", json!({ "type": "string", "pattern": ID_PATTERN }), "List only the session with this name")
            .replies::<Vec<SessionView>>(200),
        get("/v1/sessions/{session_id}", sessions::get, "Describe a session").replies::<SessionView>(200),
        patch("/v1/sessions/{session_id}", sessions::update, "Change the lifetime or the labels of a session")
            .takes::<UpdateSessionRequest>()
            .replies::<SessionView>(200),
        delete("/v1/sessions/{session_id}", sessions::destroy, "Destroy a session").replies::<OkView>(200),
        post("/v1/sessions/{session_id}/pause", sessions::pause, "Pause a session until the next request that uses it")
            .replies::<SessionView>(200),
        post("/v1/sessions/{session_id}/resume", sessions::resume, "Resume a paused session")
            .replies::<SessionView>(200),
        get("/v1/sessions/{session_id}/stats", sessions::stats, "Read what a session uses now")
            .replies::<StatsView>(200),
    ]
}

fn snapshots() -> Vec<Route> {
    vec![
        post("/v1/sessions/{session_id}/stop", snapshots::stop, "Stop a session: end its processes, and keep its disk")
            .replies::<SessionView>(200),
        post("/v1/sessions/{session_id}/start", snapshots::start, "Start a stopped session again")
            .replies::<SessionView>(200),
        post("/v1/sessions/{session_id}/snapshots", snapshots::create, "Make a snapshot of a session")
            .may_take::<CreateSnapshotRequest>()
            .replies::<SnapshotView>(201),
        post("/v1/sessions/{session_id}/fork", snapshots::fork, "Make copies of a session")
            .may_take::<ForkRequest>()
            .replies::<ForkView>(201),
        get("/v1/snapshots", snapshots::list, "List snapshots").replies::<SnapshotList>(200),
        get("/v1/snapshots/{snapshot_id}", snapshots::get, "Describe a snapshot").replies::<SnapshotView>(200),
        delete("/v1/snapshots/{snapshot_id}", snapshots::remove, "Remove a snapshot").replies::<OkView>(200),
    ]
}

fn networks() -> Vec<Route> {
    vec![
        get("/v1/sessions/{session_id}/network", network::get, "Describe what a session may reach over the network")
            .replies::<NetworkView>(200),
        put("/v1/sessions/{session_id}/network", network::set, "Change what a session may reach over the network")
            .takes::<SetNetworkRequest>()
            .replies::<NetworkView>(200),
        get(
            "/v1/sessions/{session_id}/network/log",
            network::log,
            "Read the last decisions about a session's network, or follow them",
        )
        .query("follow", flag_schema(), "Stream decisions as they are made, until the session ends")
        .query("after", whole_schema(), "Only decisions with a higher sequence number")
        .replies::<NetworkLogView>(200)
        .replies_bytes(200, "text/event-stream")
        .replies_as::<NetworkDecision>(200, "application/x-ndjson"),
        get("/v1/network/packages", network::packages, "List the registries that the network `packages` allows")
            .for_admins()
            .replies::<PackagesView>(200),
        post("/v1/network/packages", network::detect, "Ask the host's package managers for their registries again")
            .for_admins()
            .replies::<PackagesView>(200),
    ]
}

fn commands() -> Vec<Route> {
    vec![
        post("/v1/sessions/{session_id}/exec", exec::exec, "Run a command in a persistent shell")
            .takes::<ApiExecRequest>()
            .replies::<ExecReply>(200)
            .replies::<DetachedView>(202),
        post(
            "/v1/sessions/{session_id}/exec/stream",
            exec::exec_stream,
            "Run a command in a persistent shell and stream its output",
        )
        .takes::<ApiExecRequest>()
        .replies_events(200),
        get("/v1/sessions/{session_id}/execs", execs::list, "List recent commands and runs, the oldest first")
            .query("after", json!({ "type": "string", "pattern": ID_PATTERN }), "List only those after this one")
            .query(
                "limit",
                json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE_EXECS }),
                "The most entries of the answer; it may have fewer. The header `Link` leads to the rest",
            )
            .replies::<Vec<ApiExecView>>(200),
        get(
            "/v1/sessions/{session_id}/execs/{exec_id}",
            execs::reattach,
            "Stream the output of a command or run from an offset",
        )
        .query("from", whole_schema(), "The offset of the first byte to send")
        .query("follow", flag_schema(), "Stream until the command ends; otherwise send only the output that exists now")
        .header(
            "Last-Event-ID",
            json!({ "type": "string", "pattern": "^[0-9]{1,15}$" }),
            "The same as `from`; `EventSource` sends it when it connects again",
        )
        .replies_events(200),
        post("/v1/sessions/{session_id}/run", run::run, "Run a program outside the shells")
            .takes::<ApiRunRequest>()
            .replies::<RunReply>(200)
            .replies::<DetachedView>(202),
        post(
            "/v1/sessions/{session_id}/run/stream",
            run::run_stream,
            "Run a program outside the shells and stream its output",
        )
        .takes::<ApiRunRequest>()
        .replies_events(200),
        post(
            "/v1/sessions/{session_id}/runs/{exec_id}/stdin",
            stdin::write,
            "Write to the open standard input of a run, as fast as its program reads",
        )
        .query("close", flag_schema(), "Close standard input after these bytes")
        .takes_bytes("application/octet-stream")
        .replies::<StdinView>(200),
        post(
            "/v1/sessions/{session_id}/runs/{exec_id}/stdin/close",
            stdin::close,
            "Close the open standard input of a run",
        )
        .replies::<StdinView>(200),
        post("/v1/sessions/{session_id}/input", input::input, "Send input to a shell's terminal")
            .takes::<InputRequest>()
            .replies::<OkView>(200),
        post(
            "/v1/sessions/{session_id}/signal",
            input::signal,
            "Send a signal to a shell's foreground program, or to one command or run",
        )
        .takes::<SignalRequest>()
        .replies::<OkView>(200),
        post("/v1/sessions/{session_id}/resize", input::resize, "Resize a shell's terminal")
            .takes::<ResizeRequest>()
            .replies::<OkView>(200),
    ]
}

fn tools() -> Vec<Route> {
    vec![
        get("/v1/tools", tools::list, "List the tools of agents, in the form that a model provider takes")
            .query("format", json!({ "type": "string", "enum": tools::FORMATS }), "The form; the default is `mcp`")
            .replies::<Vec<Value>>(200),
        post("/v1/sessions/{session_id}/tools/{tool}", tools::call, "Call a tool in a session, with its arguments")
            .may_take::<Map<String, Value>>()
            .replies::<ToolReplyView>(200),
    ]
}

fn shells() -> Vec<Route> {
    vec![
        get("/v1/sessions/{session_id}/shells", shells::list, "List the shells of a session")
            .replies::<Vec<ShellView>>(200),
        post("/v1/sessions/{session_id}/shells", shells::open, "Open another shell")
            .takes::<OpenShellRequest>()
            .replies::<ShellView>(201),
        delete("/v1/sessions/{session_id}/shells/{shell}", shells::close, "Close a shell").replies::<OkView>(200),
        post("/v1/sessions/{session_id}/shells/{shell}/reset", shells::reset, "Replace a shell by a new one")
            .replies::<ShellView>(200),
        get("/v1/sessions/{session_id}/terminal", terminal::terminal, "Attach to a terminal over WebSocket")
            .changes()
            .query(
                "shell",
                json!({ "type": "string", "pattern": ID_PATTERN }),
                "The shell to attach to, opened if it does not exist; it keeps running when the socket closes",
            )
            .query("cols", size_schema(), "The width of the terminal in characters")
            .query("rows", size_schema(), "The height of the terminal in characters")
            .replies_nothing(101),
    ]
}

fn ports() -> Vec<Route> {
    vec![
        get("/v1/sessions/{session_id}/ports", ports::list, "List the TCP servers in a session's sandbox")
            .replies::<PortList>(200),
        any_method("post", "/v1/sessions/{session_id}/ports/{port}/url", ports::url, "Make a link to a port")
            .may_take::<PortUrlRequest>()
            .replies::<PortUrlView>(200),
        delete("/v1/sessions/{session_id}/ports/{port}/url", ports::take_links_back, "Take back all links to a port")
            .replies::<OkView>(200),
        any_method(
            "get",
            "/v1/sessions/{session_id}/ports/{port}/connect",
            ports::connect,
            "Connect to a port over TCP: with the headers Connection: Upgrade and Upgrade: cove-tcp",
        )
        .changes()
        .replies_nothing(101),
        get("/v1/sessions/{session_id}/ports/{port}", ports::with_slash, "Find the address of a server's root")
            .replies_nothing(308),
        any_method("get", "/v1/sessions/{session_id}/ports/{port}/", ports::proxy, "Send a request to a server's root")
            .replies_bytes(200, "*/*"),
        any_method(
            "get",
            "/v1/sessions/{session_id}/ports/{port}/{*path}",
            ports::proxy,
            "Send a request to a server in the sandbox: HTTP with any method, server-sent events, WebSocket",
        )
        .replies_bytes(200, "*/*"),
    ]
}

fn files() -> Vec<Route> {
    let path = "An absolute path, or a path relative to /workspace";
    vec![
        get("/v1/sessions/{session_id}/files/{*path}", raw::get, "Read a file, or a range of its bytes")
            .header(
                "Range",
                json!({ "type": "string", "pattern": "^bytes=([0-9]{1,15}-[0-9]{0,15}|-[0-9]{1,15})$" }),
                "The range of bytes to read",
            )
            .replies_bytes(200, "application/octet-stream")
            .replies_bytes(206, "application/octet-stream"),
        put("/v1/sessions/{session_id}/files/{*path}", raw::put, "Write a file; a write that fails changes nothing")
            .query(
                "mode",
                json!({ "type": "string", "pattern": "^[0-7]{1,4}$" }),
                "The permission bits of the file, in octal",
            )
            .takes_bytes("application/octet-stream")
            .replies::<WroteView>(201),
        delete("/v1/sessions/{session_id}/fs", documents::delete, "Delete a file or directory")
            .needs_query("path", path_schema(), path)
            .query("recursive", flag_schema(), "Delete a directory with everything in it")
            .replies::<OkView>(200),
        get("/v1/sessions/{session_id}/fs/read", documents::read, "Read a small file as JSON")
            .needs_query("path", path_schema(), path)
            .query("max_bytes", whole_schema(), "The most bytes of content to read")
            .replies::<FsReadView>(200),
        post("/v1/sessions/{session_id}/fs/write", documents::write, "Write a small file from JSON")
            .takes::<FsWriteRequest>()
            .replies::<OkView>(200),
        post("/v1/sessions/{session_id}/fs/upload", upload::upload, "Upload the files of a form")
            .takes_bytes("multipart/form-data")
            .replies::<UploadedView>(200),
        get("/v1/sessions/{session_id}/fs/list", documents::list, "List a directory: by default, /workspace")
            .query("path", path_schema(), path)
            .query("recursive", flag_schema(), "List everything below the directory too")
            .replies::<ListView>(200),
        get("/v1/sessions/{session_id}/fs/stat", documents::stat, "Describe a file or directory")
            .needs_query("path", path_schema(), path)
            .query("follow", flag_schema(), "If 0, describe a symbolic link itself and not its target")
            .replies::<FileView>(200),
        get(
            "/v1/sessions/{session_id}/fs/watch",
            watch::watch,
            "Stream what changes in a directory: by default, /workspace",
        )
        .query("path", path_schema(), path)
        .query("recursive", flag_schema(), "Watch everything below the directory too")
        .replies_bytes(200, "text/event-stream")
        .replies_as::<WatchFrame>(200, "application/x-ndjson"),
        post("/v1/sessions/{session_id}/fs/mkdir", documents::mkdir, "Create a directory")
            .takes::<MkdirRequest>()
            .replies::<FileView>(201),
        post("/v1/sessions/{session_id}/fs/move", documents::rename, "Move a file or directory")
            .takes::<MoveRequest>()
            .replies::<FileView>(200),
        get("/v1/sessions/{session_id}/archive", archive::get, "Read a directory as a tar archive")
            .needs_query("path", path_schema(), path)
            .replies_bytes(200, "application/x-tar"),
        put("/v1/sessions/{session_id}/archive", archive::put, "Unpack a tar archive into a directory")
            .needs_query("path", path_schema(), path)
            .takes_bytes("application/x-tar")
            .replies::<WroteView>(201),
    ]
}

fn workspaces() -> Vec<Route> {
    let path = "A path relative to the workspace, or an absolute path in a sandbox that has the workspace mounted";
    vec![
        get("/v1/workspaces", workspaces::list, "List workspaces").replies::<WorkspaceList>(200),
        put("/v1/workspaces/{workspace_id}", workspaces::create, "Make a workspace").replies::<OkView>(200),
        delete("/v1/workspaces/{workspace_id}", workspaces::delete, "Delete a workspace with everything in it")
            .query("force", flag_schema(), "Destroy the sessions that use the workspace")
            .replies::<OkView>(200),
        get("/v1/workspaces/{workspace_id}/fs", documents::list, "List a directory of a workspace")
            .query("path", path_schema(), path)
            .query("recursive", flag_schema(), "List everything below the directory too")
            .replies::<ListView>(200),
        get("/v1/workspaces/{workspace_id}/fs/read", documents::read, "Read a small file of a workspace")
            .needs_query("path", path_schema(), path)
            .query("max_bytes", whole_schema(), "The most bytes of content to read")
            .replies::<FsReadView>(200),
        post("/v1/workspaces/{workspace_id}/fs/write", documents::write, "Write a small file of a workspace")
            .takes::<FsWriteRequest>()
            .replies::<OkView>(200),
        post("/v1/workspaces/{workspace_id}/fs/upload", upload::upload, "Upload files into a workspace")
            .takes_bytes("multipart/form-data")
            .replies::<UploadedView>(200),
    ]
}

fn mcp() -> Vec<Route> {
    let sandbox = |route: Route| {
        let id = || json!({ "type": "string", "pattern": ID_PATTERN });
        let text = || json!({ "type": "string", "minLength": 1 });
        route
            .header("Mcp-Session-Id", json!({ "type": "string" }), "The MCP session, from the answer to `initialize`")
            .query("session", id(), "A session that exists, by id or name; it stays when the MCP session ends")
            .query(
                "name",
                id(),
                "The name of the session that is made; one that an MCP client made before is used again",
            )
            .query("image", text(), "The image of the session that is made")
            .query("network", text(), "The network of the session that is made: a preset, or rules as JSON")
            .query("workspace", id(), "The workspace of the session that is made")
    };
    let last = "The last event that the client got; the answer has those after it";
    vec![
        sandbox(post(
            "/mcp",
            mcp::serve,
            "Send a message of the Model Context Protocol; `initialize` opens an MCP session",
        ))
        .takes::<Value>()
        .replies_bytes(200, "text/event-stream")
        .replies_nothing(202),
        sandbox(get("/mcp", mcp::serve, "Read events of an MCP session, from the last one that the client got"))
            .header("Last-Event-ID", json!({ "type": "string" }), last)
            .replies_bytes(200, "text/event-stream"),
        sandbox(delete("/mcp", mcp::serve, "End an MCP session, and the session that was made for it"))
            .replies_nothing(204),
    ]
}

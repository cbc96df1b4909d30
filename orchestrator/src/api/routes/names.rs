//! The names of the operations in `/openapi.json`: the group and the id by which generated clients call an operation, and what a
//! person should know about it beyond its summary. An id that was released does not change.

use super::route::Route;

/// A group of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    pub name: &'static str,
    pub about: &'static str,
}

pub const DAEMON: Tag = Tag { name: "daemon", about: "The daemon itself: health, metrics, images and pools" };
pub const KEYS: Tag = Tag { name: "keys", about: "API keys: who may call the daemon, and how much of it" };
pub const SECRETS: Tag = Tag { name: "secrets", about: "Values that the daemon adds to requests of sandboxes" };
pub const SESSIONS: Tag = Tag { name: "sessions", about: "Sessions: one sandbox each, with its shells" };
pub const SNAPSHOTS: Tag =
    Tag { name: "snapshots", about: "What sessions have on their disks and in their shells, kept for other sessions" };
pub const NETWORK: Tag = Tag { name: "network", about: "What sessions may reach over the network" };
pub const COMMANDS: Tag = Tag { name: "commands", about: "Commands in shells, and programs beside them" };
pub const TOOLS: Tag = Tag { name: "tools", about: "What language models call in a sandbox" };
pub const SHELLS: Tag = Tag { name: "shells", about: "Persistent shells and terminals" };
pub const FILES: Tag = Tag { name: "files", about: "Files in a session's sandbox" };
pub const PORTS: Tag = Tag { name: "ports", about: "Servers in a session's sandbox" };
pub const WORKSPACES: Tag = Tag { name: "workspaces", about: "Directories that outlive sessions" };
pub const MCP: Tag = Tag { name: "mcp", about: "The Model Context Protocol, over streamable HTTP" };

pub const TAGS: [Tag; 13] =
    [DAEMON, KEYS, SECRETS, SESSIONS, SNAPSHOTS, NETWORK, COMMANDS, TOOLS, SHELLS, PORTS, FILES, WORKSPACES, MCP];

#[derive(Debug, Clone, Copy)]
pub struct Name {
    pub tag: Tag,
    pub id: &'static str,
    pub about: &'static str,
}

/// The name of a route's operation. A test fails if a route has none.
pub fn name(route: &Route) -> Option<Name> {
    let tables: [(Tag, &[Entry]); 13] = [
        (DAEMON, OF_DAEMON),
        (KEYS, OF_KEYS),
        (SECRETS, OF_SECRETS),
        (SESSIONS, OF_SESSIONS),
        (SNAPSHOTS, OF_SNAPSHOTS),
        (NETWORK, OF_NETWORK),
        (COMMANDS, OF_COMMANDS),
        (TOOLS, OF_TOOLS),
        (SHELLS, OF_SHELLS),
        (PORTS, OF_PORTS),
        (FILES, OF_FILES),
        (WORKSPACES, OF_WORKSPACES),
        (MCP, OF_MCP),
    ];
    tables.into_iter().find_map(|(tag, entries)| {
        let of_route = |entry: &&Entry| (entry.0, entry.1) == (route.method, route.path);
        entries.iter().find(of_route).map(|(_, _, id, about)| Name { tag, id, about })
    })
}

/// Method, path, id, and what to know.
type Entry = (&'static str, &'static str, &'static str, &'static str);

const OF_MCP: &[Entry] = &[
    (
        "post",
        "/mcp",
        "sendMcpMessage",
        "A request is answered by events: progress, and then its result. Other messages are answered with 202. The first tool call makes a session, unless the query names one.",
    ),
    (
        "get",
        "/mcp",
        "readMcpEvents",
        "With Last-Event-ID, the rest of a stream that was cut off. An MCP session of another key does not exist.",
    ),
    (
        "delete",
        "/mcp",
        "endMcpSession",
        "A session that was made for the MCP session is destroyed. One that was named by the query stays.",
    ),
];

const OF_KEYS: &[Entry] = &[
    ("get", "/v1/keys", "listKeys", "Names, roles and limits. Secrets are not stored and cannot be shown."),
    ("post", "/v1/keys", "createKey", "The secret is in this answer only. The key works at once."),
    (
        "delete",
        "/v1/keys/{key_name}",
        "removeKey",
        "The key is refused at once, and its streams end. Its sessions and workspaces stay.",
    ),
];

const OF_SECRETS: &[Entry] = &[
    (
        "get",
        "/v1/secrets",
        "listSecrets",
        "Names, owners and hosts. An admin sees those of everybody. No answer contains a value.",
    ),
    (
        "put",
        "/v1/secrets/{secret_name}",
        "setSecret",
        "The secret belongs to the caller, whose sessions can use it in `inject`. The next request of a sandbox has the new value.",
    ),
    (
        "delete",
        "/v1/secrets/{secret_name}",
        "removeSecret",
        "One of the caller's own. Requests of sandboxes that need it are answered with 502 from now on.",
    ),
];

const OF_PORTS: &[Entry] = &[
    (
        "get",
        "/v1/sessions/{session_id}/ports",
        "listPorts",
        "Every TCP socket that listens, with its process where the kernel tells. Counts as activity.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/ports/{port}/url",
        "createPortUrl",
        "Whoever has the link can use this port of this session, and nothing else, until it expires. The port need not be open yet.",
    ),
    (
        "delete",
        "/v1/sessions/{session_id}/ports/{port}/url",
        "deletePortUrls",
        "The links to this port are refused at once, also after a restart of the daemon, and connections that came by them end. Links that are made later work.",
    ),
    (
        "get",
        "/v1/sessions/{session_id}/ports/{port}/connect",
        "connectPort",
        "After the answer 101 the connection carries the bytes of one TCP connection. Either side may end first. Without the upgrade, the request is for the server's own path /connect.",
    ),
    (
        "get",
        "/v1/sessions/{session_id}/ports/{port}",
        "findPort",
        "Redirects to the same address with a slash at its end, so that relative addresses in a page work.",
    ),
    ("get", "/v1/sessions/{session_id}/ports/{port}/", "proxyPortRoot", "As the route with a path."),
    (
        "get",
        "/v1/sessions/{session_id}/ports/{port}/{*path}",
        "proxyPort",
        "Any method and body. The API key is removed, redirects and cookie paths are rewritten, and X-Forwarded-For, -Host, -Proto and -Prefix are set. The status is the server's own.",
    ),
];

const OF_DAEMON: &[Entry] = &[
    ("get", "/healthz", "getHealth", "Answers as long as the daemon runs. It needs no key."),
    ("get", "/readyz", "getReadiness", "Answers 503 with the name of what failed if the daemon cannot work."),
    ("get", "/metrics", "getMetrics", "What the operator of the daemon watches. Counts begin with the daemon."),
    (
        "get",
        "/openapi.json",
        "getOpenApi",
        "The description of every route, made from the daemon's own table of routes.",
    ),
    ("get", "/v1/images", "listImages", "The images of all runtimes. One of them is the default."),
    (
        "get",
        "/v1/images/{image}",
        "getImage",
        "Size, layers, variables and directory. A slash in the name is written %2F.",
    ),
    (
        "delete",
        "/v1/images/{image}",
        "removeImage",
        "Layers that another image or a sandbox uses stay. A slash in the name is written %2F.",
    ),
    (
        "post",
        "/v1/images/pull",
        "pullImage",
        "Events: progress, then done or error. Pulls of one image share the work, and a pull goes on if the client disconnects. A key without the role admin may pull from the registries of the setting images.registries.",
    ),
    (
        "post",
        "/v1/images/commit",
        "commitImage",
        "Events: progress, then done or error. The session needs a writable root; it is frozen for a moment if it runs. The new image has its image's layers, what the session has changed of its root, and its image's variables, directory and user. /tmp, /workspace and /home/sandbox are no part of it.",
    ),
    (
        "post",
        "/v1/images/prune",
        "pruneImages",
        "Also removes what interrupted pulls have left. Refused while an image is pulled.",
    ),
    ("get", "/v1/pools", "listPools", "A pool keeps sandboxes of an image running before anybody asks for them."),
    (
        "put",
        "/v1/pools/{image}",
        "setPool",
        "Makes, resizes or, with size 0, removes the pool of an image. It fills in the background.",
    ),
];

const OF_NETWORK: &[Entry] = &[
    (
        "get",
        "/v1/sessions/{session_id}/network",
        "getNetwork",
        "The policy as rules, what was used so far, and how much. Does not count as activity.",
    ),
    (
        "put",
        "/v1/sessions/{session_id}/network",
        "setNetwork",
        "Takes effect at once: connections that the new policy forbids are cut. It outlives a restart of the daemon.",
    ),
    (
        "get",
        "/v1/sessions/{session_id}/network/log",
        "getNetworkLog",
        "The last 1,000 decisions. With `follow`, each decision is an event `decision` (or a line of JSON) as it is made.",
    ),
    (
        "get",
        "/v1/network/packages",
        "listPackageRegistries",
        "The package managers are asked the first time, which takes seconds. Then the answer is kept.",
    ),
    ("post", "/v1/network/packages", "detectPackageRegistries", "Takes seconds. Sessions that exist keep their rules."),
];

const OF_SESSIONS: &[Entry] = &[
    (
        "post",
        "/v1/sessions",
        "createSession",
        "Answers when the sandbox runs. Without a body, everything is the daemon's default. If the client disconnects before the answer and sent no Idempotency-Key, the session is destroyed.",
    ),
    (
        "get",
        "/v1/sessions",
        "listSessions",
        "The oldest session comes first. A list does not count as activity of the sessions in it.",
    ),
    (
        "get",
        "/v1/sessions/{session_id}",
        "getSession",
        "Does not count as activity, and does not wake a paused session. Ended sessions are remembered for a while.",
    ),
    (
        "patch",
        "/v1/sessions/{session_id}",
        "updateSession",
        "Fields that are absent stay as they are. The change takes effect at once, is checked as at a create, and outlives a restart of the daemon. It counts as activity and does not wake a paused session.",
    ),
    (
        "delete",
        "/v1/sessions/{session_id}",
        "destroySession",
        "Ends every process of the session and deletes its files, except its workspace. Answers when nothing is left.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/pause",
        "pauseSession",
        "Freezes every process of the session. The next request that needs the sandbox wakes it. Refused while requests are in flight.",
    ),
    ("post", "/v1/sessions/{session_id}/resume", "resumeSession", "Wakes a paused session, and counts as activity."),
    (
        "get",
        "/v1/sessions/{session_id}/stats",
        "getSessionStats",
        "Does not count as activity, so that monitoring keeps no session alive.",
    ),
];

const OF_TOOLS: &[Entry] = &[
    (
        "get",
        "/v1/tools",
        "listTools",
        "Each entry has a name, a description and a JSON schema of its arguments. The list can be given to the API of a model as it is.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/tools/{tool}",
        "callTool",
        "The body is what the model gave as arguments. A failure that the model can do something about is an answer with `is_error`; arguments that the tool does not have are INVALID_REQUEST, with a message for the model.",
    ),
];

const OF_SNAPSHOTS: &[Entry] = &[
    (
        "post",
        "/v1/sessions/{session_id}/stop",
        "stopSession",
        "Keeps the disk and the state of the shells until the session is started or destroyed, also over a restart of the host. Requests under way end with CONFLICT. A stopped session does not expire.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/start",
        "startSession",
        "The session has its id, files, labels, network and limits of before, and its shells the state of before. Processes do not come back. Answers when the sandbox runs; a start that fails leaves the session stopped.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/snapshots",
        "createSnapshot",
        "The session is frozen for some milliseconds meanwhile, and a paused one is woken. Files are as of one moment; shells are as after their last command. Processes and workspaces are no part of it. Survives a power cut once it is answered.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/fork",
        "forkSession",
        "The copies have the files and shells of the session, and share what is on the disk until one of them writes. All copies are made, or none. They belong to the caller.",
    ),
    ("get", "/v1/snapshots", "listSnapshots", "The oldest comes first."),
    ("get", "/v1/snapshots/{snapshot_id}", "getSnapshot", "What it was made of, and how much it holds."),
    (
        "delete",
        "/v1/snapshots/{snapshot_id}",
        "deleteSnapshot",
        "Sessions that were created from it keep what they have. Refused while one is being created.",
    ),
];

const OF_COMMANDS: &[Entry] = &[
    (
        "post",
        "/v1/sessions/{session_id}/runs/{exec_id}/stdin",
        "writeStdin",
        "The run was started with `stdin_open`. The body may have any size; it is written as fast as the program reads.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/runs/{exec_id}/stdin/close",
        "closeStdin",
        "The program reads what was written before, and then the end of its input.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/exec",
        "exec",
        "Waits for the end of the command, and answers 200 however it ended, also after a timeout. With `detach`, answers 202 at once. If the client disconnects, the command keeps running.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/exec/stream",
        "execStream",
        "Server-sent events, or lines of JSON with `Accept: application/x-ndjson`. If the client disconnects, the command keeps running; follow it again by its id and the offset.",
    ),
    (
        "get",
        "/v1/sessions/{session_id}/execs",
        "listExecs",
        "The last 1,000 that have ended, and all that wait or run. A page has a bounded size; the header `Link` with `rel=\"next\"` leads to the next one.",
    ),
    (
        "get",
        "/v1/sessions/{session_id}/execs/{exec_id}",
        "followExec",
        "The output is kept after the command has ended, within bounds. An event `gap` tells how much of it is no longer kept.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/run",
        "run",
        "A run has no shell state, and any number of them run at once. Standard output and standard error are separate.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/run/stream",
        "runStream",
        "The same events as of a command in a shell. If the client disconnects, the program keeps running.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/input",
        "sendInput",
        "Types at the terminal of the command that runs. Only a command with `streams: tty` reads it.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/signal",
        "sendSignal",
        "A signal that ends programs takes a command that waits out of the queue of its shell.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/resize",
        "resizeTerminal",
        "Programs at the terminal get WINCH, as after a change of a window.",
    ),
];

const OF_SHELLS: &[Entry] = &[
    ("get", "/v1/sessions/{session_id}/shells", "listShells", "The shell `main` always exists."),
    (
        "post",
        "/v1/sessions/{session_id}/shells",
        "openShell",
        "A shell runs one command at a time. A new one can begin as a copy of another.",
    ),
    (
        "delete",
        "/v1/sessions/{session_id}/shells/{shell}",
        "closeShell",
        "Ends the shell with its command. The shell `main` cannot be closed.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/shells/{shell}/reset",
        "resetShell",
        "Nothing of the old shell's state is kept. Its command ends as `lost`, and those that wait as `never_ran`.",
    ),
    (
        "get",
        "/v1/sessions/{session_id}/terminal",
        "attachTerminal",
        "Binary messages are the terminal's bytes in both directions. Text messages are JSON: `resize` from the client, `ready` and `exit` from the daemon. Earlier output comes first, without the questions in it that a terminal would answer.",
    ),
];

const OF_FILES: &[Entry] = &[
    (
        "get",
        "/v1/sessions/{session_id}/files/{*path}",
        "readFile",
        "The raw bytes of a file of any size. A file operation runs in the sandbox as its user.",
    ),
    (
        "put",
        "/v1/sessions/{session_id}/files/{*path}",
        "writeFile",
        "The old content stays until the last byte has arrived. Missing directories are created.",
    ),
    (
        "delete",
        "/v1/sessions/{session_id}/fs",
        "deleteFile",
        "A directory that is not empty is refused unless `recursive` is set. A link is deleted, not its target.",
    ),
    ("get", "/v1/sessions/{session_id}/fs/read", "readFileAsJson", "The content comes in base64, up to `max_bytes`."),
    (
        "post",
        "/v1/sessions/{session_id}/fs/write",
        "writeFileFromJson",
        "The content is text or base64. Missing directories are created.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/fs/upload",
        "uploadFiles",
        "A form with the field `path`, a directory, and up to 1,000 fields `file`.",
    ),
    (
        "get",
        "/v1/sessions/{session_id}/fs/list",
        "listFiles",
        "At most 10,000 entries, sorted by the bytes of their paths. `truncated` tells whether some are missing.",
    ),
    ("get", "/v1/sessions/{session_id}/fs/stat", "statFile", "Links are followed unless `follow` is 0."),
    (
        "get",
        "/v1/sessions/{session_id}/fs/watch",
        "watchFiles",
        "Events: ready when everything is watched, then change, and overflow if changes were lost and the directory has to be listed again; ended or error is the last one. Paths begin with the path that was asked for. An open watch does not count as activity.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/fs/mkdir",
        "makeDirectory",
        "With `parents`, missing directories above it are created, and one that exists is no error.",
    ),
    (
        "post",
        "/v1/sessions/{session_id}/fs/move",
        "moveFile",
        "A file that exists is replaced only with `overwrite`. Both paths must be on the same file system.",
    ),
    ("get", "/v1/sessions/{session_id}/archive", "readArchive", "The content of the directory, without compression."),
    (
        "put",
        "/v1/sessions/{session_id}/archive",
        "unpackArchive",
        "A tar without compression. An archive that breaks off leaves what was unpacked before.",
    ),
];

const OF_WORKSPACES: &[Entry] = &[
    ("get", "/v1/workspaces", "listWorkspaces", "A workspace is also made by the first session that names it."),
    (
        "put",
        "/v1/workspaces/{workspace_id}",
        "createWorkspace",
        "One that exists stays as it is. A session that names a missing workspace makes it, too.",
    ),
    (
        "delete",
        "/v1/workspaces/{workspace_id}",
        "deleteWorkspace",
        "Refused while sessions use it, unless `force` is set.",
    ),
    (
        "get",
        "/v1/workspaces/{workspace_id}/fs",
        "listWorkspaceFiles",
        "Works without a session: the daemon starts a sandbox for it if none runs.",
    ),
    (
        "get",
        "/v1/workspaces/{workspace_id}/fs/read",
        "readWorkspaceFile",
        "The content comes in base64, up to `max_bytes`.",
    ),
    (
        "post",
        "/v1/workspaces/{workspace_id}/fs/write",
        "writeWorkspaceFile",
        "The content is text or base64. Missing directories are created.",
    ),
    (
        "post",
        "/v1/workspaces/{workspace_id}/fs/upload",
        "uploadWorkspaceFiles",
        "A form with the field `path`, a directory, and up to 1,000 fields `file`.",
    ),
];

// The TypeScript reference client, as one story: initialize, list, call, progress, cancel. What it sees goes to standard output as JSON.
//
//   node client.mjs http URL KEY
//   node client.mjs stdio COMMAND…
//
// COVE_MCP_PACKAGES is the directory with node_modules.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.COVE_MCP_PACKAGES}/`);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

const [kind, first, ...rest] = process.argv.slice(2);
const transport =
  kind === "http"
    ? new StreamableHTTPClientTransport(new URL(first), { requestInit: { headers: { Authorization: `Bearer ${rest[0]}` } } })
    : new StdioClientTransport({ command: first, args: rest, env: process.env });

const client = new Client({ name: "test", version: "1" });
await client.connect(transport);
const seen = { server: client.getServerVersion(), instructions: client.getInstructions() };

// The client checks structured results by the schemas that it has listed.
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
seen.prompts = (await client.listPrompts()).prompts.map((prompt) => prompt.name);

const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
const text = (result) => result.content.map((block) => block.text ?? "").join("");

seen.call = text(await call("bash", { command: "cd /tmp; echo $((6 * 7))" }));
seen.failure = await call("read", { path: "missing" });

/** Calls bash, and resolves `begun` when its progress has this word. */
function follow(command, word, signal) {
  const notes = [];
  let heard;
  const begun = new Promise((resolve) => (heard = resolve));
  const onprogress = (note) => {
    notes.push(note);
    if (note.message?.includes(word)) heard();
  };
  return { notes, begun, result: call("bash", { command }, { onprogress, signal }) };
}

await call("bash", { command: "cd /workspace; mkfifo gate" });
const progress = follow("echo begun; cat gate; echo over", "begun");
await progress.begun;
await call("run_background", { command: "echo opened > gate" });
seen.after_progress = text(await progress.result);
seen.progress = progress.notes.map((note) => note.progress);

const stop = new AbortController();
const cancelled = follow("sh -c 'echo $$ > pid; echo started; exec sleep 300' && touch survived", "started", stop.signal);
const ended = cancelled.result.then(
  () => "answered",
  (error) => error.message,
);
await cancelled.begun;
stop.abort("enough");
seen.cancelled = await ended;
seen.after_cancel = text(await call("bash", { command: "kill -0 $(cat pid) 2>&- && echo alive || echo gone; ls", timeout_seconds: 20 }));

if (kind === "http") await transport.terminateSession();
await client.close();
console.log(JSON.stringify(seen));

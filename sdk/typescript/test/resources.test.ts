// Images, pools, keys, secrets, workspaces and the daemon itself; and what a client does when a daemon refuses or is not there.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test, type TestContext } from "node:test";
import { ConnectionFailed, ConnectionLost, Cove, Forbidden, InternalError, LimitReached, NotFound, ProtocolError, RequestTimeout, SessionNotFound, Unauthorized, WorkspaceNotFound, type PullProgress } from "@cove/sdk";
import { runtime, TestDaemon, until } from "./harness.js";

let daemon: TestDaemon;
let cove: Cove;
before(async () => {
  daemon = await TestDaemon.start();
  cove = daemon.client();
});
after(async () => {
  await daemon.stop();
});

test("the daemon tells of itself", async () => {
  assert.equal((await cove.health()).status, "ok");
  assert.equal((await cove.ready()).status, "ok");
  assert.match(await cove.metrics(), /^# (HELP|TYPE|UNIT) /m);
  assert.equal(await cove.url(), daemon.url);
  assert.ok(Array.isArray((await cove.packages()).found));
});

test("a daemon on this machine is found by its data directory", async () => {
  const found = new Cove({ dataDir: daemon.dataDir });
  assert.equal(await found.url(), daemon.url);
  assert.ok(Array.isArray(await found.list()));
});

test("images are listed, and one that cannot be had is an error with the reason", async () => {
  assert.ok((await cove.images.list()).some(({ name }) => name === "base"));
  await assert.rejects(cove.images.get("none:1"), NotFound);
  await assert.rejects(cove.images.delete("none:1"), NotFound);
  assert.ok((await cove.images.prune()).bytes >= 0);
  const seen: PullProgress[] = [];
  // Nothing listens on this port.
  await assert.rejects(cove.images.pull("127.0.0.1:9/none:1", { onProgress: (progress) => seen.push(progress) }), Error);
  await assert.rejects(cove.session("127.0.0.1:9/none:1"), Error);
});

test("a pool is filled, used and ended", async () => {
  await cove.pools.set("base", 1);
  await until("a sandbox waits", async () => (await cove.pools.list()).some(({ idle }) => idle === 1));
  await using session = await cove.session("base");
  assert.equal(session.info.acquireSource, "pool");
  assert.equal((await cove.pools.set("base", 0, { runtime: "local" })).size, 0);
});

test("a user key sees its own sessions alone, and a removed key is refused", async () => {
  const { secret, key } = await cove.keys.create({ name: "alice", maxSessions: 1 });
  assert.equal(key.role, "user");
  assert.ok((await cove.keys.list()).some(({ name }) => name === "alice"));
  await using ours = await cove.session();
  const alice = daemon.client({ apiKey: secret });
  assert.deepEqual(await alice.list(), []);
  await assert.rejects(alice.connect(ours.id), SessionNotFound);
  await assert.rejects(alice.keys.list(), Forbidden);
  {
    await using hers = await alice.session();
    assert.equal(hers.info.owner, "alice");
    await assert.rejects(alice.session(), (error: unknown) => error instanceof LimitReached && error.details["of"] === "key");
  }
  await cove.keys.delete("alice");
  await assert.rejects(alice.list(), (error: unknown) => error instanceof Unauthorized && error.status === 401 && /COVE_API_KEY/.test(error.message) && error.requestId !== undefined);
});

test("secrets are stored, injected and removed", async () => {
  assert.deepEqual((await cove.secrets.set("token", "sk-4711", { hosts: ["api.example.com"] })).hosts, ["api.example.com"]);
  assert.deepEqual((await cove.secrets.list()).map(({ name }) => name), ["token"]);
  const inject = [{ host: "api.example.com", header: "Authorization", valueFrom: "secret:token", format: "Bearer {}" }];
  await using session = await cove.session({ network: { allow: ["api.example.com"] }, inject });
  assert.equal((await session.network.get()).inject?.length, 1);
  assert.deepEqual((await session.network.set("none", { inject: [] })).inject ?? [], []);
  await cove.secrets.delete("token");
  await assert.rejects(cove.secrets.delete("token"), NotFound);
});

test("a workspace is made without a session", async () => {
  await cove.workspaces.create("alone");
  await cove.workspaces.create("alone");
  await cove.workspaces.files("alone").write("f", "x");
  const found = (await cove.workspaces.list()).find(({ id }) => id === "alone");
  assert.ok(found && ["disk", "directory"].includes(found.kind));
  await cove.workspaces.delete("alone");
});

test("a session is found by its name, and the name is taken only once", async () => {
  await using session = await cove.session({ name: "by-name" });
  assert.deepEqual((await cove.list({ name: "by-name" })).map(({ id }) => id), [session.id]);
  await assert.rejects(cove.session({ name: "by-name" }), /by-name/);
});

test("a commit of a root that cannot be changed says what to do", { skip: runtime === "docker" && "no image can be made from its sessions" }, async () => {
  await using session = await cove.session();
  await assert.rejects(cove.images.commit(session.id, "from-a-test"), /writable_root/);
});

test("a workspace outlives its session, and its files are there without one", async () => {
  {
    await using session = await cove.session({ workspaceId: "project" });
    await session.files.write("notes.txt", "remember");
  }
  const files = cove.workspaces.files("project");
  assert.equal(await files.readText("notes.txt"), "remember");
  await files.write("text.txt", "text");
  await files.write("bytes.bin", Uint8Array.of(0, 255));
  await files.writeMany(".", { "many.txt": "many" });
  assert.deepEqual(await files.read("bytes.bin"), Uint8Array.of(0, 255));
  assert.deepEqual((await files.list()).entries.map(({ path }) => path).sort(), ["bytes.bin", "many.txt", "notes.txt", "text.txt"]);
  await assert.rejects(files.read("notes.txt", { maxBytes: 3 }), /too large for one answer/);
  assert.ok((await cove.workspaces.list()).some(({ id }) => id === "project"));
  await cove.workspaces.delete("project", { force: true });
  await assert.rejects(files.list(), WorkspaceNotFound);
});

/** A server that answers as told, in the place of a daemon. */
async function pretend(t: TestContext, answer: (request: IncomingMessage, response: ServerResponse, count: number) => void, attempts?: number): Promise<{ client: Cove; count: () => number }> {
  let count = 0;
  const server = createServer((request, response) => {
    request.resume();
    count += 1;
    answer(request, response, count);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { client: new Cove({ url, apiKey: "k", ...(attempts === undefined ? {} : { attempts }) }), count: () => count };
}

const json = (response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) => {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
};
const full = { error_code: "LIMIT_REACHED", message: "no room" };

test("a daemon that is full is asked again when it says so, and not for ever", async (t) => {
  const soon = await pretend(t, (_, response, count) => { json(response, count < 3 ? 429 : 200, count < 3 ? full : [], { "retry-after": "0" }); });
  assert.deepEqual(await soon.client.list(), []);
  assert.equal(soon.count(), 3);
  const never = await pretend(t, (_, response) => { json(response, 429, full, { "retry-after": "0" }); });
  await assert.rejects(never.client.list(), LimitReached);
  assert.equal(never.count(), 4);
  const later = await pretend(t, (_, response) => { json(response, 429, full, { "retry-after": "60" }); });
  await assert.rejects(later.client.list(), (error: unknown) => error instanceof LimitReached && error.retryAfterMs === 60_000);
  assert.equal(later.count(), 1);
});

test("a broken connection is repeated only where that is safe", async (t) => {
  const read = await pretend(t, (request, response, count) => {
    if (count < 3) request.socket.destroy();
    else json(response, 200, []);
  });
  assert.deepEqual(await read.client.list(), []);
  const created = await pretend(t, (request) => { request.socket.destroy(); });
  await assert.rejects(created.client.keys.create({ name: "a" }), ConnectionLost);
  assert.equal(created.count(), 1, "a key may have been made");
  const session = await pretend(t, (request) => { request.socket.destroy(); }, 2);
  await assert.rejects(session.client.session(), ConnectionLost);
  assert.ok(session.count() >= 2, "a create has a key of its own");
});

test("a request has a time limit, and a caller's signal ends it", async (t) => {
  const silent = await pretend(t, () => undefined);
  await assert.rejects(silent.client.list({ requestTimeoutMs: 50 }), (error: unknown) => error instanceof RequestTimeout && /within 50 ms/.test(error.message));
  const reason = new Error("enough");
  const controller = new AbortController();
  setTimeout(() => { controller.abort(reason); }, 20);
  await assert.rejects(silent.client.list({ signal: controller.signal }), reason);
});

test("what is no daemon is told as such", async (t) => {
  const page = await pretend(t, (_, response) => { response.writeHead(404).end("<html>nginx</html>"); });
  await assert.rejects(page.client.list(), (error: unknown) => error instanceof ProtocolError && /no answer of a Cove daemon.*nginx/.test(error.message));
  const text = await pretend(t, (_, response) => { response.end("hello"); });
  await assert.rejects(text.client.list(), /not JSON: hello/);
  const failing = await pretend(t, (_, response) => { json(response, 500, { error_code: "INTERNAL_ERROR", message: "broken" }); });
  await assert.rejects(failing.client.list(), InternalError);
  const free = createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address() as AddressInfo;
  free.close();
  await once(free, "close");
  const nobody = new Cove({ url: `http://127.0.0.1:${port}`, apiKey: "k" });
  await assert.rejects(nobody.list(), (error: unknown) => error instanceof ConnectionFailed && /Start one with `cove serve`/.test(error.message));
});

test("a fetch of one's own is used", async () => {
  const seen: string[] = [];
  const own = daemon.client({ fetch: (input, init) => { seen.push(input as string); return fetch(input, init); } });
  await own.health();
  assert.deepEqual(seen, [`${daemon.url}/healthz`]);
});

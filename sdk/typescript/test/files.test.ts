// Files, directories, ports and the network of a session, against a real daemon.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Conflict, FileNotFound, InvalidRequest, RequestTimeout, type Cove, type NetworkDecision, type Session, type TransferProgress } from "@cove/sdk";
import { CuttingProxy, TestDaemon } from "./harness.js";

let daemon: TestDaemon;
let cove: Cove;
let session: Session;
before(async () => {
  daemon = await TestDaemon.start();
  cove = daemon.client();
  session = await cove.session();
});
after(async () => {
  await daemon.stop();
});

test("files are written, read in parts, moved and deleted", async () => {
  const { files } = session;
  const all = Uint8Array.from({ length: 300_000 }, (_, at) => at % 251);
  assert.equal(await files.write("dir/ä b?.bin", all, { mode: 0o640 }), all.length);
  assert.deepEqual(await files.read("dir/ä b?.bin"), all);
  assert.deepEqual(await files.read("dir/ä b?.bin", { start: 10, end: 20 }), all.slice(10, 20));
  assert.deepEqual(await files.read("/workspace/dir/ä b?.bin", { start: 299_990 }), all.slice(299_990));
  assert.equal((await files.stat("dir/ä b?.bin")).mode, 0o640);
  await files.write("/tmp/text", "grüße\n");
  assert.equal(await files.readText("/tmp/text"), "grüße\n");
  await files.write("streamed", new Blob(["one ", "two"]).stream());
  assert.equal(await new Response(await files.readStream("streamed")).text(), "one two");
  await files.write("blob", new Blob(["blob"]));
  assert.deepEqual((await files.writeMany("many", { a: "1", b: Uint8Array.of(50) })).length, 2);
  assert.equal(await files.readText("many/b"), "2");
  assert.equal((await files.mkdir("deep/er", { parents: true })).kind, "directory");
  await files.move("blob", "deep/er/blob");
  await assert.rejects(files.move("streamed", "deep/er/blob"), Conflict);
  await files.move("streamed", "deep/er/blob", { overwrite: true });
  assert.deepEqual((await files.list("deep", { recursive: true })).entries.map(({ path }) => path), ["er", "er/blob"]);
  assert.equal(await files.exists("deep"), true);
  await assert.rejects(files.delete("deep"), Conflict);
  await files.delete("deep", { recursive: true });
  assert.equal(await files.exists("deep"), false);
  await assert.rejects(files.read("none"), FileNotFound);
  await assert.rejects(files.read("../../etc/passwd"), InvalidRequest);
  await assert.rejects(files.stat("x".repeat(5000)), InvalidRequest);
});

test("a directory goes there and back without what is ignored", async () => {
  const directory = await mkdtemp(join(tmpdir(), "cove-dir-"));
  try {
    const local = join(directory, "project");
    await mkdir(join(local, "node_modules/x"), { recursive: true });
    await mkdir(join(local, "src/empty"), { recursive: true });
    await writeFile(join(local, "node_modules/x/index.js"), "ignored");
    await writeFile(join(local, ".gitignore"), "node_modules/\n");
    await writeFile(join(local, "src/main.py"), "print('hi')\n");
    await writeFile(join(local, "secret.env"), "no");
    await writeFile(join(local, "run.sh"), "#!/bin/sh\necho ran\n", { mode: 0o755 });
    const steps: TransferProgress[] = [];
    const sent = await session.files.uploadDir(local, "project", { ignore: ["*.env"], onProgress: (progress) => steps.push(progress) });
    assert.equal(sent.files, 3);
    assert.ok(steps.length >= 3);
    assert.equal((await session.exec("cd /workspace/project && find . -type f | sort && ./run.sh")).output, "./.gitignore\n./run.sh\n./src/main.py\nran\n");
    const back = await session.files.downloadDir("project", join(directory, "back"), { onProgress: (progress) => steps.push(progress) });
    assert.equal(back.files, 3);
    await rm(join(local, "node_modules"), { recursive: true });
    await rm(join(local, "secret.env"));
    execFileSync("diff", ["-r", local, join(directory, "back")]);
    assert.equal(await readFile(join(directory, "back/src/main.py"), "utf8"), "print('hi')\n");
    await assert.rejects(session.files.downloadDir("none", join(directory, "none")), FileNotFound);
  } finally {
    await rm(directory, { recursive: true });
  }
});

test("a server in the sandbox is waited for, asked, linked to and forwarded", async () => {
  await assert.rejects(session.ports.wait(8123, { timeoutMs: 50 }), RequestTimeout);
  assert.equal((await session.ports.fetch(8123)).status, 502);
  await session.files.write("/tmp/www/index.html", "from the sandbox");
  const server = await session.spawn("cd /tmp/www && exec python3 -m http.server 8123 --bind 127.0.0.1");
  const port = await session.ports.wait(8123);
  assert.equal(port.reachable, true);
  assert.ok((await session.ports.list()).some((one) => one.port === 8123));
  assert.equal(await (await session.ports.fetch(8123, "index.html")).text(), "from the sandbox");
  const link = await session.ports.url(8123, { ttlSeconds: 60 });
  assert.match(link.url, /^http:\/\/8123-.*cove_token=/);
  await session.ports.revoke(8123);
  await using local = await session.ports.forward(8123);
  const text = await new Promise<string>((resolve, reject) => {
    request({ host: local.host, port: local.port, path: "/index.html", agent: false }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (part: string) => (body += part));
      response.on("end", () => { resolve(body); });
    }).on("error", reject).end();
  });
  assert.equal(text, "from the sandbox");
  const tcp = await session.ports.connect(8123);
  tcp.write("GET /index.html HTTP/1.0\r\n\r\n");
  let raw = "";
  for await (const piece of tcp) raw += String(piece);
  assert.match(raw, /from the sandbox$/);
  await assert.rejects(session.ports.connect(8999), /PORT_CLOSED/);
  await server.kill();
});

test("the network is set, denies, and tells what it denied", async (t) => {
  assert.equal((await session.network.get()).network, "none");
  const result = await session.exec("getent hosts example.com");
  assert.deepEqual(result.networkDenied, ["example.com"]);
  const decision = (await session.network.log()).at(-1);
  assert.deepEqual([decision?.host, decision?.verdict, decision?.wanted], ["example.com", "denied", "example.com"]);
  assert.deepEqual(await session.network.log({ after: decision!.sequence }), []);
  const changed = await session.network.set({ allow: ["example.org"], deny: ["bad.example.org"] });
  assert.deepEqual(changed.allow, ["example.org"]);
  await assert.rejects(session.network.set("no-such-preset"), InvalidRequest);
  // The connection to the log is cut once; each decision comes once.
  const proxy = await CuttingProxy.start(daemon.port, () => ({}));
  t.after(() => proxy.stop());
  const far = await daemon.client({ url: proxy.url }).connect(session.id);
  const controller = new AbortController();
  const seen: NetworkDecision[] = [];
  const following = (async () => {
    for await (const one of far.network.follow({ after: 0, signal: controller.signal })) {
      seen.push(one);
      if (seen.length === 1) proxy.drop();
      if (one.host === "second.example") controller.abort(new Error("seen enough"));
    }
  })();
  // It may end before the command does.
  const ended = assert.rejects(following, /seen enough/);
  await session.exec("getent hosts first.example; getent hosts second.example");
  await ended;
  assert.deepEqual(seen.map(({ sequence }) => sequence), seen.map((_, at) => seen[0]!.sequence + at));
  assert.ok(proxy.url);
});

test("the log ends with its session", async () => {
  const other = await cove.session();
  const following = (async () => {
    for await (const one of other.network.follow()) assert.equal(one.host, "example.com");
  })();
  await other.exec("getent hosts example.com");
  await other.destroy();
  await following;
});

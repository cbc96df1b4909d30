// The pure parts: names, events, output, text of terminals, paths, archives, ignore files, errors.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ApiError, CommandFailed, DaemonNotFound, InvalidRequest, LimitReached, ShellBusy, Unsupported, type ExecResult } from "@cove/sdk";
import { fromBase64, toBase64 } from "../dist/bytes.js";
import * as browser from "../dist/browser.js";
import { backoff, Deadline, sleep } from "../dist/deadline.js";
import { apiError } from "../dist/errors.js";
import { filePath } from "../dist/files.js";
import { fromWire, toWire } from "../dist/names.js";
import { findDaemon } from "../dist/node/find.js";
import { IgnoreRules } from "../dist/node/ignore.js";
import { patience } from "../dist/node/patience.js";
import { packDirectory } from "../dist/node/pack.js";
import { BLOCK, header, padding, readHeader } from "../dist/node/tar.js";
import { unpackDirectory } from "../dist/node/unpack.js";
import { Collector } from "../dist/result.js";
import { EventParser } from "../dist/sse.js";
import { clean } from "../dist/terminal-text.js";
import { expand, queryText } from "../dist/transport.js";

const bytes = (text: string) => new TextEncoder().encode(text);
const text = (value: Uint8Array) => new TextDecoder().decode(value);

test("names change their case, and the keys of maps do not", () => {
  const wire = { exec_id: "a", labels: { my_label: "x" }, resources: { memory_mb: 1 }, list: [{ size_bytes: 2 }], nothing: null };
  const ours = { execId: "a", labels: { my_label: "x" }, resources: { memoryMb: 1 }, list: [{ sizeBytes: 2 }], nothing: null };
  assert.deepEqual(fromWire(wire), ours);
  assert.deepEqual(toWire(ours), wire);
});

test("events are read however they are cut, and an unfinished one is dropped", () => {
  const whole = bytes('event: chunk\nid: 3\ndata: {"a":"ü"}\n\n: keep-alive\n\nevent: done\ndata: 1\ndata: 2\n\nevent: half\ndata: x\n');
  for (let at = 0; at <= whole.length; at++) {
    const parser = new EventParser();
    const events = [...parser.push(whole.subarray(0, at)), ...parser.push(whole.subarray(at))];
    assert.deepEqual(events, [
      { event: "chunk", id: "3", data: '{"a":"ü"}' },
      { event: "done", id: undefined, data: "1\n2" },
    ]);
  }
});

test("long output has a head, a tail and a number", () => {
  const collected = (limit: number, pieces: readonly (string | number)[]) => {
    const collector = new Collector(limit);
    for (const piece of pieces) {
      if (typeof piece === "number") collector.skip(piece);
      else collector.push(bytes(piece));
    }
    const { bytes: all, omitted } = collector.finish();
    return [text(all), omitted];
  };
  assert.deepEqual(collected(6, ["abc", "", "def"]), ["abcdef", 0]);
  assert.deepEqual(collected(4, ["abc", "defg", "h"]), ["ab\n[4 bytes left out]\ngh", 4]);
  assert.deepEqual(collected(0, ["abc"]), ["\n[3 bytes left out]\n", 3]);
  assert.deepEqual(collected(100, ["abc", 7, "def"]), ["abc\n[7 bytes left out]\ndef", 7]);
  // A character that is cut in two is left out as a whole.
  assert.deepEqual(collected(4, ["aüüb"]), ["a\n[4 bytes left out]\nb", 4]);
});

test("escape sequences go and text stays", () => {
  const cleaned = (value: string) => text(clean(bytes(value)));
  assert.equal(cleaned("\x1b[1;31mred\x1b[0m\r\n"), "red\n");
  assert.equal(cleaned("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b"), "ab");
  assert.equal(cleaned("\x1b(Ba\x1b=b\x1b7c\x1bP1$r0m\x1b\\d"), "abcd");
  assert.equal(cleaned("\x1b[?25l10%\r20%\r\x1b[K30%\r\n"), "10%\r20%\r30%\n");
  assert.equal(cleaned("a\x1b]0;title\r\nnext"), "a\nnext");
  assert.equal(cleaned("a\x1b[12\x18b"), "ab");
  assert.equal(cleaned("\x1b[é"), "é");
  assert.equal(cleaned("\x1b[1\n2mx"), "\nx");
});

test("base64 is exact for every byte", () => {
  const all = Uint8Array.from({ length: 70_000 }, (_, at) => at % 256);
  assert.deepEqual(fromBase64(toBase64(all)), all);
});

test("a path cannot lead to another route", () => {
  assert.equal(filePath("a b/ü?"), "a%20b/%C3%BC%3F");
  assert.equal(filePath("/etc/hostname"), "/etc/hostname");
  assert.equal(filePath("./a/../b//c/."), "b/c");
  assert.equal(filePath("/../../etc"), "/etc");
  for (const wrong of ["", "../x", "a/../../x", "a\0b"]) assert.throws(() => filePath(wrong), InvalidRequest);
  assert.throws(() => expand("/v1/sessions/{sessionId}", { sessionId: ".." }));
  assert.throws(() => expand("/v1/sessions/{sessionId}", { sessionId: "" }));
  assert.equal(expand("/v1/images/{image}", { image: "a/b:c" }), "/v1/images/a%2Fb%3Ac");
  assert.equal(queryText({ maxBytes: 3, follow: true, recursive: false, label: ["a=b", "c=d"], none: undefined }), "?max_bytes=3&follow=1&recursive=0&label=a%3Db&label=c%3Dd");
});

test("pauses double, have a bound, and are half random", () => {
  assert.equal(backoff(1, () => 0), 50);
  assert.equal(backoff(1, () => 1), 100);
  assert.equal(backoff(3, () => 1), 400);
  assert.equal(backoff(50, () => 1), 5000);
});

test("waits end with the caller's reason", async () => {
  const reason = new Error("enough");
  await assert.rejects(sleep(60_000, AbortSignal.abort(reason)), reason);
  const controller = new AbortController();
  const sleeping = assert.rejects(sleep(60_000, controller.signal), reason);
  controller.abort(reason);
  await sleeping;
  assert.throws(() => new Deadline(AbortSignal.abort(reason), 1), reason);
});

test("each error code has its class, and an unknown one is still an ApiError", () => {
  const facts = { status: 409, message: "busy.", details: { running_exec_id: "x" } };
  const busy = apiError({ ...facts, code: "SHELL_BUSY" });
  assert.ok(busy instanceof ShellBusy);
  assert.equal(busy.runningExecId, "x");
  assert.equal(busy.name, "ShellBusy");
  assert.match(busy.message, /^busy \(SHELL_BUSY\)\. Wait for that command/);
  assert.ok(apiError({ ...facts, code: "LIMIT_REACHED" }) instanceof LimitReached);
  const unknown = apiError({ ...facts, code: "toString" });
  assert.equal(unknown.constructor, ApiError);
  assert.equal(new ShellBusy({ code: "SHELL_BUSY", status: 409, message: "busy" }).runningExecId, undefined);
});

test("a failed command says how it ended", () => {
  const result: ExecResult = {
    execId: "x",
    kind: "exited",
    exitCode: 3,
    outputBytes: 2,
    timedOut: false,
    shellRestarted: false,
    oomKilled: true,
    awaitingInput: false,
    durationMs: 7,
    networkDenied: ["example.com"],
    ok: false,
    output: "no\n",
    bytes: bytes("no\n"),
    truncated: false,
    omittedBytes: 0,
  };
  const message = (changes: Partial<ExecResult>) => new CommandFailed({ ...result, ...changes }).message;
  assert.equal(message({}), "the command exited with 3 (memory ran out; ask for more with resources.memoryMb; the session's network does not allow example.com):\nno");
  const plain = { oomKilled: false, networkDenied: [], output: "" };
  assert.equal(message({ ...plain, kind: "signaled", signal: 9 }), "the command was killed by signal 9");
  assert.match(message({ ...plain, kind: "timed_out" }), /stopped after 7 ms, its time limit/);
  assert.equal(message({ ...plain, kind: "never_ran", reason: "the shell was closed" }), "the command never ran (the shell was closed)");
  assert.match(message({ ...plain, kind: "lost" }), /how it ended is not known/);
  assert.ok(message({ output: "x".repeat(10_000) }).length < 2500);
});

test("a daemon is found by what is named, then by its data directory", async () => {
  const directory = await mkdtemp(join(tmpdir(), "cove-find-"));
  try {
    const find = (env: NodeJS.ProcessEnv, options = {}) => findDaemon(options, env);
    const none = { COVE_DATA_DIR: directory };
    await assert.rejects(find(none), DaemonNotFound);
    await assert.rejects(find({}), DaemonNotFound);
    await assert.rejects(find({ HOME: directory }), /no daemon runs on the data directory .*\.local\/share\/cove: start one with `cove serve`/);
    assert.deepEqual(await find({ ...none, COVE_URL: "box:80/", COVE_API_KEY: "k" }), { url: "http://box:80", apiKey: "k" });
    assert.deepEqual(await find({ ...none, COVE_URL: "http://a" }, { url: "http://b", apiKey: "k" }), { url: "http://b", apiKey: "k" });
    await assert.rejects(find({ ...none, COVE_URL: "http://a" }), /no API key: give one with COVE_API_KEY/);
    await assert.rejects(find({ ...none, COVE_URL: "unix:/run/cove.sock", COVE_API_KEY: "k" }), Unsupported);
    await assert.rejects(find({ ...none, COVE_URL: "http://a b", COVE_API_KEY: "k" }), /not the address of a daemon/);
    await writeFile(join(directory, "api-key"), "sesame\n");
    await writeFile(join(directory, "daemon.json"), JSON.stringify({ url: "http://127.0.0.1:81", pid: process.pid }));
    assert.deepEqual(await find(none), { url: "http://127.0.0.1:81", apiKey: "sesame" });
    // This number is above the largest possible pid.
    await writeFile(join(directory, "daemon.json"), JSON.stringify({ url: "http://127.0.0.1:81", pid: 2_147_483_647 }));
    await assert.rejects(find(none), DaemonNotFound);
    await writeFile(join(directory, "daemon.json"), "not json");
    await assert.rejects(find(none), /cannot understand .*daemon\.json/);
  } finally {
    await rm(directory, { recursive: true });
  }
});

test("ignore files have git's rules", () => {
  const rules = IgnoreRules.none.with("# comment\n*.log\n!keep.log\n/top\nbuild/\na/**/z\n**/deep\nlib/**\n\\#odd\n[a-c].txt\n[!x]y\nq?", "").with("local\n/only", "sub/");
  const ignored = ["x.log", "d/x.log", "top", "build/", "d/build/", "a/z", "a/b/c/z", "p/deep", "lib/f", "#odd", "b.txt", "zy", "q1", "sub/local", "sub/d/local", "sub/only"];
  const kept = ["keep.log", "d/top", "build", "z", "lib", "d.txt", "xy", "q", "local", "only", "sub/d/only", "comment"];
  for (const path of ignored) assert.ok(rules.ignores(path.replace(/\/$/, ""), path.endsWith("/")), `${path} is not ignored`);
  for (const path of kept) assert.ok(!rules.ignores(path, false), `${path} is ignored`);
});

test("git agrees about what is ignored", async () => {
  const directory = await mkdtemp(join(tmpdir(), "cove-git-"));
  try {
    const files = ["a.log", "keep.log", "src/a.ts", "src/a.log", "src/gen/x.ts", "src/gen/keep/y.ts", "node_modules/p/i.js", "docs/a b.md", "docs/x/deep/f", "src/.hidden", "t1.tmp", "ta.tmp"];
    for (const file of files) {
      await mkdir(join(directory, file, ".."), { recursive: true });
      await writeFile(join(directory, file), file);
    }
    await writeFile(join(directory, ".gitignore"), "*.log\n!/keep.log\nnode_modules\n**/deep/\nt[0-9].tmp\n");
    await writeFile(join(directory, "src/.gitignore"), "gen/*\n!gen/keep\n");
    execFileSync("git", ["init", "-q"], { cwd: directory });
    const expected = execFileSync("git", ["ls-files", "-co", "--exclude-standard"], { cwd: directory, encoding: "utf8" }).trim().split("\n").sort();
    const names = execFileSync("tar", ["-tf", "-"], { input: await collect(packDirectory(directory, { ignore: [".git/"] }).stream), encoding: "utf8" });
    assert.deepEqual(names.trim().split("\n").filter((name) => !name.endsWith("/")).sort(), expected);
  } finally {
    await rm(directory, { recursive: true });
  }
});

async function collect(stream: ReadableStream<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}

test("what is packed is unpacked the same, also long names, links and modes", async () => {
  const directory = await mkdtemp(join(tmpdir(), "cove-tar-"));
  try {
    const from = join(directory, "from");
    const long = `${"d".repeat(90)}/${"ü".repeat(60)}.txt`;
    await mkdir(join(from, "d".repeat(90)), { recursive: true });
    await writeFile(join(from, long), "long");
    await writeFile(join(from, "run.sh"), "#!/bin/sh\n", { mode: 0o755 });
    await writeFile(join(from, "big"), Buffer.alloc(600_000, 7));
    await symlink("run.sh", join(from, "link"));
    await symlink("x".repeat(150), join(from, "long-link"));
    const seen: string[] = [];
    const packed = packDirectory(from, { onProgress: ({ path }) => seen.push(path) });
    const archive = await collect(packed.stream);
    assert.equal(packed.progress.files, 5);
    assert.ok(seen.includes("run.sh"));
    // GNU tar is the judge of the format.
    await mkdir(join(directory, "gnu"));
    execFileSync("tar", ["-xf", "-", "-C", join(directory, "gnu")], { input: archive });
    execFileSync("diff", ["-r", "--no-dereference", from, join(directory, "gnu")]);
    const back = await unpackDirectory(new Blob([new Uint8Array(archive)]).stream(), join(directory, "to"));
    assert.equal(back.files, 5);
    execFileSync("diff", ["-r", "--no-dereference", from, join(directory, "to")]);
    // And its archives are read: with the names of its own format, and hard links.
    execFileSync("ln", [join(from, "run.sh"), join(from, "hard")]);
    for (const format of ["gnu", "pax", "ustar"]) {
      const made = execFileSync("tar", ["-c", `--format=${format}`, "-C", from, ...(format === "ustar" ? ["run.sh", "big", "hard"] : ["."])], { maxBuffer: 8 << 20 });
      await unpackDirectory(new Blob([made]).stream(), join(directory, format));
      assert.equal(await readFile(join(directory, format, "hard"), "utf8"), "#!/bin/sh\n");
      if (format !== "ustar") assert.equal(await readFile(join(directory, format, long), "utf8"), "long");
    }
    await assert.rejects(collect(packDirectory(join(from, "run.sh"), {}).stream), /is not a directory/);
    await assert.rejects(collect(packDirectory(join(from, "none"), {}).stream), /cannot read/);
  } finally {
    await rm(directory, { recursive: true });
  }
});

test("an archive cannot write outside of its directory", async () => {
  const directory = await mkdtemp(join(tmpdir(), "cove-evil-"));
  try {
    const common = { mode: 0o644, mtime: 0, size: 4 };
    const end = new Uint8Array(2 * BLOCK);
    const file = (name: string) => [header({ ...common, name, kind: "file" as const }), bytes("evil"), padding(4)];
    const archives: [string, Uint8Array[]][] = [
      ["a name with ..", file("../evil")],
      ["an absolute name", file("/tmp/cove-evil")],
      ["a file below a link", [header({ ...common, size: 0, name: "out", kind: "symlink", link: directory }), ...file("out/evil")]],
      ["a hard link below a link", [header({ ...common, size: 0, name: "out", kind: "symlink", link: "/etc" }), header({ ...common, size: 0, name: "x", kind: "hardlink", link: "out/passwd" })]],
      ["a hard link outside", [header({ ...common, size: 0, name: "x", kind: "hardlink", link: "../../etc/passwd" })]],
    ];
    for (const [what, parts] of archives) {
      const archive = new Blob([...parts, end] as BlobPart[]).stream();
      await assert.rejects(unpackDirectory(archive, join(directory, "to")), Error, what);
      await assert.rejects(readFile(join(directory, "evil")), Error, what);
    }
    const cut = new Blob([...file("a").slice(0, 1)] as BlobPart[]).stream();
    await assert.rejects(unpackDirectory(cut, join(directory, "cut")), /ended too early/);
    const damaged = header({ ...common, name: "a", kind: "file" }).slice();
    damaged[0] = 66;
    assert.throws(() => readHeader(damaged), /damaged/);
  } finally {
    await rm(directory, { recursive: true });
  }
});

test("in a browser, what needs Node says so", async () => {
  const { findDaemon, openWebSocket, requestBody: _, patience: __, ...missing } = browser;
  for (const [name, call] of Object.entries(missing)) assert.throws(call, Unsupported, name);
  assert.throws(() => findDaemon({}), Unsupported);
  // The key would be in the page's address.
  await assert.rejects(openWebSocket({ url: "http://127.0.0.1", apiKey: "key" }, "/"), Unsupported);
});

test("a request whose answer takes long does not use Node's limit of five minutes", async () => {
  const { dispatcher } = patience() as { dispatcher: object };
  assert.equal(dispatcher.constructor.name, "Agent");
  assert.deepEqual(patience(), { dispatcher });
  const server = createServer((_, response) => setTimeout(() => response.end("late"), 100)).listen(0);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  assert.equal(await (await fetch(`http://127.0.0.1:${port}`, patience())).text(), "late");
  // The control: the limit of such a dispatcher counts for fetch.
  const hasty = new (dispatcher.constructor as new (options: object) => object)({ headersTimeout: 1 });
  const slow = createServer((_, response) => setTimeout(() => response.end("late"), 3000)).listen(0);
  await once(slow, "listening");
  const address = `http://127.0.0.1:${(slow.address() as AddressInfo).port}`;
  await assert.rejects(fetch(address, { dispatcher: hasty } as RequestInit), (error: Error) => String(error.cause).includes("Headers Timeout"));
  server.close();
  slow.close();
  slow.closeAllConnections();
  server.closeAllConnections();
  const key = Symbol.for("undici.globalDispatcher.1");
  const usual = (globalThis as Record<symbol, unknown>)[key];
  try {
    (globalThis as Record<symbol, unknown>)[key] = new Map();
    assert.deepEqual(patience(), {}, "a proxy of the program stays in use");
  } finally {
    (globalThis as Record<symbol, unknown>)[key] = usual;
  }
  assert.deepEqual(browser.patience(), {});
});

// Changes of files, told as they happen, against a real daemon.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { FileNotFound, InvalidRequest, type Cove, type FileChangeEvent, type Session, type Watch } from "@cove/sdk";
import { TestDaemon } from "./harness.js";

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

/** The changes before the first one of this path. */
async function until(watch: Watch, path: string): Promise<FileChangeEvent[]> {
  const changes: FileChangeEvent[] = [];
  for (;;) {
    const { value, done } = await watch.next();
    if (done === true) assert.fail(`the watch ended before ${path}: ${JSON.stringify(changes)}`);
    if (value.path === path) return changes;
    changes.push(value);
  }
}

test("what changes below a directory is told", async () => {
  await session.exec("mkdir -p src/old; echo x > src/old/f");
  await using watch = await session.files.watch("src", { recursive: true }).ready();
  assert.equal(watch.truncated, false);
  await session.exec("mv src/old src/new; echo y >> src/new/f; mkdir -p src/a/b; touch src/a/b/c; rm src/new/f; touch src/end");
  const changes = await until(watch, "src/end");
  assert.deepEqual(changes[0], { kind: "moved", path: "src/new", from: "src/old", isDir: true });
  for (const expected of ["modified src/new/f", "created src/a/b/c", "deleted src/new/f"]) {
    assert.ok(changes.some(({ kind, path }) => `${kind} ${path}` === expected), `${expected}: ${JSON.stringify(changes)}`);
  }
  await session.exec("rm -r src");
  for await (const change of watch) assert.ok(change.path.startsWith("src/"));
  assert.equal(watch.ended, "deleted");
});

test("a watch that nobody waited for begins with its loop, and leaving the loop ends it", async () => {
  const watch = session.files.watch();
  const first = watch.next();
  await watch.ready();
  await session.exec("mkdir begun");
  assert.deepEqual(await first, { value: { kind: "created", path: "begun", isDir: true }, done: false });
  await session.exec("mkdir left");
  for await (const change of watch) {
    assert.equal(change.path, "left");
    break;
  }
  assert.equal((await watch.next()).done, true);
});

test("what cannot be watched is told apart, and a signal ends a watch", async () => {
  await assert.rejects(session.files.watch("nothing").ready(), FileNotFound);
  await assert.rejects(session.files.watch("/etc/hostname").ready(), InvalidRequest);
  await assert.rejects(session.files.watch("../etc").ready(), InvalidRequest);
  const controller = new AbortController();
  const watch = await session.files.watch(".", { signal: controller.signal }).ready();
  const next = watch.next();
  controller.abort(new Error("enough"));
  await assert.rejects(next, /enough/);
});

test("a restart of the daemon is an overflow", async () => {
  const own = await TestDaemon.start();
  try {
    const other = await own.client().session();
    const watch = await other.files.watch().ready();
    const next = watch.next();
    await own.killAndRestart();
    assert.deepEqual(await next, { value: { kind: "overflow", path: ".", isDir: true }, done: false });
    await other.exec("mkdir after");
    assert.deepEqual(await until(watch, "after"), []);
    await watch.return();
  } finally {
    await own.stop();
  }
});

// Streams whose connections are cut: every byte once, and every command once.
import assert from "node:assert/strict";
import { after, before, test, type TestContext } from "node:test";
import { ConnectionLost, RECONNECT_ATTEMPTS, type OutputChunk, type Session } from "@cove/sdk";
import { CuttingProxy, TestDaemon, type Cut } from "./harness.js";

const CUTS = 200;
/** Streams that are read at the same time. Each has its own session, because one session keeps only so much output. */
const STREAMS = 2;
const CUTS_TIMEOUT_MS = 240_000;
/** As an event, a piece of output has about 72,000 bytes if much is waiting. A longer connection carries one piece, a shorter one none. */
const SHORT_BYTES = 70_000;
const LONG_BYTES = 80_000;
const MOST_BYTES = 130_000;
/** One of so many connections is a long one. A stream gives up after ten without a new byte. */
const LONG_EVERY = 3;

let daemon: TestDaemon;
let session: Session;
before(async () => {
  daemon = await TestDaemon.start();
  session = await daemon.client().session();
});
after(async () => {
  await daemon.stop();
});

/** The session, reached through a proxy that cuts every connection from now on. */
async function behind(t: TestContext, plan: (cuts: number) => Cut, of = session): Promise<{ proxy: CuttingProxy; far: Session }> {
  let isCutting = false;
  const proxy = await CuttingProxy.start(daemon.port, (cuts) => (isCutting ? plan(cuts) : {}));
  t.after(() => proxy.stop());
  const far = await daemon.client({ url: proxy.url }).connect(of.id);
  isCutting = true;
  proxy.drop();
  return { proxy, far };
}

function assertInOrder(chunks: readonly OutputChunk[]): void {
  let next = 0;
  for (const chunk of chunks) {
    assert.equal(chunk.missingBefore, 0, "output was lost");
    assert.equal(chunk.offset, next, "a chunk does not begin where the last one ended");
    next += chunk.bytes.length;
  }
}

test("a stream that is cut at 200 random points has every byte once", { timeout: CUTS_TIMEOUT_MS }, async (t) => {
  // Nearly what a session keeps: the reader is far behind the command all the time.
  const lines = 370_000;
  const expected = Array.from({ length: lines }, (_, at) => `${at + 1} ü\n`).join("");
  const one = async () => {
    let connections = 0;
    const plan = (cuts: number) => {
      if (cuts >= CUTS / STREAMS) return {};
      connections += 1;
      const [least, most] = connections % LONG_EVERY === 0 ? [LONG_BYTES, MOST_BYTES] : [0, SHORT_BYTES];
      return { down: least + Math.floor(Math.random() * (most - least)) };
    };
    await using own = await daemon.client().session();
    const { proxy, far } = await behind(t, plan, own);
    const chunks: OutputChunk[] = [];
    const places = new Set<number>();
    for await (const chunk of far.stream(`seq -f '%.0f ü' ${lines}`)) {
      chunks.push(chunk);
      places.add(proxy.cuts);
    }
    assertInOrder(chunks);
    assert.ok(chunks.map((chunk) => chunk.text).join("") === expected, "the output is not what the command printed");
    assert.equal(proxy.cuts, CUTS / STREAMS);
    assert.ok(places.size > CUTS / STREAMS / LONG_EVERY / 2, `the cuts were all in ${places.size} places`);
    assert.equal((await own.execs()).length, 1, "the command ran more than once");
  };
  await Promise.all(Array.from({ length: STREAMS }, one));
});

test("a command whose start is cut at any point runs exactly once", async (t) => {
  let next = 0;
  // The head and body of a start have about 500 bytes, and its answer about 1,000. Every third connection is a good one.
  const { proxy, far } = await behind(t, () => {
    next += 1;
    return next % 3 === 0 ? {} : next % 3 === 1 ? { up: Math.floor(Math.random() * 600) } : { down: Math.floor(Math.random() * 1000) };
  });
  const starts = 30;
  for (let at = 0; at < starts; at++) {
    const result = await far.exec(`echo ${at} >> /tmp/starts; echo done ${at}`);
    assert.equal(result.output, `done ${at}\n`);
    // The next start is on a new connection.
    proxy.drop();
  }
  assert.ok(proxy.cuts > starts / 2, `only ${proxy.cuts} cuts`);
  const { output } = await session.exec("cat /tmp/starts");
  assert.equal(output, Array.from({ length: starts }, (_, at) => `${at}\n`).join(""));
});

test("a detached start that is cut runs exactly once", async (t) => {
  let next = 0;
  const { proxy, far } = await behind(t, () => (next++ % 2 === 0 ? { down: 20 } : {}));
  const command = await far.spawn(["sh", "-c", "echo once >> /tmp/spawned; echo out"]);
  assert.equal((await command.wait()).stdout, "out\n");
  // One that opens a shell of its own first.
  assert.equal((await (await far.spawn("echo shell >> /tmp/spawned; echo out")).wait()).output, "out\n");
  assert.equal((await session.exec("cat /tmp/spawned")).output, "once\nshell\n");
  assert.ok(proxy.cuts > 0);
});

test("a start that the runtime sends twice by itself, as browsers do, runs exactly once", async () => {
  const twice: typeof fetch = async (input, init) => {
    if (init?.method === "POST") await (await fetch(input, init)).body?.cancel();
    return fetch(input, init);
  };
  const far = await daemon.client({ fetch: twice }).connect(session.id);
  assert.equal((await far.exec("echo exec >> /tmp/twice; echo out")).output, "out\n");
  assert.equal((await far.run(["sh", "-c", "echo run >> /tmp/twice; echo out"])).stdout, "out\n");
  assert.equal((await (await far.spawn(["sh", "-c", "echo spawn >> /tmp/twice; echo out"])).wait()).stdout, "out\n");
  assert.equal((await (await far.spawn("echo shell >> /tmp/twice; echo out")).wait()).output, "out\n");
  assert.equal((await session.exec("cat /tmp/twice")).output, "exec\nrun\nspawn\nshell\n");
});

test("bytes that are no UTF-8 survive cuts, and so do two streams", async (t) => {
  // The first connection is always cut: all answers together are not much longer than the longest piece.
  const FIRST_CUT = 400;
  let connections = 0;
  const { proxy, far } = await behind(t, () => ({ down: connections++ === 0 ? FIRST_CUT : Math.floor(Math.random() * 20_000) }));
  const program = "import os,sys\nfor i in range(400):\n  os.write(1, bytes([i % 256, 255, 195]))\n  os.write(2, b'e%d\\n' % i)";
  const result = await far.run(["python3", "-c", program]);
  const chunks: OutputChunk[] = [];
  for await (const chunk of far.command(result.execId)) chunks.push(chunk);
  const out = Buffer.concat(chunks.filter((chunk) => chunk.stream === "stdout").map((chunk) => chunk.bytes));
  assert.deepEqual(out, Buffer.concat(Array.from({ length: 400 }, (_, i) => Buffer.from([i % 256, 255, 195]))));
  assert.equal(result.stderr, Array.from({ length: 400 }, (_, i) => `e${i}\n`).join(""));
  assert.equal(result.bytes.length, result.outputBytes);
  assert.ok(proxy.cuts > 0, "nothing was cut");
});

test("a stream that never gets anywhere gives up, and says how to continue", async (t) => {
  t.mock.method(Math, "random", () => 0);
  const command = await session.spawn(["sh", "-c", "echo begun; sleep 600"]);
  let connections = 0;
  const { far } = await behind(t, () => {
    connections += 1;
    return { down: 10 };
  });
  await assert.rejects(
    async () => {
      for await (const _ of far.command(command.execId)) assert.fail("output came through");
    },
    (error: Error) => error instanceof ConnectionLost && error.message.includes(`session.command("${command.execId}").follow({ from: 0 })`),
  );
  assert.equal(connections, RECONNECT_ATTEMPTS);
  await command.kill();
  assert.equal((await command.wait()).kind, "signaled");
});

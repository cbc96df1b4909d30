// A daemon that ends with its process.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { BinaryNotFound, Cove, EmbeddedFailed } from "@cove/sdk";
import { findBinary } from "../dist/node/embedded.js";
import { coveBinary, plainEnv, until } from "./harness.js";

const root = fileURLToPath(new URL("../", import.meta.url));
/** A daemon from before `serve --embedded` cannot be embedded. */
const hasEmbedded = execFileSync(coveBinary(), ["serve", "--help"], { encoding: "utf8" }).includes("--embedded");
const skip = hasEmbedded ? false : "this cove has no serve --embedded";

let directory: string;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), "cove-embedded-"));
});
after(async () => {
  await rm(directory, { recursive: true, force: true });
});

const isAlive = (pid: number) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

test("an embedded daemon works, and is gone after its block", { skip }, async () => {
  let url: string;
  {
    await using cove = await Cove.embedded();
    url = await cove.url();
    await using session = await cove.session();
    assert.equal((await session.exec("echo embedded", { check: true })).output, "embedded\n");
  }
  await assert.rejects(fetch(`${url}/healthz`));
  const dataDir = join(directory, "kept");
  const cove = await Cove.embedded({ dataDir, log: "ignore" });
  await cove.close();
  await cove.close();
  assert.ok((await stat(dataDir)).isDirectory());
});

test("a daemon ends with a process that is killed, and with one that just ends", { skip }, async () => {
  for (const end of ["kill", "exit"]) {
    const program = join(directory, `${end}.mjs`);
    await writeFile(
      program,
      `import { Cove } from ${JSON.stringify(join(root, "dist/index.js"))};
       import { startDaemon } from ${JSON.stringify(join(root, "dist/node/embedded.js"))};
       const daemon = await startDaemon({});
       const cove = new Cove(daemon);
       await cove.session();
       console.log(JSON.stringify({ pid: daemon.pid, dataDir: daemon.dataDir }));
       ${end === "kill" ? "setInterval(() => {}, 1000);" : ""}`,
    );
    const child = spawn(process.execPath, [program], { stdio: ["ignore", "pipe", "inherit"], env: { ...plainEnv(), COVE_BIN: coveBinary() } });
    const [line] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
    const { pid, dataDir } = JSON.parse(line) as { pid: number; dataDir: string };
    if (end === "kill") child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    await until(`the daemon ended after ${end}`, () => !isAlive(pid), 60_000);
    await until("its data is gone", () => stat(dataDir).then(() => false, () => true), 60_000);
  }
});

test("a daemon that cannot be started says why", async () => {
  const failing = join(directory, "failing");
  await writeFile(failing, "#!/bin/sh\necho 'port in use' >&2; exit 3\n");
  await chmod(failing, 0o755);
  await assert.rejects(Cove.embedded({ binary: failing }), (error: Error) => error instanceof EmbeddedFailed && /cannot start a daemon with .*failing: it ended with 3\nport in use/.test(error.message));
  const chatty = join(directory, "chatty");
  await writeFile(chatty, "#!/bin/sh\necho listening; cat\n");
  await chmod(chatty, 0o755);
  await assert.rejects(Cove.embedded({ binary: chatty }), /did not say where it listens/);
  await assert.rejects(Cove.embedded({ binary: join(directory, "none") }), /ENOENT/);
  await assert.rejects(Cove.embedded({ binary: chatty, signal: AbortSignal.abort(new Error("no")) }), /no/);
});

test("the program is found by COVE_BIN, then in PATH", async () => {
  assert.equal(await findBinary({ COVE_BIN: "/x/cove" }), "/x/cove");
  await mkdir(join(directory, "bin"));
  await writeFile(join(directory, "bin/cove"), "");
  await assert.rejects(findBinary({ PATH: join(directory, "bin") }), BinaryNotFound);
  await chmod(join(directory, "bin/cove"), 0o755);
  assert.equal(await findBinary({ PATH: `/none:${join(directory, "bin")}` }), join(directory, "bin/cove"));
});

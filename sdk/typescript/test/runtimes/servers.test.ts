// The story on Bun and on Deno, with the real programs, and on Node as the control: what fails there is no fault of the runtime.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { closedPort, coveBinary, CuttingProxy, plainEnv, TestDaemon } from "../harness.js";
import { App, root } from "./app.js";
import { cuts, LEAST_CUTS } from "./cuts.js";
import { SERVER_STEPS, type StorySettings } from "./server-story.js";
import type { StepResult } from "./story.js";

const run = promisify(execFile);
const STORY_TIMEOUT_MS = 600_000;
/** Where scripts/sdk-typescript installs them. They are no packages of this folder: its lock file would need those of every platform. */
const RUNTIMES = process.env.COVE_SDK_RUNTIMES ?? join(root, "..", "..", "target", "js-runtimes");
/** Where npm puts the programs: the platform's package, or the place to which its install script moves it. */
const PLACES: Record<string, readonly string[]> = {
  bun: [`@oven/bun-linux-${process.arch}/bin/bun`, "bun/bin/bun.exe"],
  deno: [`@deno/linux-${process.arch}-glibc/deno`, "deno/deno"],
};

/** Runtimes whose fetch may not tell that its connection was cut: a stream goes on only after the SDK's limit of silence. */
const LATE_TO_NOTICE: ReadonlySet<string> = new Set(["bun"]);

let daemon: TestDaemon;
let app: App;
before(async () => {
  daemon = await TestDaemon.start();
  app = await App.create();
});
after(async () => {
  await daemon.stop();
  await app.remove();
});

function installed(name: string): string | undefined {
  return (PLACES[name] ?? []).map((place) => join(RUNTIMES, "node_modules", place)).find((program) => {
    try {
      execFileSync(program, ["--version"], { stdio: "pipe" });
      return true;
    } catch {
      return false;
    }
  });
}

const runtimes: [name: string, program: string | undefined, args: readonly string[]][] = [
  ["node", process.execPath, []],
  ["bun", installed("bun"), []],
  ["deno", installed("deno"), ["run", "--allow-all"]],
];

for (const [name, program, args] of runtimes) {
  test(`the SDK works on ${name}`, { skip: program === undefined ? `npm has installed no ${name} that runs here` : false, timeout: STORY_TIMEOUT_MS }, async (t) => {
    const nextCut = cuts();
    const proxy = await CuttingProxy.start(daemon.port, () => ({ down: nextCut() }));
    t.after(() => proxy.stop());
    const isCut = !LATE_TO_NOTICE.has(name);
    const settings: StorySettings = { url: daemon.url, cutUrl: isCut ? proxy.url : daemon.url, nobodyUrl: `http://127.0.0.1:${await closedPort()}`, apiKey: daemon.apiKey };
    const env = { ...plainEnv(), COVE_BIN: coveBinary(), COVE_STORY: JSON.stringify(settings), NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" };
    const { stdout } = await run(program ?? "", [...args, join(app.directory, "server-story.js")], { cwd: app.directory, env, timeout: STORY_TIMEOUT_MS, killSignal: "SIGKILL" });
    const results = stdout.trim().split("\n").map((line) => JSON.parse(line) as StepResult);
    assert.deepEqual(results.map((result) => result.name), Object.keys(SERVER_STEPS), "a step is missing");
    for (const result of results) await t.test(result.name, () => { assert.equal(result.error, undefined); });
    if (!isCut) {
      t.diagnostic(`skipped: cuts on ${name}, which may notice a cut connection only after the SDK's limit of silence`);
      return;
    }
    assert.ok(proxy.cuts >= LEAST_CUTS, `only ${proxy.cuts} cuts`);
    t.diagnostic(`${proxy.cuts} cuts`);
  });
}

// The story in a real browser, Chromium without a window. The page comes from a web app's own server, which holds the key: bundled as most
// apps are, and as plain modules with an import map.
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { build } from "esbuild";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { after, before, test, type TestContext } from "node:test";
import { closedPort, TestDaemon } from "../harness.js";
import { App, root } from "./app.js";
import { Backend } from "./backend.js";
import { pageSteps, type PageSettings } from "./browser-story.js";
import { cuts, LEAST_CUTS } from "./cuts.js";
import type { StepResult } from "./story.js";

const STORY_TIMEOUT_MS = 300_000;
/** How much of what the browser printed an error shows. */
const SHOWN_LOG = 2_000;
/** The browser must not speak to anybody but the page: no updates, no profile of a user. */
const ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

const chromium = ["chromium", "chromium-browser"]
  .flatMap((name) => (process.env["PATH"] ?? "").split(delimiter).map((directory) => join(directory, name)))
  .find((program) => {
    try {
      accessSync(program, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
const skip = chromium === undefined ? "there is no Chromium" : false;

let app: App;
let allowed: Backend;
let other: Backend;
let daemon: TestDaemon;
before(async () => {
  app = await App.create();
  [allowed, other] = [await Backend.start(cuts()), await Backend.start(cuts())];
  daemon = await TestDaemon.start({ COVE_SERVER_ALLOWED_ORIGINS: allowed.origin });
});
after(async () => {
  await Promise.all([allowed.stop(), other.stop()]);
  await daemon.stop();
  await app.remove();
});

/** Opens the page of a server, and returns what it reports. */
async function visit(t: TestContext, backend: Backend, html: string, isAllowed: boolean): Promise<StepResult[]> {
  // A key of one user of the app, never that of an admin.
  const key = await daemon.client().keys.create({ name: `user-${new URL(backend.origin).port}`, role: "user" });
  backend.connect({ port: daemon.port, apiKey: key.secret });
  const settings: PageSettings = { far: { url: daemon.url, apiKey: key.secret }, nobodyUrl: `http://127.0.0.1:${await closedPort()}`, isAllowed };
  backend.serve("/", "text/html", html);
  backend.serve("/settings", "application/json", JSON.stringify(settings));
  const profile = await mkdtemp(join(tmpdir(), "cove-browser-"));
  const browser = spawn(chromium ?? "", [...ARGUMENTS, `--user-data-dir=${profile}`, backend.origin], { stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, HOME: profile } });
  t.after(async () => {
    await ended(browser);
    await rm(profile, { recursive: true, force: true });
  });
  let log = "";
  browser.stderr.setEncoding("utf8").on("data", (text: string) => (log = (log + text).slice(-SHOWN_LOG)));
  const gone = once(browser, "exit").then(() => assert.fail(`the browser ended\n${log}`));
  const late = once(AbortSignal.timeout(STORY_TIMEOUT_MS), "abort").then(() => assert.fail(`the page did not report in time\n${log}`));
  const results = await Promise.race([backend.reported(), gone, late]);
  assert.deepEqual(results.map((result) => result.name), Object.keys(pageSteps(settings)), "a step is missing");
  return results;
}

async function ended(browser: ChildProcess): Promise<void> {
  if (browser.exitCode !== null || browser.signalCode !== null) return;
  // Its other processes have its standard error too: when that is closed, nobody writes to the profile any more.
  const closed = once(browser, "close");
  browser.kill("SIGTERM");
  await closed;
}

async function judge(t: TestContext, results: readonly StepResult[]): Promise<void> {
  for (const result of results) await t.test(result.name, () => { assert.equal(result.error, undefined); });
}

test("the SDK works in a page that is bundled, through the page's own server", { skip }, async (t) => {
  const guide = await readFile(join(root, "../../docs/guides/typescript.md"), "utf8");
  await writeFile(join(app.directory, "page.ts"), /^```ts not-run: a part of a web page[^\n]*\n([^]*?)^```$/m.exec(guide)?.[1] ?? assert.fail("the guide has no page.ts"));
  const entry = { contents: 'import { hello } from "./page.ts"; import { runPage } from "./browser-story.js"; await runPage(hello);', resolveDir: app.directory };
  const { outputFiles } = await build({ stdin: entry, bundle: true, write: false, format: "esm", platform: "browser", target: "es2022", logLevel: "silent" });
  allowed.serve("/app.js", "text/javascript", outputFiles[0]?.text ?? "");
  await judge(t, await visit(t, allowed, '<!doctype html><script type="module" src="/app.js"></script>', true));
  assert.ok(allowed.cuts >= LEAST_CUTS, `only ${allowed.cuts} cuts`);
  assert.ok(allowed.seen.length > 0);
  assert.deepEqual(allowed.seen.filter(({ hasKey }) => hasKey), [], "the page has sent a key");
  t.diagnostic(`${allowed.cuts} cuts`);
});

test("the SDK works in a page without a bundler, and the daemon keeps out a page that it does not allow", { skip }, async (t) => {
  const dist = join(app.directory, "node_modules/@cove/sdk/dist");
  for (const name of await readdir(dist)) if (name.endsWith(".js")) other.serve(`/sdk/${name}`, "text/javascript", await readFile(join(dist, name), "utf8"));
  for (const name of ["browser-story.js", "story.js"]) other.serve(`/${name}`, "text/javascript", await readFile(join(app.directory, name), "utf8"));
  const map = JSON.stringify({ imports: { "@cove/sdk": "/sdk/index.js", "#node": "/sdk/browser.js" } });
  const html = `<!doctype html><script type="importmap">${map}</script><script type="module">import { runPage } from "/browser-story.js"; await runPage();</script>`;
  await judge(t, await visit(t, other, html, false));
});

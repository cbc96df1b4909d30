// Runs the TypeScript programs of all documents, and the examples, as a reader does, and compares what they print. A program is a block
// ```ts file=NAME, and the block ```text prints after it says what it prints.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { coveBinary, plainEnv, TestDaemon } from "./harness.js";

const root = fileURLToPath(new URL("../", import.meta.url));
const repository = fileURLToPath(new URL("../../../", import.meta.url));
/** Programs in fewer pages than this mean that the search for them is broken, not that the documents have none. */
const FEWEST_PAGES = 5;
const hasEmbedded = execFileSync(coveBinary(), ["serve", "--help"], { encoding: "utf8" }).includes("--embedded");
/** Programs that run at the same time. */
const AT_ONCE = 4;
const run = promisify(execFile);

let daemon: TestDaemon;
let work: string;
before(async () => {
  daemon = await TestDaemon.start();
  // Below the package, so that its types and tools are found as they are by a reader who installed it.
  work = await mkdtemp(join(tmpdir(), "cove-docs-"));
  await mkdir(join(work, "node_modules/@cove"), { recursive: true });
  await symlink(root, join(work, "node_modules/@cove/sdk"));
  await symlink(join(root, "node_modules/@types"), join(work, "node_modules/@types"));
  await writeFile(join(work, "package.json"), '{ "type": "module" }');
});
after(async () => {
  await daemon.stop();
  await rm(work, { recursive: true });
});

interface Program {
  name: string;
  text: string;
  prints: string;
}

/** The programs of a document, each with the output that follows it. */
function programs(document: string): Program[] {
  const blocks = [...document.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)].map(([, info = "", text = ""]) => ({ info, text }));
  return blocks.flatMap(({ info, text }, at) => {
    const name = /^ts file=(\S+)$/.exec(info)?.[1];
    if (name === undefined) return [];
    const output = blocks.at(at + 1);
    assert.ok(output?.info === "text prints", `what ${name} prints is missing`);
    return [{ name, text, prints: output.text }];
  });
}

/** Every document that has programs. */
async function documents(): Promise<{ document: string; all: Program[] }[]> {
  const below = await readdir(join(repository, "docs"), { recursive: true });
  const names = ["README.md", "sdk/typescript/README.md", ...below.filter((name) => name.endsWith(".md")).map((name) => join("docs", name))];
  const read = await Promise.all(names.sort().map(async (document) => ({ document, all: programs(await readFile(join(repository, document), "utf8")) })));
  const found = read.filter(({ all }) => all.length > 0);
  assert.ok(found.length >= FEWEST_PAGES, `only ${found.length} documents have programs`);
  return found;
}

const lines = (text: string) => text.trimEnd().split("\n").map((line) => line.trimEnd());

async function start(program: string): Promise<string> {
  // tsx rewrites what it loads, so its coverage is of other lines.
  const env = { ...plainEnv(), NODE_V8_COVERAGE: "", COVE_URL: daemon.url, COVE_API_KEY: daemon.apiKey, COVE_BIN: coveBinary(), TMPDIR: work };
  const { stdout } = await run(process.execPath, ["--import", join(root, "node_modules/tsx/dist/esm/index.mjs"), program], { cwd: work, env, timeout: 120_000 });
  return stdout;
}

for (const { document, all } of await documents()) {
  test(`every program of ${document} prints what the document says`, { concurrency: AT_ONCE }, async (t) => {
    const each = all.map(({ name, text, prints }) =>
      t.test(name, { skip: text.includes("embedded()") && !hasEmbedded ? "this cove has no serve --embedded" : false }, async () => {
        await writeFile(join(work, name), text);
        assert.deepEqual(lines(await start(name)), lines(prints));
      }),
    );
    await Promise.all(each);
  });
}

test("the programs and examples have no type errors", async () => {
  const files = (await documents()).flatMap(({ all }) => all).map(({ name, text }, at) => ({ name: `${at}-${name}`, text }));
  for (const { name, text } of files) await writeFile(join(work, name), text);
  const options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2023,dom,esnext.disposable", "--types", "node", "--skipLibCheck"];
  await run(process.execPath, [join(root, "node_modules/typescript/lib/tsc.js"), ...options, ...files.map(({ name }) => name)], { cwd: work }).catch((error: unknown) => {
    assert.fail((error as { stdout: string }).stdout);
  });
});

test("every example runs with its scripted model", { concurrency: AT_ONCE }, async (t) => {
  const examples = (await readdir(join(root, "examples"))).filter((name) => name.endsWith(".ts"));
  assert.ok(examples.length > 0);
  const each = examples.map((name) =>
    t.test(name, async () => {
      const expected = await readFile(join(root, "examples", name.replace(/\.ts$/, ".out")), "utf8");
      await writeFile(join(work, name), await readFile(join(root, "examples", name), "utf8"));
      assert.deepEqual(lines(await start(name)), lines(expected));
    }),
  );
  await Promise.all(each);
});

// The packages as users install them: two files, an empty directory and no network. Then `npx cove` and a program with a daemon of its own
// work, for root and for an ordinary user.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { chmod, chown, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { coveBinary, plainEnv } from "./harness.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../", import.meta.url));
const TIMEOUT_MS = 180_000;
/** A user whom nothing else here uses. */
const USER = 54_321;
const isRoot = process.getuid?.() === 0;

/** In plain JavaScript, as Node 20 runs it: that has no `await using`. */
const PROGRAM = `import { Cove, CommandFailed } from "@cove/sdk";
import { coveTools } from "@cove/sdk/tools";

const cove = await Cove.embedded();
try {
  const s = await cove.session({ network: "none" });
  await s.exec("cd /workspace && export GREETING=hello && greet() { echo $GREETING from $PWD; }");
  const r = await s.exec("greet", { check: true });
  console.log(r.output.trim(), r.cwd, r.exitCode);
  for await (const chunk of s.stream("for i in 1 2 3; do echo step $i; done")) process.stdout.write(chunk.text);
  await s.exec("exit 3", { check: true }).catch((error) => console.log(error instanceof CommandFailed, error.exitCode));
  console.log(await coveTools(s, { only: ["write"] })[0].execute({ path: "a", content: "tool" }));
} finally {
  await cove.close();
}
`;
const PRINTS = "hello from /workspace /workspace 0\nstep 1\nstep 2\nstep 3\ntrue 3\nCreated a (4 bytes).\n";

let directory: string;
let tarballs: string[];
before(async () => {
  directory = await mkdtemp(join(tmpdir(), "cove-packages-"));
  // The other user has to get in.
  await chmod(directory, 0o755);
  // A binary with debug symbols would take a minute to compress.
  const binary = join(directory, "stripped");
  execFileSync("sh", ["-c", 'strip -o "$2" "$1" || cp "$1" "$2"', "sh", coveBinary(), binary], { stdio: "pipe" });
  const packages = join(directory, "packages");
  await run(join(root, "../../scripts/npm-packages"), [binary, packages]);
  tarballs = (await readdir(packages)).map((name) => join(packages, name));
});
after(async () => {
  await rm(directory, { recursive: true, force: true });
});

/** An empty project of somebody, who runs commands in it. */
async function project(name: string, user: number | undefined): Promise<{ app: string; as: (program: string, ...args: string[]) => Promise<string> }> {
  const [home, app] = [join(directory, name), join(directory, name, "app")];
  await mkdir(app, { recursive: true });
  await writeFile(join(app, "package.json"), '{ "private": true, "type": "module" }');
  if (user !== undefined) for (const path of [home, app, join(app, "package.json")]) await chown(path, user, user);
  // npm hands its own settings to what it runs, among them where its cache is.
  const ours = Object.entries(plainEnv()).filter(([name]) => !name.startsWith("npm_"));
  const env = { ...Object.fromEntries(ours), HOME: home, TMPDIR: home };
  const before = user === undefined ? [] : ["setpriv", `--reuid=${user}`, `--regid=${user}`, "--clear-groups", "--"];
  const as = async (...words: string[]) => {
    const [program = "", ...args] = [...before, ...words];
    return (await run(program, args, { cwd: app, env, timeout: TIMEOUT_MS })).stdout;
  };
  return { app, as };
}

for (const [who, user, skip] of [
  ["whoever runs this", undefined, false],
  ["an ordinary user", USER, isRoot ? false : "that is the test before this one: it runs as an ordinary user already"],
] as const) {
  test(`the packages install into an empty directory, and npx cove and a program work for ${who}`, { skip }, async () => {
    const { app, as } = await project(who.replaceAll(" ", "-"), user);
    assert.equal(tarballs.length, 2);
    await as("npm", "install", "--offline", "--no-audit", "--no-fund", ...tarballs);
    assert.deepEqual((await readdir(join(app, "node_modules/@cove"))).sort(), ["cli-linux-x64", "sdk"]);
    assert.deepEqual((await readdir(join(app, "node_modules"))).filter((name) => !name.startsWith(".")), ["@cove"], "something else was installed");
    assert.match(await as("npx", "--no-install", "cove", "version"), /^cove \d+\.\d+\.\d+\n/);
    await assert.rejects(as("npx", "--no-install", "cove", "no-such-command"), (error: { code?: number; stderr?: string }) => error.code === 2 && (error.stderr ?? "").includes("no-such-command"));
    const manifest = JSON.parse(await readFile(join(app, "node_modules/@cove/sdk/package.json"), "utf8")) as Record<string, unknown>;
    assert.deepEqual([manifest["dependencies"], manifest["devDependencies"]], [undefined, undefined]);
    await writeFile(join(app, "program.js"), PROGRAM);
    assert.equal(await as(process.execPath, "program.js"), PRINTS);
  });
}

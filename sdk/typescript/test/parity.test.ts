// The SDK has the names of the Python SDK, in camelCase. This reads the sources of the one and the classes of the other. A name of Python
// that is missing here fails, unless a line below says what takes its place and why.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as sdk from "@cove/sdk";
import { Terminal } from "../dist/terminal.js";

const python = fileURLToPath(new URL("../../python/src/cove/", import.meta.url));
const classes: Record<string, unknown> = { ...sdk, Terminal };

/** Classes with another name. */
const CLASSES: Record<string, string> = {
  // Where Python has two classes, `Command` is both: what `stream` gives, and what `spawn` gives.
  ExecStream: "Command",
  Process: "Command",
  // `Network` alone would be taken for the type of a request.
  Network: "SessionNetwork",
};

/** Classes of Python's own machinery. */
const OF_PYTHON: Record<string, string> = {
  SessionContext: "`await using` needs no object of its own",
  AnthropicTools: "functions of @cove/sdk/anthropic",
  Transport: "not public",
};

/** Names with another name here, and where they are. */
const NAMES: Record<string, [name: string, why: string]> = {
  "Cove.create": ["Cove.session", "it destroys only at the end of `await using`, so one call does both"],
  "Session.attach": ["Session.command", "a Command is followed from any byte: follow({ from })"],
  "Session.process": ["Session.command", "a Command is also what Python calls a process"],
  "ExecStream.nextEvent": ["Command.follow", "what happens beside the output comes by onEvent"],
  "ExecStream.close": ["Command.follow", "leaving the loop closes the connection"],
  "Watch.close": ["Watch.return", "leaving the loop, or `await using`, ends it"],
  "Ports.request": ["Ports.fetch", "it takes and gives what fetch does"],
  "Workspaces.read": ["Workspaces.files", "the files of a workspace are an object: files(id).read(path)"],
  "Workspaces.write": ["Workspaces.files", "the files of a workspace are an object: files(id).write(path)"],
};

/** Errors with another name. */
const ERRORS: Record<string, [name: string | undefined, why: string]> = {
  DaemonUnreachable: ["ConnectionFailed", "it is told apart from a connection that broke later"],
  StreamLost: ["ConnectionLost", "the same for streams and requests"],
  WaitTimedOut: ["RequestTimeout", "the same for a wait and a request"],
  MissingExtra: [undefined, "npm and bundlers tell of a missing package by themselves"],
};

const camel = (name: string) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** The public methods and parts of each class of the Python SDK, in camelCase. */
async function pythonNames(): Promise<Map<string, Set<string>>> {
  const found = new Map<string, Set<string>>();
  const directory = `${python}_async/`;
  for (const file of (await readdir(directory)).filter((name) => name.endsWith(".py"))) {
    for (const [, name = "", body = ""] of `${await readFile(directory + file, "utf8")}\n`.matchAll(/^class Async(\w+)\b.*:\n((?: {4}.*\n|\n)*)/gm)) {
      const methods = [...body.matchAll(/^ {4}(?:async )?def ([a-z]\w*)\(/gm), ...body.matchAll(/^ {8}self\.([a-z]\w*) = Async/gm)];
      found.set(name, new Set(methods.map(([, method = ""]) => camel(method))));
    }
  }
  return found;
}

/** Whether instances of a class have a name: a method, or a part that the constructor makes. */
function has(where: string): boolean {
  const [className = "", name = ""] = where.split(".");
  const found = classes[className] as { prototype: object } | undefined;
  if (found === undefined) return false;
  if (name in found.prototype || name in found) return true;
  const instance: object = className === "Cove" ? new sdk.Cove({ url: "http://127.0.0.1", apiKey: "any" }) : className === "Session" ? new sdk.Session(undefined as never, { id: "any" } as never, false) : {};
  return name in instance;
}

test("every public call of the Python SDK is here too", async () => {
  const missing: string[] = [];
  const used = new Set<string>();
  const all = await pythonNames();
  assert.ok(["Cove", "Session", "Files", "Ports", "Images"].every((name) => (all.get(name)?.size ?? 0) > 3), "the Python sources are not understood");
  for (const [name, methods] of all) {
    if (name in OF_PYTHON) continue;
    for (const method of methods) {
      const full = `${name}.${method}`;
      if (full in NAMES) used.add(full);
      const here = NAMES[full]?.[0] ?? `${CLASSES[name] ?? name}.${method}`;
      if (!has(here)) missing.push(`${full} (looked for ${here})`);
    }
  }
  assert.deepEqual(missing, []);
  assert.deepEqual(Object.keys(NAMES).filter((name) => !used.has(name)), [], "lines that nothing needs any more");
});

test("every error of the Python SDK is here too", async () => {
  const names = [...(await readFile(`${python}_errors.py`, "utf8")).matchAll(/^class ([A-Z]\w*)\(/gm)].map(([, name = ""]) => name);
  assert.ok(names.length > 20, "the Python sources are not understood");
  const expected = names.map((name) => (name in ERRORS ? ERRORS[name]?.[0] : name)).filter((name) => name !== undefined);
  assert.deepEqual(expected.filter((name) => !(name in classes)), []);
  assert.deepEqual(Object.keys(ERRORS).filter((name) => !names.includes(name)), [], "lines that nothing needs any more");
});

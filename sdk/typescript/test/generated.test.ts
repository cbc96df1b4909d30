// The types are those of the daemon, and the SDK has a call for each of its operations.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Session } from "@cove/sdk";
import { OPERATIONS } from "../dist/generated.js";
import { TestDaemon } from "./harness.js";

const root = new URL("../", import.meta.url);

/** Operations that other calls of the SDK make unnecessary. */
const WITHOUT_A_CALL: Record<string, string> = {
  endMcpSession: "MCP clients speak to /mcp themselves",
  findPort: "redirects to proxyPortRoot; ports.fetch uses its path",
  listTools: "session.tools() has the definitions, from generated-tools.ts",
  proxyPort: "ports.fetch",
  proxyPortRoot: "ports.fetch",
  readMcpEvents: "MCP clients speak to /mcp themselves",
  sendMcpMessage: "MCP clients speak to /mcp themselves",
  readFileAsJson: "files.read has no limit of size",
  writeFileFromJson: "files.write has no limit of size",
};

test("src/generated.ts is what the daemon's /openapi.json says", async () => {
  const daemon = await TestDaemon.start();
  try {
    const { generate } = (await import(new URL("scripts/generate.mjs", root).href)) as { generate: (document: unknown) => string };
    const committed = await readFile(new URL("src/generated.ts", root), "utf8");
    assert.ok(generate(await daemon.client().openApi()) === committed, "the API has changed: get /openapi.json from the daemon, and run node scripts/generate.mjs FILE");
  } finally {
    await daemon.stop();
  }
});

test("the tools are those that the daemon serves, in every form", async () => {
  const daemon = await TestDaemon.start();
  try {
    const headers = { authorization: `Bearer ${daemon.apiKey}` };
    const served = async (format: string): Promise<unknown> => (await fetch(`${daemon.url}/v1/tools?format=${format}`, { headers })).json();
    const { generateTools } = (await import(new URL("scripts/generate.mjs", root).href)) as { generateTools: (tools: unknown) => string };
    const committed = await readFile(new URL("src/generated-tools.ts", root), "utf8");
    assert.ok(generateTools(await served("mcp")) === committed, "the tools have changed: get /v1/tools from the daemon, and run node scripts/generate.mjs OPENAPI TOOLS");
    const tools = new Session(undefined as never, { id: "any" } as never, false).tools();
    assert.deepEqual(tools.openaiSchemas, await served("openai"));
    assert.deepEqual(tools.anthropicSchemas, await served("anthropic"));
    assert.deepEqual(tools.geminiSchemas, await served("gemini"));
  } finally {
    await daemon.stop();
  }
});

test("docs/reference/typescript.md is what the sources say", async () => {
  const { page } = (await import(new URL("scripts/reference.mjs", root).href)) as { page: () => string };
  const committed = await readFile(new URL("../../docs/reference/typescript.md", root), "utf8");
  assert.ok(page() === committed, "the sources have changed: run node scripts/reference.mjs");
});

test("every operation of the daemon has a call", async () => {
  const directory = fileURLToPath(new URL("src", root));
  const files = (await readdir(directory)).filter((name) => name.endsWith(".ts") && name !== "generated.ts");
  const code = (await Promise.all(files.map((name) => readFile(`${directory}/${name}`, "utf8")))).join("\n");
  const uncalled = Object.keys(OPERATIONS).filter((id) => !code.includes(`"${id}"`) && !code.includes(`OPERATIONS.${id}`) && !(id in WITHOUT_A_CALL));
  assert.deepEqual(uncalled, []);
});

test("a schema that the generator does not understand is an error", async () => {
  const { generate } = (await import(new URL("scripts/generate.mjs", root).href)) as { generate: (document: unknown) => string };
  const document = (schema: unknown) => ({ components: { schemas: { A: schema } }, paths: {} });
  assert.match(generate(document({ type: "object", properties: { a_b: { type: ["string", "null"] } } })), /aB\?: string;/);
  assert.throws(() => generate(document({ type: "object", properties: { a: { patternProperties: {} } } })), /does not know/);
  assert.throws(() => generate(document({ type: "object", properties: { A_b: { type: "string" } } })), /camelCase/);
});

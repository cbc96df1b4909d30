// Turns the daemon's /openapi.json into src/generated.ts: a type for each schema, and a table of all operations.
//
//   node scripts/generate.mjs FILE           writes src/generated.ts from a stored document
//   node scripts/generate.mjs FILE TOOLS     also src/generated-tools.ts, from what GET /v1/tools?format=mcp answered
//
// Names are in camelCase, as the SDK's users write them; src/names.ts converts them on the way to and from the wire. The generator
// fails on anything that it does not understand, so that no field is left out silently.
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

/** Fields in which `null` means something other than "absent". In all others an optional field is simply absent. */
const NULL_MATTERS = new Set(["timeout_ms"]);
/** Keys of a schema that only narrow what its type says. */
const NARROWING = ["format", "minimum", "maximum", "pattern", "default", "maxLength", "minLength", "maxItems", "minItems", "examples"];
const FLAG = ["0", "1", "true", "false"];

export function camel(name) {
  const out = name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());
  const back = out.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  if (back !== name) throw new Error(`${name} cannot be converted to camelCase and back`);
  return out;
}

function comment(text, indent = "") {
  if (!text) return "";
  const lines = text.replaceAll("*/", "* /").split("\n");
  return lines.length === 1
    ? `${indent}/** ${lines[0]} */\n`
    : `${indent}/**\n${lines.map((line) => `${indent} * ${line}`.trimEnd()).join("\n")}\n${indent} */\n`;
}

const isNull = (schema) => schema.type === "null";
const union = (types) => [...new Set(types)].join(" | ");

/** The type of a schema. `keepNull` says whether `null` stays a part of it. */
function type(schema, keepNull, indent = "") {
  if (schema === true || Object.keys(schema).every((key) => key === "description")) return "unknown";
  const known = ["$ref", "type", "properties", "required", "additionalProperties", "items", "enum", "const", "oneOf", "anyOf", "description"];
  const strange = Object.keys(schema).filter((key) => !known.includes(key) && !NARROWING.includes(key));
  if (strange.length > 0) throw new Error(`a schema has ${strange.join(", ")}, which the generator does not know`);
  const all = [];
  if (schema.$ref) all.push(schema.$ref.replace("#/components/schemas/", ""));
  if (schema.oneOf ?? schema.anyOf) {
    const options = (schema.oneOf ?? schema.anyOf).filter((option) => keepNull || !isNull(option));
    all.push(`${union(options.map((option) => type(option, keepNull, indent)))}`);
  }
  if (schema.enum) all.push(union(schema.enum.map((value) => JSON.stringify(value))));
  if ("const" in schema) all.push(JSON.stringify(schema.const));
  if (schema.properties) all.push(object(schema, indent));
  if (all.length > 0) return all.length === 1 ? all[0] : all.map((one) => (one.includes("|") ? `(${one})` : one)).join(" & ");
  const types = [schema.type].flat().filter((one) => keepNull || one !== "null");
  return union(types.map((one) => simple(one, schema, indent)));
}

function simple(name, schema, indent) {
  switch (name) {
    case "string":
    case "boolean":
    case "null":
      return name;
    case "integer":
    case "number":
      return "number";
    case "array": {
      const item = type(schema.items, true, indent);
      return item.includes("|") ? `(${item})[]` : `${item}[]`;
    }
    case "object":
      return schema.additionalProperties ? `Record<string, ${type(schema.additionalProperties, true, indent)}>` : "Record<string, never>";
    default:
      throw new Error(`a schema has the unknown type ${JSON.stringify(name)}`);
  }
}

const mapFields = new Set();

function object(schema, indent) {
  const inner = `${indent}  `;
  const fields = Object.entries(schema.properties).map(([name, field]) => {
    const required = schema.required?.includes(name);
    const written = type(field, required || NULL_MATTERS.has(name), inner);
    // The keys of a map, and of facts whose shape depends on the error, are data and not names.
    if (written.startsWith("Record<string") || written === "unknown") mapFields.add(camel(name));
    return `${comment(field.description, inner)}${inner}${camel(name)}${required ? "" : "?"}: ${written};\n`;
  });
  return `{\n${fields.join("")}${indent}}`;
}

function operation(path, method, described, shared) {
  const parameters = [...(shared ?? []), ...(described.parameters ?? [])];
  const list = (place) =>
    parameters
      .filter((one) => one.in === place)
      .map((one) => {
        const { schema } = one;
        const written = JSON.stringify(schema.enum) === JSON.stringify(FLAG) ? "boolean" : type(schema, false);
        // A query parameter that may be repeated is described by one of its values.
        const repeated = one.explode === true || ["status", "label"].includes(one.name) ? ` | readonly (${written})[]` : "";
        return `${camel(one.name)}${one.required ? "" : "?"}: ${written}${repeated}`;
      })
      .join("; ");
  const body = described.requestBody?.content?.["application/json"]?.schema;
  const good = Object.entries(described.responses).filter(([status]) => status.startsWith("2"));
  const answers = good.map(([, one]) => one.content?.["application/json"]?.schema).filter((schema) => schema !== undefined);
  const braces = (text) => (text === "" ? "Record<never, never>" : `{ ${text} }`);
  return [
    comment(`${method.toUpperCase()} ${path}: ${described.summary ?? ""}`.replace(/: $/, ""), "  "),
    `  ${described.operationId}: {\n`,
    `    path: ${braces(list("path"))};\n`,
    `    query: ${braces(list("query"))};\n`,
    `    body: ${body ? type(body, false, "    ") : "undefined"};\n`,
    `    answer: ${answers.length > 0 ? union(answers.map((schema) => type(schema, false, "    "))) : "undefined"};\n`,
    "  };\n",
  ].join("");
}

export function generate(document) {
  mapFields.clear();
  const schemas = Object.entries(document.components.schemas).map(([name, schema]) => {
    const isPlain = schema.properties && !schema.oneOf && !schema.anyOf && !schema.$ref;
    const doc = comment(schema.description);
    return isPlain ? `${doc}export interface ${name} ${object(schema, "")}\n` : `${doc}export type ${name} = ${type(schema, false)};\n`;
  });
  const operations = [];
  const table = [];
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, described] of Object.entries(methods)) {
      if (method === "parameters") continue;
      operations.push(operation(path, method, described, methods.parameters));
      table.push(`  ${described.operationId}: ["${method.toUpperCase()}", "${path.replace(/\{(\w+)\}/g, (_, name) => `{${camel(name)}}`)}"],\n`);
    }
  }
  return [
    "// Made by scripts/generate.mjs from the daemon's /openapi.json. Do not edit: a test compares it with the running daemon.\n",
    "// Names are in camelCase; src/names.ts converts them on the way to and from the wire.\n\n",
    schemas.join("\n"),
    "\n/** What each operation takes and answers. `undefined` stands for none, or for bytes and events. */\n",
    `export interface Operations {\n${operations.join("")}}\n`,
    "\n/** The method and the path of each operation. */\n",
    `export const OPERATIONS = {\n${table.join("")}} as const satisfies Record<keyof Operations, readonly [method: string, path: string]>;\n`,
    "\n/** Fields whose keys are data and not names, such as those of `labels`. */\n",
    `export const MAP_FIELDS: readonly string[] = ${JSON.stringify([...mapFields].sort())};\n`,
  ].join("");
}

/** The definitions of the daemon's tools. Their schemas are for models, so that their names stay as they are. */
export function generateTools(tools) {
  return [
    "// Made by scripts/generate.mjs from the daemon's /v1/tools. Do not edit: a test compares it with the running daemon.\n",
    'import type { ToolDefinition } from "./tools.js";\n\n',
    "/** The names of the daemon's tools. */\n",
    `export type ToolName = ${union(tools.map(({ name }) => JSON.stringify(name)))};\n\n`,
    "/** The tools, in the order in which models should see them. */\n",
    `export const TOOLS: readonly ToolDefinition[] = ${JSON.stringify(tools, undefined, 2)};\n`,
  ].join("");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [file, tools] = process.argv.slice(2);
  if (!file) {
    console.error("usage: node scripts/generate.mjs OPENAPI.json [TOOLS.json]");
    process.exit(2);
  }
  const document = JSON.parse(await readFile(file, "utf8"));
  await writeFile(new URL("../src/generated.ts", import.meta.url), generate(document));
  if (tools) await writeFile(new URL("../src/generated-tools.ts", import.meta.url), generateTools(JSON.parse(await readFile(tools, "utf8"))));
}

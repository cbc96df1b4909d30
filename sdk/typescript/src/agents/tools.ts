// Tools for a model: a shell that remembers, and files. Each is a name, a description, a JSON schema and a function, for any framework that
// calls functions. What goes wrong in a tool is told to the model as text; only an abort of the caller is thrown.
import { CoveError } from "../errors.js";
import type { ExecResult } from "../result.js";
import type { Session } from "../session.js";

export interface JsonSchema {
  type: "object";
  properties: Record<string, { type: string; description: string }>;
  required: string[];
  additionalProperties: false;
}

export interface CoveTool {
  name: string;
  description: string;
  parameters: JsonSchema;
  /** Runs the tool with what the model wrote, as an object or as JSON, and returns what to tell the model. */
  execute: (input: unknown, options?: { signal?: AbortSignal | undefined }) => Promise<string>;
}

export interface ToolOptions {
  /** How long a command may take, in milliseconds. The default is 120,000. */
  timeoutMs?: number;
  /** How much output of a command the model gets, in bytes. The default is 16,384. */
  maxOutputBytes?: number;
  /** The shell that commands run in. The default is `main`. */
  shell?: string;
}

const TIMEOUT_MS = 120_000;
const MAX_OUTPUT_BYTES = 16 << 10;
/** The most entries of a directory that a model gets. */
const MAX_ENTRIES = 500;

type Fields = Record<string, unknown>;
type Run = (fields: Fields, signal: AbortSignal | undefined) => Promise<string>;

/** The tools of a session: bash, read_file, write_file, edit_file and list_files. */
export function coveTools(session: Session, options: ToolOptions = {}): CoveTool[] {
  return [
    tool(
      "bash",
      "Run bash source in a persistent shell: the directory, variables and background jobs stay for the next call. Nothing can be typed at a prompt.",
      { command: ["string", "Bash source of one or more lines"], "timeout_ms?": ["integer", "Time limit in milliseconds"] },
      (fields, signal) => runBash(session, text(fields, "command"), optionalNumber(fields, "timeout_ms"), options, signal),
    ),
    tool(
      "read_file",
      "Read a text file, with line numbers.",
      { path: ["string", PATH], "start_line?": ["integer", "The first line, from 1"], "end_line?": ["integer", "The last line"] },
      async (fields, signal) => numbered(await session.files.readText(text(fields, "path"), { signal }), optionalNumber(fields, "start_line"), optionalNumber(fields, "end_line")),
    ),
    tool("write_file", "Write a file, in the place of an old one if it exists. Missing directories are made.", { path: ["string", PATH], content: ["string", "The whole content"] }, async (fields, signal) => {
      const path = text(fields, "path");
      const bytes = await session.files.write(path, text(fields, "content"), { signal });
      return `wrote ${bytes} bytes to ${path}`;
    }),
    tool(
      "edit_file",
      "Replace a part of a file. The old text must occur exactly once.",
      { path: ["string", PATH], old_text: ["string", "The text to replace, exactly as it is in the file"], new_text: ["string", "What to put in its place"] },
      (fields, signal) => replaceOnce(session, text(fields, "path"), text(fields, "old_text"), text(fields, "new_text"), signal),
    ),
    tool("list_files", "List a directory.", { "path?": ["string", `${PATH}. The default is /workspace`], "recursive?": ["boolean", "Also what is below it"] }, async (fields, signal) => {
      const path = fields["path"] === undefined ? "." : text(fields, "path");
      const { entries, truncated } = await session.files.list(path, { recursive: fields["recursive"] === true, signal });
      const lines = entries.slice(0, MAX_ENTRIES).map((entry) => `${entry.path}${entry.kind === "directory" ? "/" : ""}`);
      if (truncated || entries.length > MAX_ENTRIES) lines.push("[there are more]");
      return lines.join("\n") || "[empty]";
    }),
  ];
}

const PATH = "The path: absolute, or relative to /workspace";

function tool(name: string, description: string, fields: Record<string, [type: string, description: string]>, run: Run): CoveTool {
  const all = Object.entries(fields).map(([field, [type, about]]) => ({ field: field.replace("?", ""), isRequired: !field.endsWith("?"), schema: { type, description: about } }));
  const parameters: JsonSchema = {
    type: "object",
    properties: Object.fromEntries(all.map(({ field, schema }) => [field, schema])),
    required: all.filter(({ isRequired }) => isRequired).map(({ field }) => field),
    additionalProperties: false,
  };
  const execute: CoveTool["execute"] = (input, options) => telling(async () => run(fieldsOf(input), options?.signal));
  return { name, description, parameters, execute };
}

/** An error that a model can do something about: a wrong argument, or what the daemon refused. */
export class ToolInputError extends CoveError {}

/** Runs a tool. An error becomes text for the model. */
async function telling(run: () => Promise<string>): Promise<string> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof CoveError) return `error: ${error.message}`;
    throw error;
  }
}

export function fieldsOf(input: unknown): Fields {
  let value = input;
  if (typeof value === "string") {
    try {
      value = JSON.parse(value);
    } catch {
      throw new ToolInputError("the arguments are not JSON");
    }
  }
  if (typeof value !== "object" || value === null) throw new ToolInputError("the arguments are not an object");
  return value as Fields;
}

export function text(fields: Fields, name: string): string {
  const value = fields[name];
  if (typeof value !== "string") throw new ToolInputError(`${name} is missing, or no text`);
  return value;
}

export function optionalNumber(fields: Fields, name: string): number | undefined {
  const value = fields[name];
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "number") throw new ToolInputError(`${name} is no number`);
  return value;
}

export async function runBash(session: Session, command: string, timeoutMs: number | undefined, options: ToolOptions, signal: AbortSignal | undefined): Promise<string> {
  const result = await session.exec(command, {
    timeoutMs: timeoutMs ?? options.timeoutMs ?? TIMEOUT_MS,
    maxOutputBytes: options.maxOutputBytes ?? MAX_OUTPUT_BYTES,
    ...(options.shell === undefined ? {} : { shell: options.shell }),
    signal,
  });
  return describeResult(result);
}

/** The result of a command in words, for a model: its output, and a line with what the output does not tell. */
export function describeResult(result: ExecResult): string {
  const notes = [`exit code ${result.exitCode}`];
  if (result.cwd !== undefined) notes.push(`now in ${result.cwd}`);
  if (result.timedOut) notes.push("it was stopped because it took too long");
  if (result.oomKilled) notes.push("the kernel killed a process because memory ran out");
  if (result.shellRestarted) notes.push("the shell was replaced; its state is as before this command");
  if (result.networkDenied.length > 0) notes.push(`the network policy denied ${result.networkDenied.join(", ")}`);
  if (result.reason !== undefined) notes.push(result.reason);
  const output = result.output === "" || result.output.endsWith("\n") ? result.output : `${result.output}\n`;
  return `${output}[${notes.join("; ")}]`;
}

/** Lines with their numbers. */
export function numbered(content: string, first = 1, last?: number): string {
  const lines = content.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const end = last === undefined || last < 0 ? lines.length : last;
  if (first < 1 || (lines.length > 0 && first > lines.length) || end < first - 1) throw new ToolInputError(`the file has ${lines.length} lines; ${first} to ${end} is no part of it`);
  return lines
    .slice(first - 1, end)
    .map((line, at) => `${String(first + at).padStart(6)}\t${line}`)
    .join("\n");
}

/** Replaces text that occurs once. */
export async function replaceOnce(session: Session, path: string, from: string, to: string, signal: AbortSignal | undefined): Promise<string> {
  const content = await session.files.readText(path, { signal });
  const count = from === "" ? 0 : content.split(from).length - 1;
  if (count === 0) throw new ToolInputError(`the old text does not occur in ${path}; read the file, and give the text exactly as it is there`);
  if (count > 1) throw new ToolInputError(`the old text occurs ${count} times in ${path}; give more of the lines around it`);
  const at = content.indexOf(from);
  const edited = content.slice(0, at) + to + content.slice(at + from.length);
  await session.files.write(path, edited, { signal });
  const line = content.slice(0, at).split("\n").length;
  const shown = edited.split("\n").length;
  const around = numbered(edited, Math.max(1, line - 3), Math.min(shown, line + to.split("\n").length + 3));
  return `edited ${path}:\n${around}`;
}

// The daemon's tools for a model, over one session: their definitions in the forms that models' APIs take, and the calls. The daemon defines
// the tools and does what they say.
//
// What a model did wrong, and what the sandbox refused, is told to the model as text. What no model can do anything about is thrown: the
// session is gone, the key is wrong, the connection broke, or the caller aborted.
import { ApiError, CoveError, SandboxLost, SessionExpired, SessionNotFound, Unauthorized } from "./errors.js";
import { TOOLS, type ToolName } from "./generated-tools.js";
import type { ToolContentView, ToolReplyView } from "./generated.js";
import type { Session } from "./session.js";

/** The JSON schema of a tool's arguments. */
export interface JsonSchema {
  type: "object";
  properties: Record<string, unknown>;
  required?: string[];
  additionalProperties: false;
}

/** A tool as MCP defines it. */
export interface ToolDefinition {
  name: ToolName;
  title: string;
  description: string;
  inputSchema: JsonSchema;
  /** The schema of `structured` in an answer that is not an error. */
  outputSchema: Record<string, unknown> | null;
  annotations: { title: string; readOnlyHint: boolean; destructiveHint: boolean; idempotentHint: boolean; openWorldHint: boolean };
}

/** A tool for any model that calls functions. */
export interface ToolSchema {
  name: ToolName;
  description: string;
  parameters: JsonSchema;
}

export interface ToolOptions {
  /** The names of the tools to offer, if not all. */
  only?: readonly ToolName[];
}

export interface ToolCallOptions {
  /** Ends the call. The command of `bash` is interrupted, as by Ctrl-C. */
  signal?: AbortSignal | undefined;
}

const FATAL = [SandboxLost, SessionExpired, SessionNotFound, Unauthorized] as const;

/** An error that a model can do something about: a wrong argument, or a tool that does not exist. */
export class ToolInputError extends CoveError {}

/** The daemon's tools over a session. `session.tools()` makes one. */
export class Tools {
  readonly #only: ReadonlySet<string>;
  readonly #restoredAs: (id: string) => Promise<Session>;
  #session: Session;

  constructor(session: Session, restoredAs: (id: string) => Promise<Session>, { only }: ToolOptions = {}) {
    const names: readonly string[] = TOOLS.map(({ name }) => name);
    const unknown = only?.find((name) => !names.includes(name));
    if (unknown !== undefined) throw new TypeError(`there is no tool ${unknown}; the tools are ${names.join(", ")}`);
    this.#only = new Set(only ?? names);
    this.#session = session;
    this.#restoredAs = restoredAs;
  }

  /** The session that the next call uses. The tool `restore` replaces it; the new one is destroyed with the first one. */
  get session(): Session {
    return this.#session;
  }

  /** The tools with a JSON schema of their arguments. */
  get schemas(): ToolSchema[] {
    return this.#definitions.map(({ name, description, inputSchema }) => ({ name, description, parameters: inputSchema }));
  }

  /** The tools as OpenAI's chat API takes them. */
  get openaiSchemas(): { type: "function"; function: ToolSchema }[] {
    return this.schemas.map((schema) => ({ type: "function", function: schema }));
  }

  /** The tools as Anthropic's API takes them. */
  get anthropicSchemas(): { name: ToolName; description: string; input_schema: JsonSchema }[] {
    return this.schemas.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters }));
  }

  /** The tools as Gemini's function declarations. */
  get geminiSchemas(): { name: ToolName; description: string; parameters: Record<string, unknown> }[] {
    return this.schemas.map((schema) => ({ ...schema, parameters: forGemini(schema.parameters) as Record<string, unknown> }));
  }

  /** Does what a model asked for, given as an object or as JSON, and returns the text for the model. */
  async call(name: string, input: unknown, options: ToolCallOptions = {}): Promise<string> {
    return textOf((await this.reply(name, input, options)).content);
  }

  /** As `call`, and whether it failed: the call was wrong, the sandbox refused it, or a command did not exit with 0. */
  async result(name: string, input: unknown, options: ToolCallOptions = {}): Promise<{ text: string; failed: boolean }> {
    const { content, isError } = await this.reply(name, input, options);
    return { text: textOf(content), failed: isError };
  }

  /** As `call`, with all parts of the answer: text, and an image if the model read one. */
  async content(name: string, input: unknown, options: ToolCallOptions = {}): Promise<ToolContentView[]> {
    return (await this.reply(name, input, options)).content;
  }

  /** As `call`, with everything that the daemon answered. */
  reply(name: string, input: unknown, options: ToolCallOptions = {}): Promise<ToolReplyView> {
    return telling(async () => {
      if (!this.#only.has(name)) throw new ToolInputError(`there is no tool ${name}; the tools are ${[...this.#only].join(", ")}`);
      const reply = await this.#session.callTool(name, fieldsOf(input), options);
      if (reply.sessionId !== undefined && reply.sessionId !== this.#session.id) this.#session = await this.#restoredAs(reply.sessionId);
      return reply;
    });
  }

  get #definitions(): ToolDefinition[] {
    return structuredClone(TOOLS.filter(({ name }) => this.#only.has(name)));
  }
}

/** The text of an answer. */
export function textOf(content: readonly ToolContentView[]): string {
  return content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
}

/** Runs a tool. What a model can do something about becomes an answer. */
export async function telling(run: () => Promise<ToolReplyView>): Promise<ToolReplyView> {
  try {
    return await run();
  } catch (error) {
    const isForModel = error instanceof ToolInputError || (error instanceof ApiError && !FATAL.some((kind) => error instanceof kind));
    if (!isForModel) throw error;
    return { content: [{ type: "text", text: error.message }], isError: true };
  }
}

/** The arguments that a model wrote. */
export function fieldsOf(input: unknown): Record<string, unknown> {
  let value = input;
  if (typeof value === "string") {
    try {
      value = JSON.parse(value || "{}");
    } catch {
      throw new ToolInputError("the arguments are not JSON");
    }
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new ToolInputError("the arguments are not an object");
  return value as Record<string, unknown>;
}

/** Gemini takes a part of JSON schema only, and refuses the rest. */
const UNKNOWN_TO_GEMINI: ReadonlySet<string> = new Set(["additionalProperties", "default"]);

function forGemini(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(forGemini);
  if (typeof schema !== "object" || schema === null) return schema;
  const known = Object.entries(schema).filter(([name]) => !UNKNOWN_TO_GEMINI.has(name));
  return Object.fromEntries(known.map(([name, value]) => [name, forGemini(value)]));
}

// The bash and text-editor tools of Anthropic's API, done by the daemon's tools. They have no schema: the model knows them by their type.
// It needs no package: `definitions` goes into `tools` of a request, and `handle` answers each `tool_use` block.
import type { ToolContentView, ToolReplyView } from "../generated.js";
import type { Session } from "../session.js";
import { fieldsOf, telling, textOf, ToolInputError, type ToolCallOptions, type Tools } from "../tools.js";

export interface ToolUse {
  id: string;
  name: string;
  input: unknown;
}

/** A part of an answer that has an image. */
export type ResultBlock = { type: "text"; text: string } | { type: "image"; source: { type: "base64"; media_type: "image/png" | "image/jpeg" | "image/gif" | "image/webp"; data: string } };

export interface ToolResult {
  type: "tool_result";
  tool_use_id: string;
  content: string | ResultBlock[];
  is_error?: true;
}

export interface AnthropicTools {
  definitions: [{ type: "bash_20250124"; name: "bash" }, { type: "text_editor_20250728"; name: "str_replace_based_edit_tool" }];
  /** Runs what the model asked for. What the model can do something about is an answer with `is_error`; the rest is thrown. */
  handle: (use: ToolUse, options?: ToolCallOptions) => Promise<ToolResult>;
}

const BASH = "bash";
const EDITOR = "str_replace_based_edit_tool";

/** Anthropic's own tools over a session. */
export function anthropicTools(session: Session): AnthropicTools {
  const tools = session.tools();
  const run = (use: ToolUse, call: ToolCallOptions): Promise<ToolReplyView> =>
    telling(() => {
      if (use.name === BASH) return tools.reply(BASH, use.input, call);
      if (use.name === EDITOR) return edit(tools, fieldsOf(use.input), call);
      throw new ToolInputError(`there is no tool ${use.name}; the tools are ${BASH} and ${EDITOR}`);
    });
  return {
    definitions: [
      { type: "bash_20250124", name: BASH },
      { type: "text_editor_20250728", name: EDITOR },
    ],
    async handle(use, call = {}) {
      const { content, isError } = await run(use, call);
      const shown = content.some(({ type }) => type === "image") ? content.map(block) : textOf(content);
      return { type: "tool_result", tool_use_id: use.id, content: shown, ...(isError ? { is_error: true } : {}) };
    },
  };
}

async function edit(tools: Tools, fields: Record<string, unknown>, call: ToolCallOptions): Promise<ToolReplyView> {
  const path = text(fields, "path");
  const { files } = tools.session;
  switch (fields["command"]) {
    case "view": {
      const { kind } = await files.stat(path, call);
      if (kind === "directory") return tools.reply("ls", { path }, call);
      return tools.reply("read", { path, ...lines(fields["view_range"]) }, call);
    }
    case "create":
      return tools.reply("write", { path, content: text(fields, "file_text") }, call);
    case "str_replace":
      return tools.reply("edit", { path, old_string: text(fields, "old_str"), new_string: fields["new_str"] === undefined ? "" : text(fields, "new_str") }, call);
    case "insert": {
      const added = text(fields, fields["insert_text"] === undefined ? "new_str" : "insert_text");
      return tools.reply("write", { path, content: inserted(await files.readText(path, call), fields["insert_line"], added) }, call);
    }
    default:
      throw new ToolInputError(`${String(fields["command"])} is no command of ${EDITOR}; use view, create, str_replace or insert`);
  }
}

function text(fields: Record<string, unknown>, name: string): string {
  const value = fields[name];
  if (typeof value !== "string") throw new ToolInputError(`${name} is missing, or no text`);
  return value;
}

/** The lines of a `view_range`, from its first to its last, as `read` takes them. -1 is the end of the file. */
function lines(range: unknown): { offset?: number; limit?: number } {
  if (range === undefined || range === null) return {};
  const [first, last] = Array.isArray(range) ? (range as unknown[]) : [];
  if (!Number.isInteger(first) || !Number.isInteger(last)) throw new ToolInputError("view_range is a list of two numbers: the first line and the last one, or -1 for the end");
  const [offset, end] = [first as number, last as number];
  if (end === -1) return { offset };
  if (end < offset) throw new ToolInputError(`the view_range ${offset} to ${end} has no lines`);
  return { offset, limit: end - offset + 1 };
}

/** The text with something after a line; 0 is the beginning. */
function inserted(content: string, line: unknown, added: string): string {
  const all = content === "" ? [] : content.replace(/\n$/, "").split("\n");
  if (!Number.isInteger(line) || (line as number) < 0 || (line as number) > all.length) throw new ToolInputError(`insert_line is a number from 0 to ${all.length}`);
  all.splice(line as number, 0, added.replace(/\n$/, ""));
  return `${all.join("\n")}\n`;
}

/** A part of an answer as Anthropic's API takes it. */
function block(part: ToolContentView): ResultBlock {
  if (part.type === "text") return { type: "text", text: part.text };
  return { type: "image", source: { type: "base64", media_type: part.mediaType as "image/png", data: part.dataBase64 } };
}

// The bash and text-editor tools of Anthropic's API, backed by a session. The tools have no schema: the model knows them by their type.
// It needs no package: `definitions` goes into `tools` of a request, and `handle` answers each `tool_use` block.
import { CoveError, ShellNotFound } from "../errors.js";
import type { Session } from "../session.js";
import { fieldsOf, numbered, optionalNumber, replaceOnce, runBash, text, ToolInputError, type ToolOptions } from "./tools.js";

export interface ToolUse {
  id: string;
  name: string;
  input: unknown;
}

export interface ToolResult {
  type: "tool_result";
  tool_use_id: string;
  content: string;
  is_error?: true;
}

export interface AnthropicTools {
  definitions: [{ type: "bash_20250124"; name: "bash" }, { type: "text_editor_20250728"; name: "str_replace_based_edit_tool" }];
  /** Runs what the model asked for. Errors are answers with `is_error`; only an abort is thrown. */
  handle: (use: ToolUse, options?: { signal?: AbortSignal | undefined }) => Promise<ToolResult>;
}

const BASH = "bash";
const EDITOR = "str_replace_based_edit_tool";
/** How deep the view of a directory goes, as the tool's description says. */
const VIEW_DEPTH = 2;

export function anthropicTools(session: Session, options: ToolOptions = {}): AnthropicTools {
  const run = async (use: ToolUse, signal: AbortSignal | undefined): Promise<string> => {
    const fields = fieldsOf(use.input);
    if (use.name === BASH) return bash(session, fields, options, signal);
    if (use.name === EDITOR) return edit(session, fields, signal);
    throw new ToolInputError(`there is no tool ${use.name}; these are ${BASH} and ${EDITOR}`);
  };
  return {
    definitions: [
      { type: "bash_20250124", name: BASH },
      { type: "text_editor_20250728", name: EDITOR },
    ],
    async handle(use, { signal } = {}) {
      try {
        return { type: "tool_result", tool_use_id: use.id, content: await run(use, signal) };
      } catch (error) {
        if (!(error instanceof CoveError)) throw error;
        return { type: "tool_result", tool_use_id: use.id, content: error.message, is_error: true };
      }
    },
  };
}

async function bash(session: Session, fields: Record<string, unknown>, options: ToolOptions, signal: AbortSignal | undefined): Promise<string> {
  if (fields["restart"] !== true) return runBash(session, text(fields, "command"), undefined, options, signal);
  const shell = options.shell ?? "main";
  try {
    await session.shells.reset(shell, { signal });
  } catch (error) {
    if (!(error instanceof ShellNotFound)) throw error;
    await session.shells.open({ name: shell }, { signal });
  }
  return "the shell was restarted";
}

async function edit(session: Session, fields: Record<string, unknown>, signal: AbortSignal | undefined): Promise<string> {
  const path = text(fields, "path");
  switch (fields["command"]) {
    case "view":
      return view(session, path, fields["view_range"], signal);
    case "create":
      await session.files.write(path, text(fields, "file_text"), { signal });
      return `wrote ${path}`;
    case "str_replace":
      return replaceOnce(session, path, text(fields, "old_str"), fields["new_str"] === undefined ? "" : text(fields, "new_str"), signal);
    case "insert": {
      const line = optionalNumber(fields, "insert_line") ?? 0;
      const content = await session.files.readText(path, { signal });
      const lines = content === "" ? [] : content.replace(/\n$/, "").split("\n");
      if (line < 0 || line > lines.length) throw new ToolInputError(`${path} has ${lines.length} lines; insert_line is 0 to ${lines.length}`);
      const added = text(fields, fields["insert_text"] === undefined ? "new_str" : "insert_text").replace(/\n$/, "").split("\n");
      lines.splice(line, 0, ...added);
      await session.files.write(path, `${lines.join("\n")}\n`, { signal });
      return `inserted ${added.length} lines into ${path} after line ${line}`;
    }
    default:
      throw new ToolInputError(`${String(fields["command"])} is no command of ${EDITOR}; use view, create, str_replace or insert`);
  }
}

async function view(session: Session, path: string, range: unknown, signal: AbortSignal | undefined): Promise<string> {
  const { kind } = await session.files.stat(path, { signal });
  if (kind === "directory") {
    const { entries } = await session.files.list(path, { recursive: true, signal });
    const isShown = (name: string) => name.split("/").length <= VIEW_DEPTH && !/(^|\/)(\.|node_modules(\/|$))/.test(name);
    const base = path.replace(/\/$/, "");
    const lines = entries.filter((entry) => isShown(entry.path)).map((entry) => `${base}/${entry.path}${entry.kind === "directory" ? "/" : ""}`);
    return lines.join("\n") || "[empty]";
  }
  const [first, last] = Array.isArray(range) ? (range as number[]) : [];
  return numbered(await session.files.readText(path, { signal }), first, last);
}

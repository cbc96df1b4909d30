// Tools for the Vercel AI SDK (the package `ai`), for `generateText({ tools })`. The package is loaded when it is used.
import type { ToolSet } from "ai";
import type { ToolContentView } from "../generated.js";
import type { Session } from "../session.js";
import { textOf, type ToolOptions } from "../tools.js";
import { coveTools } from "./tools.js";

/** The daemon's tools over a session, by their names. The output of a call is the list of its parts. */
export async function aiTools(session: Session, options: ToolOptions = {}): Promise<ToolSet> {
  const { jsonSchema, tool } = await import("ai");
  const tools = coveTools(session, options).map(({ name, description, parameters, content }) => [
    name,
    tool({
      description,
      inputSchema: jsonSchema<Record<string, unknown>>(parameters as never),
      execute: (input: Record<string, unknown>, { abortSignal }: { abortSignal?: AbortSignal }) => content(input, { signal: abortSignal }),
      toModelOutput: shown as never,
    }),
  ]);
  return Object.fromEntries(tools) as ToolSet;
}

/** What the model gets. Version 5 gives the output itself, version 6 an object with it; `media` is known to both. */
function shown(given: ToolContentView[] | { output: ToolContentView[] }): object {
  const content = Array.isArray(given) ? given : given.output;
  if (content.every(({ type }) => type === "text")) return { type: "text", value: textOf(content) };
  return { type: "content", value: content.map((part) => (part.type === "text" ? part : { type: "media", data: part.dataBase64, mediaType: part.mediaType })) };
}

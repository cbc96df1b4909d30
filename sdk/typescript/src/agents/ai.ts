// Tools for the Vercel AI SDK (the package `ai`), for `generateText({ tools })`. The package is loaded when it is used.
import type { ToolSet } from "ai";
import type { Session } from "../session.js";
import { coveTools, type ToolOptions } from "./tools.js";

/** The tools of a session by their names. */
export async function aiTools(session: Session, options: ToolOptions = {}): Promise<ToolSet> {
  const { jsonSchema, tool } = await import("ai");
  const tools = coveTools(session, options).map(({ name, description, parameters, execute }) => [
    name,
    tool({
      description,
      inputSchema: jsonSchema<Record<string, unknown>>(parameters as never),
      execute: (input: Record<string, unknown>, { abortSignal }: { abortSignal?: AbortSignal }) => execute(input, { signal: abortSignal }),
    }),
  ]);
  return Object.fromEntries(tools) as ToolSet;
}

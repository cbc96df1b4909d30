// Tools for LangChain (the package @langchain/core), for `createAgent({ tools })` and `model.bindTools`. The package is loaded when it is used.
import type { StructuredToolInterface } from "@langchain/core/tools";
import type { ToolContentView } from "../generated.js";
import type { Session } from "../session.js";
import { textOf, type ToolOptions } from "../tools.js";
import { coveTools } from "./tools.js";

/** The daemon's tools over a session. */
export async function langchainTools(session: Session, options: ToolOptions = {}): Promise<StructuredToolInterface[]> {
  const { tool } = await import("@langchain/core/tools");
  return coveTools(session, options).map(({ name, description, parameters, content }) =>
    tool(async (input: unknown, config: { signal?: AbortSignal }) => shown(await content(input, { signal: config.signal })), { name, description, schema: parameters as never }),
  );
}

/** Text alone is a string; with an image it is a list of blocks, which chat models take as the content of a message. */
function shown(content: readonly ToolContentView[]): string | object[] {
  if (content.every(({ type }) => type === "text")) return textOf(content);
  return content.map((part) => (part.type === "text" ? part : { type: "image_url", image_url: { url: `data:${part.mediaType};base64,${part.dataBase64}` } }));
}

// Tools for LangChain (the package @langchain/core), for `createAgent({ tools })` and `model.bindTools`. The package is loaded when it is used.
import type { StructuredToolInterface } from "@langchain/core/tools";
import type { Session } from "../session.js";
import { coveTools, type ToolOptions } from "./tools.js";

/** The tools of a session. */
export async function langchainTools(session: Session, options: ToolOptions = {}): Promise<StructuredToolInterface[]> {
  const { tool } = await import("@langchain/core/tools");
  return coveTools(session, options).map(({ name, description, parameters, execute }) =>
    tool((input: unknown, config: { signal?: AbortSignal }) => execute(input, { signal: config.signal }), { name, description, schema: parameters as never }),
  );
}

// The daemon's tools as a list of functions, for any framework that calls functions. Each is a name, a description, a JSON schema and a function.
import type { ToolContentView } from "../generated.js";
import type { ToolName } from "../generated-tools.js";
import type { Session } from "../session.js";
import type { JsonSchema, ToolCallOptions, ToolOptions } from "../tools.js";

export { Tools, type JsonSchema, type ToolCallOptions, type ToolDefinition, type ToolOptions, type ToolSchema } from "../tools.js";

export interface CoveTool {
  name: ToolName;
  description: string;
  parameters: JsonSchema;
  /** Runs the tool with what the model wrote, as an object or as JSON, and returns what to tell the model. */
  execute: (input: unknown, options?: ToolCallOptions) => Promise<string>;
  /** As `execute`, with all parts of the answer: text, and an image if the model read one. */
  content: (input: unknown, options?: ToolCallOptions) => Promise<ToolContentView[]>;
}

/** The daemon's tools over a session. After the tool `restore`, all of them use the new session. */
export function coveTools(session: Session, options: ToolOptions = {}): CoveTool[] {
  const tools = session.tools(options);
  return tools.schemas.map((schema) => ({
    ...schema,
    execute: (input, call) => tools.call(schema.name, input, call),
    content: (input, call) => tools.content(schema.name, input, call),
  }));
}

// Tools for the OpenAI Agents SDK (@openai/agents): function tools, and a shell for its shellTool. The package is loaded when it is used.
import type { FunctionTool, Shell } from "@openai/agents";
import type { ToolContentView } from "../generated.js";
import type { Session } from "../session.js";
import { textOf, type ToolOptions } from "../tools.js";
import { coveTools } from "./tools.js";

export interface ShellOptions {
  /** How much output of a command the model gets, in bytes, if it does not say. */
  maxOutputBytes?: number;
  /** The shell that commands run in. The default is `main`. */
  shell?: string;
}

/** The daemon's tools over a session, for `new Agent({ tools })`. */
export async function openaiTools(session: Session, options: ToolOptions = {}): Promise<FunctionTool[]> {
  const { tool } = await import("@openai/agents");
  return coveTools(session, options).map(({ name, description, parameters, content }) =>
    tool({
      name,
      description,
      // Optional arguments are not strict, in the sense of OpenAI's strict mode.
      strict: false,
      parameters: { ...parameters, additionalProperties: true } as never,
      execute: async (input: unknown, _context: unknown, details?: { signal?: AbortSignal }) => shown(await content(input, { signal: details?.signal })),
      // What is thrown is nothing that a model can do something about, so the run ends with it.
      errorFunction: null,
    }),
  );
}

/** Text alone is a string; with an image it is a list of parts. */
function shown(content: readonly ToolContentView[]): string | object[] {
  if (content.every(({ type }) => type === "text")) return textOf(content);
  return content.map((part) => (part.type === "text" ? part : { type: "image", image: { data: part.dataBase64, mediaType: part.mediaType } }));
}

/** A shell for `shellTool({ shell: openaiShell(session) })`: its commands run one after another in the session's persistent shell. */
export function openaiShell(session: Session, options: ShellOptions = {}): Shell {
  return {
    async run(action) {
      const output = [];
      for (const command of action.commands) {
        const maxOutputBytes = action.maxOutputLength ?? options.maxOutputBytes;
        const result = await session.exec(command, {
          streams: "split",
          ...(action.timeoutMs === undefined ? {} : { timeoutMs: action.timeoutMs }),
          ...(maxOutputBytes === undefined ? {} : { maxOutputBytes }),
          ...(options.shell === undefined ? {} : { shell: options.shell }),
        });
        const outcome = result.timedOut ? ({ type: "timeout" } as const) : ({ type: "exit", exitCode: result.exitCode } as const);
        output.push({ stdout: result.stdout ?? "", stderr: result.stderr ?? "", outcome });
      }
      return { output };
    },
  };
}

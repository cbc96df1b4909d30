// Tools for the OpenAI Agents SDK (@openai/agents): function tools, and a shell for its shellTool. The package is loaded when it is used.
import type { FunctionTool, Shell } from "@openai/agents";
import type { Session } from "../session.js";
import { coveTools, type ToolOptions } from "./tools.js";

/** The function tools of a session, for `new Agent({ tools })`. */
export async function openaiTools(session: Session, options: ToolOptions = {}): Promise<FunctionTool[]> {
  const { tool } = await import("@openai/agents");
  return coveTools(session, options).map(({ name, description, parameters, execute }) =>
    tool({
      name,
      description,
      // Optional arguments are not strict, in the sense of OpenAI's strict mode.
      strict: false,
      parameters: { ...parameters, additionalProperties: true } as never,
      execute: (input: unknown, _context: unknown, details?: { signal?: AbortSignal }) => execute(input, { signal: details?.signal }),
    }),
  );
}

/** A shell for `shellTool({ shell: openaiShell(session) })`: its commands run one after another in the session's persistent shell. */
export function openaiShell(session: Session, options: ToolOptions = {}): Shell {
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

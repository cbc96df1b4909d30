// A coding agent: it writes a failing test, fixes the code, and shows output as it comes. The model is a script, so it needs no key;
// put a call of your model into `next`.
import { Cove, type Session } from "@cove/sdk";

interface Call {
  tool: string;
  input: Record<string, unknown>;
}

const SCRIPT: Call[] = [
  { tool: "write", input: { path: "app.py", content: "def double(n):\n    return n + n + 1\n" } },
  { tool: "write", input: { path: "test_app.py", content: "from app import double\nassert double(4) == 8, double(4)\nprint('ok')\n" } },
  { tool: "bash", input: { command: "python3 test_app.py 2>&1 | tail -n 1" } },
  { tool: "edit", input: { path: "app.py", old_string: "n + n + 1", new_string: "n + n" } },
  { tool: "bash", input: { command: "python3 test_app.py" } },
];

/** The model: it gets what it has seen, and names the next call, or undefined at the end. */
function next(seen: readonly string[]): Call | undefined {
  return SCRIPT[seen.length];
}

async function work(session: Session): Promise<void> {
  const tools = session.tools();
  const seen: string[] = [];
  for (let call = next(seen); call; call = next(seen)) {
    console.log(`> ${call.tool} ${String(call.input["path"] ?? call.input["command"])}`);
    const answer = await tools.call(call.tool, call.input);
    // The last line about a command has the time that it took.
    console.log(answer.replace(/\n\[exit code[^]*/, "").trimEnd());
    seen.push(answer);
  }
}

await using session = await new Cove().session("base", { labels: { example: "coding-agent" } });
await work(session);

// What the SDK does, as steps that run unchanged on Node, Bun, Deno and in a browser. Nothing here is of one runtime: the steps use the SDK
// and what every runtime has. `runStory` runs all of them and tells how each ended; who calls it judges.
import { CommandFailed, ConnectionFailed, ConnectionLost, Conflict, FileNotFound, InvalidRequest, SessionNotFound, Unauthorized, type Cove } from "@cove/sdk";

/** How the daemon is reached. */
export interface Place {
  cove: Cove;
  /** The same daemon, behind something that cuts connections at random points. */
  cut: Cove;
  /** The same daemon, with a key that it does not know. */
  stranger: Cove;
  /** An address where nothing listens. */
  nobody: Cove;
  /** Whether this is a browser, which does not say why a connection failed. */
  isBrowser: boolean;
}

export type Step = (place: Place) => Promise<void>;

export interface StepResult {
  name: string;
  error?: string;
}

/** A stream takes this long at most, with all its cuts. */
const STREAM_TIMEOUT_MS = 120_000;
/** Lines of the stream that is cut. As events they have more than 2,000,000 bytes. */
const CUT_LINES = 200_000;
const CUT_COMMANDS = 10;

export const STEPS: Record<string, Step> = {
  async "a session is created, remembers, and is destroyed at the end of its block"({ cove }) {
    const label = unique();
    {
      await using session = await cove.session({ labels: { label } });
      await session.exec("cd /tmp && export GREETING=hällo");
      const result = await session.exec("echo $GREETING from $PWD; false");
      same([result.output, result.exitCode, result.cwd, result.ok], ["hällo from /tmp\n", 1, "/tmp", false]);
      const run = await session.run(["sh", "-c", "cat; echo err >&2"], { stdin: "typed" });
      same([run.stdout, run.stderr], ["typed", "err\n"]);
      same((await cove.list({ labels: { label } })).map(({ id }) => id), [session.id]);
      const again = await cove.connect(session.id);
      same((await again.exec("pwd")).output, "/tmp\n");
    }
    same(await cove.list({ labels: { label } }), []);
  },

  async "tools answer a model, and a compact view is short"({ cove }) {
    await using session = await cove.session();
    const tools = session.tools({ only: ["write", "bash"] });
    same(await tools.result("write", '{"path": "a/b", "content": "hällo"}'), { text: "Created a/b (6 bytes).", failed: false });
    same((await tools.call("bash", { command: "cat a/b; false" })).split(",")[0], "hällo\n[exit code 1");
    same((await tools.result("write", { file: "a" })).failed, true);
    const { output, compact } = await session.exec("seq -f 'part %.0f' 5000", { view: "compact" });
    same([output.length < 1000, compact?.originalBytes], [true, 48_893]);
  },

  async "output comes while the command runs"({ cove }) {
    await using session = await cove.session();
    await session.run(["mkfifo", "/tmp/gate"]);
    let text = "";
    for await (const chunk of session.stream("echo one; read < /tmp/gate; echo two")) {
      text += chunk.text;
      // The command waits for this, so the first chunk came before the second was printed.
      if (text === "one\n") await session.run(["sh", "-c", "echo go > /tmp/gate"]);
    }
    same(text, "one\ntwo\n");
  },

  async "a stream that is cut has every byte once"({ cove, cut }) {
    await using session = await cove.session();
    const far = await cut.connect(session.id);
    const parts: string[] = [];
    let next = 0;
    for await (const chunk of far.stream(`seq -f '%.0f ü' ${CUT_LINES}`, { signal: AbortSignal.timeout(STREAM_TIMEOUT_MS) })) {
      same([chunk.offset, chunk.missingBefore], [next, 0]);
      next += chunk.bytes.length;
      parts.push(chunk.text);
    }
    const expected = Array.from({ length: CUT_LINES }, (_, at) => `${at + 1} ü\n`).join("");
    same(parts.join("") === expected, true);
  },

  async "a command whose connection is cut runs once"({ cove, cut }) {
    await using session = await cove.session();
    const far = await cut.connect(session.id);
    for (let at = 0; at < CUT_COMMANDS; at++) {
      // The answer is longer than what the shortest connections carry.
      const { output } = await far.exec(`echo ${at} >> /tmp/runs; seq 20000 | tail -n 5000 | tr '\\n' ' '; echo done ${at}`);
      same(output.endsWith(`done ${at}\n`), true);
    }
    const spawned = await far.spawn(["sh", "-c", "echo spawned >> /tmp/runs; seq 20000"]);
    same((await spawned.wait()).outputBytes, 108_894);
    same((await session.exec("cat /tmp/runs")).output, `${Array.from({ length: CUT_COMMANDS }, (_, at) => `${at}\n`).join("")}spawned\n`);
  },

  async "files are written, read in parts, moved and deleted"({ cove }) {
    await using session = await cove.session();
    const { files } = session;
    const every = Uint8Array.from({ length: 256 }, (_, at) => at);
    await files.write("a/text", "zwölf\n");
    await files.write("a/bytes", every, { mode: 0o600 });
    await files.write("a/blob", new Blob([every, every]));
    await files.write("a/stream", streamOf([every, every, every]));
    same(await files.readText("a/text"), "zwölf\n");
    same([...(await files.read("a/bytes"))], [...every]);
    same([...(await files.read("a/bytes", { start: 250, end: 253 }))], [250, 251, 252]);
    same((await files.read("a/blob")).length, 512);
    let streamed = 0;
    const reader = (await files.readStream("a/stream")).getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) streamed += piece.value.length;
    same(streamed, 768);
    same(await files.writeMany("b", { "one.txt": "1", "two.txt": every }), ["b/one.txt", "b/two.txt"]);
    await files.writeArchive("c", await files.readArchive("b"));
    await files.move("c/one.txt", "c/moved.txt");
    await files.delete("b", { recursive: true });
    same((await files.list(".", { recursive: true })).entries.map(({ path }) => path).sort(), ["a", "a/blob", "a/bytes", "a/stream", "a/text", "c", "c/moved.txt", "c/two.txt"]);
    same([(await files.stat("c/two.txt")).size, await files.exists("b")], [256, false]);
  },

  async "errors have their classes and say what to do"({ cove, stranger, nobody, isBrowser }) {
    await using session = await cove.session();
    const failed = await thrown(session.exec("cd /usr; echo why; (exit 3)", { check: true }), CommandFailed);
    same([failed.exitCode, failed.output, failed.cwd], [3, "why\n", "/usr"]);
    await thrown(session.files.read("none"), FileNotFound);
    await thrown(session.files.write("../../escape", ""), InvalidRequest);
    await session.exec("true", { execId: "mine" });
    await thrown(session.exec("true", { execId: "mine" }), Conflict);
    const missing = await thrown(cove.connect("no-such-session"), SessionNotFound);
    same([missing.code, missing.status], ["SESSION_NOT_FOUND", 404]);
    await thrown(stranger.list(), Unauthorized);
    // A browser tells a page only that it failed.
    await thrown(nobody.health(), isBrowser ? ConnectionLost : ConnectionFailed);
    const late = await session.exec("sleep 60", { timeoutMs: 200 });
    same([late.timedOut, late.exitCode], [true, 124]);
  },

  async "an abort ends the command, and a request"({ cove }) {
    await using session = await cove.session();
    const controller = new AbortController();
    const reason = new Error("no longer wanted");
    const waiting = `sh -c 'trap "echo stopped > /tmp/stopped; exit" INT; echo begun; sleep 60'`;
    const command = session.exec(waiting, { signal: controller.signal, onOutput: () => { controller.abort(reason); } });
    same((await thrown(command, Error)) === reason, true);
    same((await session.exec("cat /tmp/stopped")).output, "stopped\n");
    const kept = new AbortController();
    const detached = session.exec("echo begun; sleep 0.2; echo end > /tmp/kept", { execId: "kept", onAbort: "detach", signal: kept.signal, onOutput: () => { kept.abort(); } });
    await thrown(detached, Error);
    same([(await session.command("kept").wait()).exitCode, await session.files.readText("/tmp/kept")], [0, "end\n"]);
    await thrown(cove.list({ signal: AbortSignal.abort(reason) }), Error);
    // Leaving the loop closes the connection, and the command goes on.
    const stream = session.stream("echo one; sleep 0.2; echo two");
    for await (const chunk of stream) {
      same(chunk.text, "one\n");
      break;
    }
    same((await session.command(stream.execId).wait()).output, "one\ntwo\n");
  },

  async "a server in the sandbox is asked"({ cove }) {
    await using session = await cove.session();
    await session.files.write("/tmp/www/page", "from inside");
    const server = await session.spawn("cd /tmp/www && exec python3 -m http.server 8000 --bind 127.0.0.1");
    await session.ports.wait(8000);
    const answer = await session.ports.fetch(8000, "/page");
    same([answer.status, await answer.text()], [200, "from inside"]);
    await server.kill();
    same((await server.wait()).exitCode, 137);
  },

  async "a terminal is typed at, and ends"({ cove }) {
    await using session = await cove.session();
    await session.exec("export NAME=Ada");
    const terminal = await session.terminal({ cols: 90, rows: 20 });
    terminal.write("stty size; echo hello $NAME; exit 5\n");
    let shown = "";
    const decoder = new TextDecoder();
    for await (const bytes of terminal) shown += decoder.decode(bytes, { stream: true });
    same([shown.includes("20 90"), shown.includes("hello Ada"), terminal.exit?.exitCode], [true, true, 5]);
    const left = await session.terminal();
    left.close();
  },
};

/** Runs steps one after another. */
export async function runStory(steps: Record<string, Step>, place: Place, report: (result: StepResult) => void): Promise<void> {
  for (const [name, step] of Object.entries(steps)) {
    try {
      await step(place);
      report({ name });
    } catch (error) {
      report({ name, error: error instanceof Error ? `${error.name}: ${error.message}\n${error.stack ?? ""}` : String(error) });
    }
  }
}

export function same(actual: unknown, expected: unknown): void {
  const [is, should] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (is !== should) throw new Error(`it is ${is}, and should be ${should}`);
}

/** What a promise is rejected with, which must be of a class. */
export async function thrown<T extends Error>(promise: Promise<unknown>, kind: abstract new (...args: never[]) => T): Promise<T> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  // An abort without a reason is a DOMException, which is no Error everywhere.
  if (error instanceof kind || ((kind as unknown) === Error && error instanceof DOMException)) return error as T;
  throw new Error(`${String(error)} was thrown, and should be ${kind.name}`);
}

export function unique(): string {
  return `s${Math.random().toString(36).slice(2)}`;
}

function streamOf(parts: readonly Uint8Array[]): ReadableStream<Uint8Array> {
  const rest = [...parts];
  return new ReadableStream({
    pull(controller) {
      const next = rest.shift();
      if (next) controller.enqueue(next);
      else controller.close();
    },
  });
}


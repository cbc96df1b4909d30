// One session: a sandbox with its shells, files, ports and network.
import { randomId, textOrBytes } from "./bytes.js";
import { ABORT_TIMEOUT_MS, checked, Command, replied, type CommandSettings, type OnAbort, type WaitOptions } from "./command.js";
import { Conflict, ConnectionLost, NotFound, RequestTimeout, SessionExpired } from "./errors.js";
import { Files, flags } from "./files.js";
import type { ApiExecRequest, ApiExecView, ApiRunRequest, ExecReply, ForkRequest, OpenShellRequest, SessionView, SnapshotView, StatsView, ToolReplyView, UpdateSessionRequest } from "./generated.js";
import { OPERATIONS } from "./generated.js";
import type { ToolName } from "./generated-tools.js";
import type { ExecResult } from "./result.js";
import { Ports, SessionNetwork, Shell, Shells } from "./session-parts.js";
import type { Terminal } from "./terminal.js";
import { Tools, type ToolOptions } from "./tools.js";
import { expand, queryText, type CallOptions, type Transport } from "./transport.js";

/** What a command in a shell takes beside its text. With `view: "compact"`, `onOutput` and `onEvent` are not called: only the reply has a view. */
export interface ExecOptions extends Omit<ApiExecRequest, "cmd" | "detach" | "stdin" | "stdinBase64">, WaitOptions {
  /** What the command reads on standard input. */
  stdin?: string | Uint8Array;
  /** What an abort of `signal` does to the command. The default is "interrupt". */
  onAbort?: OnAbort;
}

/** What a run takes beside its words. */
export interface RunOptions extends Omit<ApiRunRequest, "argv" | "detach" | "stdin" | "stdinBase64">, WaitOptions {
  stdin?: string | Uint8Array;
  onAbort?: OnAbort;
}

/** What a stream of a command in a shell takes beside its text. */
export type StreamOptions = Omit<ExecOptions, "view" | "maxTokens">;

export type SpawnOptions = Omit<StreamOptions, "check" | "onAbort" | "onOutput" | "onEvent" | "maxOutputBytes"> & { stdinOpen?: boolean };

/** How long a snapshot, a fork, a stop or a start may take. */
const LONG_TIMEOUT_MS = 600_000;
/** How long a reply may take that only the end of a command makes: a tool's answer, or a compact view. The command's own limit comes on top. */
const WHOLE_REPLY_MS = 3_600_000;
/** The longest time that a timer takes. */
const MAX_TIMER_MS = 2 ** 31 - 1;
const wholeReplyMs = (limitMs: number | null | undefined): number => Math.min(MAX_TIMER_MS, WHOLE_REPLY_MS + Math.max(0, limitMs ?? 0));
/** How the ids begin that SDKs give to commands of their own. */
const ID_OF_SDK = /^(py|ts)-/;
/** The shells that `spawn` opens. */
const SPAWN_SHELL = "spawn-";

export class Session {
  readonly id: string;
  readonly files: Files;
  readonly shells: Shells;
  readonly ports: Ports;
  readonly network: SessionNetwork;
  readonly #transport: Transport;
  readonly #isOwned: boolean;
  /** Sessions that the tool `restore` made from this one. They end with it. */
  readonly #restored: string[] = [];
  #info: SessionView;

  /** Sessions come from `cove.session`, `cove.connect` and `fork`. One that is owned is destroyed at the end of `await using`. */
  constructor(transport: Transport, info: SessionView, isOwned: boolean) {
    this.id = info.id;
    this.#info = info;
    this.#transport = transport;
    this.#isOwned = isOwned;
    this.files = new Files(transport, info.id);
    this.shells = new Shells(transport, info.id);
    this.ports = new Ports(transport, info.id);
    this.network = new SessionNetwork(transport, info.id);
  }

  /** The session as it was when it was last asked for; `refresh` asks again. */
  get info(): SessionView {
    return this.#info;
  }

  async refresh(options: CallOptions = {}): Promise<SessionView> {
    return (this.#info = await this.#transport.json("getSession", { path: this.#path, ...options }));
  }

  /**
   * Runs bash source in a persistent shell, and waits for its end. With `view: "compact"`, `output` is text for a model: failures first,
   * successes as counts, at most `maxTokens` (128 or more). `compact` says what was left out. If the connection broke meanwhile, `compact` is
   * absent, and `output` is what was printed.
   */
  async exec(cmd: string, options: ExecOptions = {}): Promise<ExecResult> {
    const { view, maxTokens, ...rest } = options;
    if (view === undefined || view === "full") return this.stream(cmd, rest).wait();
    const { signal, onAbort = "interrupt", check, maxOutputBytes, timeoutMs } = rest;
    const execId = rest.execId ?? randomId("ts-");
    const body = { ...apart(rest).request, ...flags({ maxOutputBytes, maxTokens }), cmd, execId, view };
    try {
      const reply = await this.#transport.json("exec", { path: this.#path, body, signal, requestTimeoutMs: wholeReplyMs(timeoutMs), isSlow: true, attempts: 1 });
      const result = replied(reply as ExecReply);
      return check ? checked(result) : result;
    } catch (error) {
      if (signal?.aborted && onAbort !== "detach") await this.#interrupt(execId, onAbort === "kill" ? "KILL" : "INT");
      if (signal?.aborted || !(error instanceof ConnectionLost || error instanceof RequestTimeout)) throw error;
      // The daemon takes an id once, so the stream starts the command only if the lost request never arrived.
      return this.#stream(cmd, { ...rest, execId }, true).wait();
    }
  }

  /** Runs a program beside the shells, without bash in between, and waits for its end. */
  async run(argv: readonly string[], options: RunOptions = {}): Promise<ExecResult> {
    return this.runStream(argv, options).wait();
  }

  /**
   * Runs bash source in a persistent shell. Iterating over it starts the command and gives the output as it comes. Leaving the loop early
   * leaves the command running.
   */
  stream(cmd: string, options: StreamOptions = {}): Command {
    return this.#stream(cmd, options, options.execId === undefined);
  }

  #stream(cmd: string, options: StreamOptions, isOwnId: boolean): Command {
    const { request, settings } = apart(options);
    const body = { ...request, cmd, execId: request.execId ?? randomId("ts-") };
    return this.#command(body.execId, { ...settings, isOwnId, streams: body.streams, rawOutput: body.rawOutput, start: { operation: "execStream", body } });
  }

  /** The same as `stream`, for a program beside the shells. */
  runStream(argv: readonly string[], options: RunOptions = {}): Command {
    const { request, settings } = apart(options);
    const body = { ...request, argv: [...argv], execId: request.execId ?? randomId("ts-") };
    return this.#command(body.execId, { ...settings, isOwnId: request.execId === undefined, streams: "split", isRun: true, start: { operation: "runStream", body } });
  }

  /**
   * Starts something in the background, and returns when the daemon has it. Text runs as bash source in a shell of its own, a copy of
   * `main`, so that `main` stays free; with `shell`, in that shell. A list of words runs as a program beside the shells.
   */
  async spawn(command: string | readonly string[], options: SpawnOptions = {}): Promise<Command> {
    const { request, settings } = apart(options);
    const { signal, requestTimeoutMs } = options as CallOptions;
    const call: CallOptions = { signal, requestTimeoutMs };
    const isOwnId = request.execId === undefined;
    const execId = request.execId ?? randomId("ts-");
    const isThere = () => this.command(execId).poll(call).then(() => true);
    if (typeof command !== "string") {
      const { shell: _, streams: __, ...rest } = request as ApiExecRequest;
      await this.#detached(isOwnId, isThere, () => this.#transport.json("run", { path: this.#path, body: { ...rest, argv: [...command], execId, detach: true }, ...call }));
      return this.#command(execId, { ...settings, streams: "split", isRun: true, onAbort: "detach", defaults: {} });
    }
    const own = request.shell === undefined ? `${SPAWN_SHELL}${execId}`.slice(0, 64) : undefined;
    if (own !== undefined) {
      const isOpen = async () => (await this.shells.list(call)).some(({ name }) => name === own);
      await this.#detached(isOwnId, isOpen, () => this.shells.open({ name: own, from: "main" }, call));
    }
    const body: ApiExecRequest = { ...(request), cmd: command, execId, detach: true, ...flags({ shell: own }) };
    await this.#detached(isOwnId, isThere, () => this.#transport.json("exec", { path: this.#path, body, ...call }));
    // The shell has no other use. It may be gone with its session.
    const onEnd = own === undefined ? undefined : () => this.shells.close(own).catch(() => undefined);
    return this.#command(execId, { ...settings, streams: body.streams, rawOutput: body.rawOutput, onAbort: "detach", onEnd, defaults: {} });
  }

  /** The daemon's tools for a model: all of them, or only some. */
  tools(options: ToolOptions = {}): Tools {
    return new Tools(this, (id) => this.#restoredAs(id), options);
  }

  /**
   * Calls one of the daemon's tools. Wrong arguments are an InvalidRequest; what the sandbox refuses is a reply with `isError`. An abort
   * interrupts the command of `bash`. `restore` answers with the id of a new session, which is the caller's to use and to destroy; `tools` does
   * both.
   */
  async callTool(name: string, input: Readonly<Record<string, unknown>> = {}, options: CallOptions = {}): Promise<ToolReplyView> {
    const limit = input["timeout_seconds"];
    const requestTimeoutMs = options.requestTimeoutMs ?? wholeReplyMs(typeof limit === "number" ? limit * 1000 : undefined);
    // The names of arguments are data: they go as the model wrote them.
    const raw = { body: JSON.stringify(input), type: "application/json" };
    // What was never sent has no command to interrupt.
    options.signal?.throwIfAborted();
    try {
      return await this.#transport.json("callTool", { path: { ...this.#path, tool: name as ToolName }, raw, signal: options.signal, requestTimeoutMs, isSlow: true });
    } catch (error) {
      if (options.signal?.aborted && name === "bash" && input["background"] !== true) await this.#interruptNewest();
      throw error;
    }
  }

  /** A command that was started before, by its id: to follow it again, also from another process. */
  command(execId: string, options: Pick<ExecOptions, "streams" | "rawOutput"> = {}): Command {
    return this.#command(execId, options);
  }

  /** Recent commands and runs, the oldest first. */
  execs(options: CallOptions & { limit?: number; after?: string } = {}): Promise<ApiExecView[]> {
    const { limit, after, ...call } = options;
    return this.#transport.json("listExecs", { path: this.#path, query: flags({ limit, after }), ...call });
  }

  /** Types at the terminal of a shell, for a command that runs with `streams: "tty"`. */
  input(data: string | Uint8Array, options: CallOptions & { shell?: string } = {}): Promise<void> {
    return this.shells.input(data, options);
  }

  /** Sends a signal to a command by its id, or to the foreground program of a shell. */
  async signal(signal: string | number, options: CallOptions & { shell?: string; execId?: string } = {}): Promise<void> {
    const { shell, execId, ...call } = options;
    await this.#transport.json("sendSignal", { path: this.#path, body: { signal: String(signal), ...flags({ shell, execId }) }, ...call });
  }

  /** Sets the size of a shell's terminal. */
  resize(cols: number, rows: number, options: CallOptions & { shell?: string } = {}): Promise<void> {
    return this.shells.resize(cols, rows, options);
  }

  /** A shell by its name, to run commands in it. It need not be open yet. */
  shell(name: string): Shell {
    return new Shell(this, name);
  }

  /** Opens a shell. `from` copies the directory, variables and functions of another one. */
  async openShell(shell: OpenShellRequest = {}, options: CallOptions = {}): Promise<Shell> {
    return this.shell((await this.shells.open(shell, options)).name);
  }

  /** A terminal for a person. Without `shell` it is a copy of `main` that closes with it. Not in browsers, which cannot send the key. */
  async terminal(options: { shell?: string; cols?: number; rows?: number; signal?: AbortSignal } = {}): Promise<Terminal> {
    const { signal, ...query } = options;
    const { Terminal } = await import("./terminal.js");
    return Terminal.open(await this.#transport.target(), `${expand(OPERATIONS.attachTerminal[1], this.#path)}${queryText(query)}`, signal);
  }

  /** Changes time limits or labels. `labels` takes the place of all earlier ones. */
  async update(changes: UpdateSessionRequest, options: CallOptions = {}): Promise<SessionView> {
    return (this.#info = await this.#transport.json("updateSession", { path: this.#path, body: changes, ...options }));
  }

  /** Freezes every process until the next request that needs the sandbox. */
  async pause(options: CallOptions = {}): Promise<SessionView> {
    return (this.#info = await this.#transport.json("pauseSession", { path: this.#path, ...options }));
  }

  async resume(options: CallOptions = {}): Promise<SessionView> {
    return (this.#info = await this.#transport.json("resumeSession", { path: this.#path, ...options }));
  }

  /** Ends all processes, and keeps files and shells under the same id. */
  async stop(options: CallOptions = {}): Promise<SessionView> {
    return (this.#info = await this.#transport.json("stopSession", { path: this.#path, requestTimeoutMs: LONG_TIMEOUT_MS, ...options }));
  }

  async start(options: CallOptions = {}): Promise<SessionView> {
    return (this.#info = await this.#transport.json("startSession", { path: this.#path, requestTimeoutMs: LONG_TIMEOUT_MS, ...options }));
  }

  /** Keeps files and shells as they are now, for other sessions: `cove.session({ snapshot: id })`. */
  snapshot(options: CallOptions & { name?: string } = {}): Promise<SnapshotView> {
    const { name, ...call } = options;
    return this.#transport.json("createSnapshot", { path: this.#path, body: flags({ name }), requestTimeoutMs: LONG_TIMEOUT_MS, ...call });
  }

  /** Makes copies that share files until they change. All are made, or none. Each is destroyed at the end of its own `await using`. */
  async fork(options: ForkRequest & CallOptions = {}): Promise<Session[]> {
    const { signal, requestTimeoutMs = LONG_TIMEOUT_MS, ...body } = options;
    const { sessions } = await this.#transport.json("forkSession", { path: this.#path, body, signal, requestTimeoutMs });
    return sessions.map((info) => new Session(this.#transport, info, true));
  }

  /** What the session uses now. */
  stats(options: CallOptions = {}): Promise<StatsView> {
    return this.#transport.json("getSessionStats", { path: this.#path, ...options });
  }

  /** Destroys the session, and those that its tools made by `restore`. It is no error if it is gone already. */
  async destroy(options: CallOptions = {}): Promise<void> {
    for (const sessionId of [...this.#restored, this.id]) {
      try {
        await this.#transport.json("destroySession", { path: { sessionId }, ...options });
      } catch (error) {
        if (!(error instanceof NotFound) && !(error instanceof SessionExpired)) throw error;
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isOwned) await this.destroy();
  }

  get #path(): { sessionId: string } {
    return { sessionId: this.id };
  }

  /** The session that the tool `restore` made. It is destroyed with this one. */
  async #restoredAs(sessionId: string): Promise<Session> {
    this.#restored.push(sessionId);
    return new Session(this.#transport, await this.#transport.json("getSession", { path: { sessionId } }), false);
  }

  /** Sends a signal for a caller that has given up. The command may have ended, or never have begun. */
  async #interrupt(execId: string, signal: "INT" | "KILL"): Promise<void> {
    await this.signal(signal, { execId, requestTimeoutMs: ABORT_TIMEOUT_MS }).catch(() => undefined);
  }

  /** Interrupts the command that was last given to `main` by a tool. The daemon chose its id, which only a reply would have told. */
  async #interruptNewest(): Promise<void> {
    const execs = await this.execs({ requestTimeoutMs: ABORT_TIMEOUT_MS }).catch(() => []);
    const newest = execs.findLast(({ shell, state, execId }) => shell === "main" && state !== "ended" && !ID_OF_SDK.test(execId));
    if (newest) await this.#interrupt(newest.execId, "INT");
  }

  #command(execId: string, settings: CommandSettings): Command {
    return new Command(this.#transport, this.id, execId, settings);
  }

  /**
   * Sends what a spawn needs. If the connection breaks it is sent again: the daemon takes an id only once, so a conflict means that it has it,
   * or that the session cannot run anything.
   */
  async #detached(isOwnId: boolean, isThere: () => Promise<boolean>, send: () => Promise<unknown>): Promise<void> {
    for (let tries = 1; ; tries++) {
      try {
        await send();
        return;
      } catch (error) {
        if ((tries > 1 || isOwnId) && error instanceof Conflict && (await isThere().catch(() => false))) return;
        if (!(error instanceof ConnectionLost) || tries >= this.#transport.attempts) throw error;
      }
    }
  }
}

/** Tells what goes to the daemon from what stays here. */
function apart(options: ExecOptions | RunOptions | SpawnOptions): { request: Omit<ApiExecRequest, "cmd">; settings: CommandSettings } {
  const { signal, requestTimeoutMs: _, check, onEvent, onOutput, onAbort = "interrupt", maxOutputBytes, stdin, ...request } = options as ExecOptions & CallOptions;
  return {
    request: { ...request, ...textOrBytes("stdin", stdin) },
    settings: { onAbort, defaults: flags({ signal, check, onEvent, onOutput, maxOutputBytes }) },
  };
}

// What belongs to one session beside commands and files: shells, ports and the network.
import { textOrBytes } from "./bytes.js";
import { backoff, sleep } from "./deadline.js";
import { ConnectionFailed, ConnectionLost, RequestTimeout } from "./errors.js";
import type { InjectionSpec, NetworkDecision, NetworkSpec, NetworkView, OpenShellRequest, PortUrlView, PortView, ShellView } from "./generated.js";
import { OPERATIONS } from "./generated.js";
import { fromWire } from "./names.js";
import { RECONNECT_ATTEMPTS, type Command } from "./command.js";
import type { ExecResult } from "./result.js";
import type { ExecOptions, Session, SpawnOptions, StreamOptions } from "./session.js";
import { expand, type CallOptions, type Transport } from "./transport.js";
import { flags } from "./files.js";

interface SessionPath {
  sessionId: string;
}

/** The shells of a session. `main` exists from the start. */
export class Shells {
  readonly #transport: Transport;
  readonly #path: SessionPath;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = { sessionId };
  }

  list(options: CallOptions = {}): Promise<ShellView[]> {
    return this.#transport.json("listShells", { path: this.#path, ...options });
  }

  /** Opens a shell. `from` copies the directory, variables and functions of another one. */
  open(shell: OpenShellRequest = {}, options: CallOptions = {}): Promise<ShellView> {
    return this.#transport.json("openShell", { path: this.#path, body: shell, ...options });
  }

  /** Puts a new shell in the place of one. The running command ends as `lost`, queued ones as `never_ran`. */
  reset(name = "main", options: CallOptions = {}): Promise<ShellView> {
    return this.#transport.json("resetShell", { path: { ...this.#path, shell: name }, ...options });
  }

  async close(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.json("closeShell", { path: { ...this.#path, shell: name }, ...options });
  }

  /** Types at the terminal of a shell, for a command that runs with `streams: "tty"`. */
  async input(data: string | Uint8Array, options: CallOptions & { shell?: string } = {}): Promise<void> {
    const { shell, ...call } = options;
    await this.#transport.json("sendInput", { path: this.#path, body: { ...textOrBytes("data", data), ...flags({ shell }) }, ...call });
  }

  async resize(cols: number, rows: number, options: CallOptions & { shell?: string } = {}): Promise<void> {
    const { shell, ...call } = options;
    await this.#transport.json("resizeTerminal", { path: this.#path, body: { cols, rows, ...flags({ shell }) }, ...call });
  }
}

/** One shell of a session: what `session` does for `main`, for this shell. */
export class Shell {
  readonly name: string;
  readonly #session: Session;

  constructor(session: Session, name: string) {
    this.#session = session;
    this.name = name;
  }

  exec(cmd: string, options: Omit<ExecOptions, "shell"> = {}): Promise<ExecResult> {
    return this.#session.exec(cmd, { ...options, shell: this.name });
  }

  stream(cmd: string, options: Omit<StreamOptions, "shell"> = {}): Command {
    return this.#session.stream(cmd, { ...options, shell: this.name });
  }

  spawn(cmd: string, options: Omit<SpawnOptions, "shell"> = {}): Promise<Command> {
    return this.#session.spawn(cmd, { ...options, shell: this.name });
  }

  input(data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    return this.#session.shells.input(data, { ...options, shell: this.name });
  }

  signal(signal: string | number, options: CallOptions = {}): Promise<void> {
    return this.#session.signal(signal, { ...options, shell: this.name });
  }

  resize(cols: number, rows: number, options: CallOptions = {}): Promise<void> {
    return this.#session.shells.resize(cols, rows, { ...options, shell: this.name });
  }

  reset(options: CallOptions = {}): Promise<ShellView> {
    return this.#session.shells.reset(this.name, options);
  }

  close(options: CallOptions = {}): Promise<void> {
    return this.#session.shells.close(this.name, options);
  }
}

/** How long `ports.wait` waits unless the caller says otherwise. */
export const PORT_TIMEOUT_MS = 30_000;

/** Servers that programs in the sandbox run. */
export class Ports {
  readonly #transport: Transport;
  readonly #path: SessionPath;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = { sessionId };
  }

  /** The TCP sockets that listen in the sandbox. */
  async list(options: CallOptions = {}): Promise<PortView[]> {
    return (await this.#transport.json("listPorts", { path: this.#path, ...options })).ports;
  }

  /** Waits until something listens on a port. */
  async wait(port: number, options: CallOptions & { timeoutMs?: number } = {}): Promise<PortView> {
    const { timeoutMs = PORT_TIMEOUT_MS, ...call } = options;
    const deadline = Date.now() + timeoutMs;
    for (let attempt = 1; ; attempt++) {
      const found = (await this.list(call)).find((one) => one.port === port && one.reachable);
      if (found) return found;
      const left = deadline - Date.now();
      if (left <= 0) throw new RequestTimeout(`nothing listens on port ${port} of the sandbox after ${timeoutMs} ms; look at what the server printed`);
      await sleep(Math.min(left, backoff(Math.min(attempt, 3))), call.signal);
    }
  }

  /** A link to a port that needs no key, for a browser. It is good for `ttlSeconds`, an hour if not given. */
  url(port: number, options: CallOptions & { ttlSeconds?: number } = {}): Promise<PortUrlView> {
    const { ttlSeconds, ...call } = options;
    return this.#transport.json("createPortUrl", { path: { ...this.#path, port }, body: flags({ ttlSeconds }), ...call });
  }

  /** Takes back all links to a port. */
  async revoke(port: number, options: CallOptions = {}): Promise<void> {
    await this.#transport.json("deletePortUrls", { path: { ...this.#path, port }, ...options });
  }

  /** Sends an HTTP request to the server on a port. The answer is the server's own; if nothing listens, it has status 502. */
  fetch(port: number, path = "/", init: RequestInit = {}): Promise<Response> {
    const rest = path.startsWith("/") ? path.slice(1) : path;
    return this.#transport.fetchPath(`${expand(OPERATIONS.findPort[1], { ...this.#path, port })}/${rest}`, init);
  }

  /** A TCP connection to a port, as a Node stream. Not in browsers. */
  async connect(port: number, options: CallOptions = {}): Promise<import("node:stream").Duplex> {
    const { openTcp } = await import("#node");
    return openTcp(await this.#transport.target(), expand(OPERATIONS.connectPort[1], { ...this.#path, port }), options.signal);
  }

  /** Listens on a port of this machine and forwards its connections to a port of the sandbox. Not in browsers. */
  async forward(port: number, options: { localPort?: number; host?: string } = {}): Promise<import("./node/forward.js").Forward> {
    const { forward } = await import("#node");
    return forward(() => this.connect(port), options);
  }
}

/** What a session may reach, and what it tried to reach. */
export class SessionNetwork {
  readonly #transport: Transport;
  readonly #path: SessionPath;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = { sessionId };
  }

  get(options: CallOptions = {}): Promise<NetworkView> {
    return this.#transport.json("getNetwork", { path: this.#path, ...options });
  }

  /** Replaces the rules at once. Connections that are no longer allowed are cut. Without `inject`, the session keeps its injections. */
  set(network: NetworkSpec, options: CallOptions & { inject?: InjectionSpec[] } = {}): Promise<NetworkView> {
    const { inject, ...call } = options;
    return this.#transport.json("setNetwork", { path: this.#path, body: { network, ...flags({ inject }) }, ...call });
  }

  /** The last decisions, the oldest first; with `after`, those with a higher sequence. */
  async log(options: CallOptions & { after?: number } = {}): Promise<NetworkDecision[]> {
    const { after, ...call } = options;
    return (await this.#transport.json("getNetworkLog", { path: this.#path, query: flags({ after }), ...call })).decisions;
  }

  /** Decisions as they are made, until the session ends. A lost connection is made again, and continues after the last decision. */
  async *follow(options: { signal?: AbortSignal; after?: number } = {}): AsyncGenerator<NetworkDecision, void, undefined> {
    let { after } = options;
    const { signal } = options;
    for (let failures = 1; ; failures++) {
      try {
        const events = this.#transport.events("getNetworkLog", { path: this.#path, query: { follow: true, ...flags({ after }) }, signal, attempts: 1 });
        for await (const { event, data } of events) {
          if (event !== "decision") continue;
          const decision = fromWire(JSON.parse(data)) as NetworkDecision;
          failures = 0;
          after = decision.sequence;
          yield decision;
        }
        return;
      } catch (error) {
        const mayHelp = error instanceof ConnectionLost || (error instanceof ConnectionFailed && failures > 1);
        if (!mayHelp || failures >= RECONNECT_ATTEMPTS) throw error;
        // A new daemon counts from the beginning.
        if (error instanceof ConnectionFailed) after = undefined;
      }
      await sleep(backoff(Math.max(1, failures)), signal);
    }
  }
}

// The client of one daemon. It has no connection of its own: nothing has to be closed, except a daemon that `Cove.embedded` started.
import { Images, Keys, Pools, Secrets, Snapshots, Workspaces } from "./resources.js";
import { randomId } from "./bytes.js";
import { sleep, backoff } from "./deadline.js";
import { apiError, ConnectionLost } from "./errors.js";
import { flags } from "./files.js";
import type { CreateSessionRequest, DaemonHealth, ErrorBody, PackagesView, PullProgress, SessionStatus, SessionView } from "./generated.js";
import { fromWire } from "./names.js";
import { Session } from "./session.js";
import { Transport, type CallOptions, type Target } from "./transport.js";

export interface CoveOptions {
  /**
   * The daemon's address, such as http://127.0.0.1:8080. The default is COVE_URL, or a daemon that runs on this machine. In a browser it has
   * to be given, and may be a path of the page's own server, such as /cove.
   */
  url?: string;
  /**
   * A key of the daemon. The default is COVE_API_KEY, or the key in the data directory. A page in a browser should have none: the server that
   * the page came from adds it.
   */
  apiKey?: string;
  /** The data directory of a daemon on this machine. The default is COVE_DATA_DIR, or ~/.local/share/cove. */
  dataDir?: string;
  /** A fetch of your own, for a proxy or another transport. */
  fetch?: typeof globalThis.fetch;
  /** How long an ordinary request may take, in milliseconds. The default is 60,000. */
  requestTimeoutMs?: number;
  /** How often a request is sent at most, where repeating it is safe. The default is 4. */
  attempts?: number;
}

export interface EmbeddedOptions {
  /** Keep the daemon's data here. Without it, the daemon uses a directory of its own and removes it when it ends. */
  dataDir?: string;
  /** The program to start. The default is COVE_BIN, the package @cove/cli-linux-x64, or `cove` in PATH. */
  binary?: string;
  /** Variables of the daemon, in addition to those of this process. */
  env?: Record<string, string>;
  /** Where the daemon's log goes: to this process's standard error, or nowhere (the default). */
  log?: "inherit" | "ignore";
  signal?: AbortSignal;
}

/** What a session is created with beside its image. */
export interface SessionOptions extends Omit<CreateSessionRequest, "image">, CallOptions {
  image?: string;
  /** Called while the image is pulled. */
  onProgress?: (progress: PullProgress) => void;
  /** A key of your own for this create: a repeated one with the same options returns the same session. */
  idempotencyKey?: string;
}

/** How long a create waits for the head of its answer. A pull after that may take any time. */
export const CREATE_TIMEOUT_MS = 120_000;
/** How long an aborted create takes to clean up what it may have created. */
const CLEAN_UP_TIMEOUT_MS = 30_000;

export class Cove {
  readonly images: Images;
  readonly pools: Pools;
  readonly keys: Keys;
  readonly secrets: Secrets;
  readonly snapshots: Snapshots;
  readonly workspaces: Workspaces;
  readonly #transport: Transport;
  readonly #end: () => Promise<void>;

  constructor(options: CoveOptions = {}, end: () => Promise<void> = () => Promise.resolve()) {
    let target: Promise<Target> | undefined;
    const { url, apiKey } = options;
    const find = async (): Promise<Target> => {
      if (url !== undefined && apiKey !== undefined) return { url: url.replace(/\/+$/, ""), apiKey };
      const { findDaemon } = await import("#node");
      return findDaemon(options);
    };
    // A failure is not remembered: the daemon may be started meanwhile.
    const once = () =>
      (target ??= find().catch((error: unknown) => {
        target = undefined;
        throw error;
      }));
    const transport = (this.#transport = new Transport(once, options));
    this.#end = end;
    this.images = new Images(transport);
    this.pools = new Pools(transport);
    this.keys = new Keys(transport);
    this.secrets = new Secrets(transport);
    this.snapshots = new Snapshots(transport);
    this.workspaces = new Workspaces(transport);
  }

  /**
   * Starts a daemon of this process's own, which ends with it, whatever ends it: its sessions are destroyed, and its data is removed
   * unless `dataDir` is given. Use `await using`, or call `close`. Needs Node, Bun or Deno.
   */
  static async embedded(options: EmbeddedOptions = {}): Promise<Cove> {
    const { startDaemon } = await import("#node");
    const daemon = await startDaemon(options);
    return new Cove({ url: daemon.url, apiKey: daemon.apiKey }, daemon.stop);
  }

  /** The daemon's address, once it is found. */
  async url(): Promise<string> {
    return (await this.#transport.target()).url;
  }

  /**
   * Creates a session: `cove.session("python", { network: "packages" })`. Without an image it is the daemon's default. With `await using`
   * it is destroyed at the end of the block.
   */
  async session(image?: string | SessionOptions, options: SessionOptions = {}): Promise<Session> {
    const { signal, requestTimeoutMs, onProgress, idempotencyKey, ...request } = typeof image === "object" ? image : { ...options, ...flags({ image }) };
    const key = idempotencyKey ?? randomId("ts-");
    const call = { signal, requestTimeoutMs: requestTimeoutMs ?? CREATE_TIMEOUT_MS };
    try {
      return new Session(this.#transport, await this.#create(request, key, call, onProgress), true);
    } catch (error) {
      if (signal?.aborted && idempotencyKey === undefined) void this.#cleanUp(request, key);
      throw error;
    }
  }

  /** A session that exists, also one of another program. `await using` leaves it running. */
  async connect(id: string, options: CallOptions = {}): Promise<Session> {
    return new Session(this.#transport, await this.#transport.json("getSession", { path: { sessionId: id }, ...options }), false);
  }

  /** Sessions, the oldest first. Without `status`, all that are not over. */
  list(options: CallOptions & { status?: SessionStatus | readonly SessionStatus[]; labels?: Readonly<Record<string, string>>; name?: string } = {}): Promise<SessionView[]> {
    const { status, labels, name, ...call } = options;
    const label = labels && Object.entries(labels).map(([name, value]) => `${name}=${value}`);
    return this.#transport.json("listSessions", { query: flags({ status, label, name }), ...call });
  }

  /** Whether the daemon answers, and its version. Needs no key. */
  health(options: CallOptions = {}): Promise<DaemonHealth> {
    return this.#transport.json("getHealth", options);
  }

  /** Resolves if every runtime answers and the store can be written. Needs no key. */
  ready(options: CallOptions = {}): Promise<DaemonHealth> {
    return this.#transport.json("getReadiness", options);
  }

  /** What an operator watches, in the OpenMetrics format. For admins. */
  async metrics(options: CallOptions = {}): Promise<string> {
    return (await this.#transport.raw("getMetrics", options)).text();
  }

  /** The description of the daemon's API. */
  async openApi(options: CallOptions = {}): Promise<unknown> {
    return (await this.#transport.raw("getOpenApi", options)).json();
  }

  /** What the network `packages` allows. With `refresh`, the package managers are asked again. */
  packages(options: CallOptions & { refresh?: boolean } = {}): Promise<PackagesView> {
    const { refresh = false, ...call } = options;
    return this.#transport.json(refresh ? "detectPackageRegistries" : "listPackageRegistries", { requestTimeoutMs: CREATE_TIMEOUT_MS, ...call });
  }

  /** Ends a daemon that `Cove.embedded` started, and waits for it. Does nothing for another one. */
  close(): Promise<void> {
    return this.#end();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Creates with a stream of events, so that a long pull cannot be mistaken for a daemon that does not answer. */
  async #create(body: CreateSessionRequest, key: string, call: CallOptions, onProgress?: (progress: PullProgress) => void): Promise<SessionView> {
    for (let attempt = 1; ; attempt++) {
      try {
        const events = this.#transport.events("createSession", { body, headers: { "idempotency-key": key }, ...call });
        for await (const { event, data } of events) {
          const value = fromWire(JSON.parse(data));
          if (event === "done") return value as SessionView;
          if (event === "error") throw errorOf(value as ErrorBody);
          if (event === "progress") onProgress?.(value as PullProgress);
        }
        throw new ConnectionLost("the daemon's answer ended before the session was there");
      } catch (error) {
        // The key makes a second create safe.
        if (!(error instanceof ConnectionLost) || attempt >= this.#transport.attempts) throw error;
      }
      await sleep(backoff(attempt), call.signal);
    }
  }

  /** Destroys what an aborted create may have made. */
  async #cleanUp(body: CreateSessionRequest, key: string): Promise<void> {
    try {
      const deadline = AbortSignal.timeout(CLEAN_UP_TIMEOUT_MS);
      const { id } = await this.#create(body, key, { signal: deadline });
      await this.#transport.json("destroySession", { path: { sessionId: id }, signal: deadline });
    } catch {
      // The session ends by its time limit.
    }
  }
}

export function errorOf(body: ErrorBody): Error {
  return apiError({ code: body.errorCode, message: body.message, status: 0, details: body.details as Record<string, unknown> | undefined });
}

// Tells what changes below a directory, until the caller leaves the loop or the directory is gone.
//
//   connect ──ready──▶ changes ──ended──▶ over
//      ▲                  │ the connection is lost, or the daemon is restarted
//      └──────────────────┘ then the first thing that is told is `overflow`: nobody knows what changed meanwhile
import { RECONNECT_ATTEMPTS } from "./command.js";
import { backoff, sleep } from "./deadline.js";
import { apiError, ConnectionFailed, ConnectionLost } from "./errors.js";
import type { WatchEnd, WatchFrame } from "./generated.js";
import { fromWire } from "./names.js";
import type { Transport } from "./transport.js";

/** What happened to a file or directory that is watched. */
export interface FileChangeEvent {
  /** `overflow` means that changes were lost, or that the connection was: list `path` again. What changes afterwards is told. */
  kind: "created" | "modified" | "deleted" | "moved" | "overflow";
  /** The path in the form that other calls take: it begins with the path that is watched. */
  path: string;
  /** The exact bytes of the path in base64, present only if they are not UTF-8. */
  pathBase64?: string;
  /** The path that it had before it was moved. */
  from?: string;
  isDir: boolean;
}

export interface WatchOptions {
  /** Watch everything below the directory too. */
  recursive?: boolean;
  /** Ends the watch. Its reason is thrown. */
  signal?: AbortSignal;
}

/** A connection that held this long was good, also if nothing changed. */
const GOOD_CONNECTION_MS = 10_000;

/** What changes below a directory. It is an async iterator; leaving the loop ends the watch. */
export class Watch implements AsyncIterableIterator<FileChangeEvent>, AsyncDisposable {
  readonly #transport: Transport;
  readonly #sessionId: string;
  readonly #path: string;
  readonly #options: WatchOptions;
  readonly #changes: AsyncGenerator<FileChangeEvent, void, undefined>;
  #ready: Promise<IteratorResult<FileChangeEvent, void>> | undefined;
  #isReady = false;
  #truncated = false;
  #ended: WatchEnd | undefined;

  constructor(transport: Transport, sessionId: string, path: string, options: WatchOptions) {
    this.#transport = transport;
    this.#sessionId = sessionId;
    this.#path = path;
    this.#options = options;
    this.#changes = this.#follow();
  }

  /** Whether a directory is not watched, because it is too deep or the sandbox user may not read it. */
  get truncated(): boolean {
    return this.#truncated;
  }

  /** What became of the directory, once the iteration has ended by itself. */
  get ended(): WatchEnd | undefined {
    return this.#ended;
  }

  /** Resolves when everything is watched: what changes after this is told. Returns the watch itself. */
  async ready(): Promise<this> {
    // The generator says so by an item of its own, which nobody else sees.
    this.#ready ??= this.#changes.next();
    await this.#ready;
    return this;
  }

  async next(): Promise<IteratorResult<FileChangeEvent, void>> {
    await this.ready();
    return this.#changes.next();
  }

  async return(): Promise<IteratorResult<FileChangeEvent, void>> {
    return this.#changes.return();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The first item only says that everything is watched. */
  async *#follow(): AsyncGenerator<FileChangeEvent, void, undefined> {
    const { recursive, signal } = this.#options;
    const overflow: FileChangeEvent = { kind: "overflow", path: this.#path, isDir: true };
    for (let failures = 1; ; failures++) {
      const since = Date.now();
      try {
        const query = { path: this.#path, ...(recursive === undefined ? {} : { recursive }) };
        const events = this.#transport.events("watchFiles", { path: { sessionId: this.#sessionId }, query, signal, ...(this.#isReady ? { attempts: 1 } : {}) });
        for await (const { event, data } of events) {
          const frame = fromWire({ event, ...(JSON.parse(data) as object) }) as WatchFrame;
          switch (frame.event) {
            case "ready":
              this.#truncated = frame.truncated;
              this.#isReady = true;
              // The first time, `ready` takes this. Later it is true: what changed while there was no connection is lost.
              yield overflow;
              break;
            case "change": {
              const { kind, path, pathBase64, from, isDir } = frame;
              failures = 0;
              yield { kind, path, isDir, ...(pathBase64 === undefined ? {} : { pathBase64 }), ...(from === undefined ? {} : { from }) };
              break;
            }
            case "overflow":
              yield overflow;
              break;
            case "ended":
              this.#ended = frame.reason;
              return;
            case "error":
              throw apiError({ code: frame.errorCode, message: frame.message, status: 0, details: frame.details as Record<string, unknown> | undefined });
          }
        }
        throw new ConnectionLost("the watch was cut");
      } catch (error) {
        const mayHelp = this.#isReady && (error instanceof ConnectionLost || error instanceof ConnectionFailed);
        if (Date.now() - since > GOOD_CONNECTION_MS) failures = 0;
        if (!mayHelp || failures >= RECONNECT_ATTEMPTS) throw error;
      }
      await sleep(backoff(Math.max(1, failures)), signal);
    }
  }
}

// One command or run: starts it, follows its output, and tells how it ended.
//
// Following survives lost connections and restarts of the daemon. The command has an id that we choose, and each byte of output has an
// offset, so a new connection continues at the first byte that has not come. The states of a start:
//
//   unsent ──POST──▶ begun                      the first event came
//     ▲        └──▶ unknown ──GET──▶ begun      the connection broke: ask for the command by its id
//     └───────────────┘ EXEC_NOT_FOUND          the daemon never got it: sending it again is safe, because an id is taken only once
import { decode, encode, fromBase64 } from "./bytes.js";
import { backoff, sleep } from "./deadline.js";
import { apiError, CommandFailed, CommandTimedOut, Conflict, ConnectionFailed, ConnectionLost, CoveError, ExecNotFound, LimitReached, ProtocolError } from "./errors.js";
import type { ApiExecRequest, ApiRunRequest, AttachedFrame, ChunkEvent, ExecReply, StreamMode } from "./generated.js";
import { fromWire } from "./names.js";
import { MAX_OUTPUT_BYTES, ResultBuilder, type ExecOutcome, type ExecResult, type OutputChunk } from "./result.js";
import type { ServerEvent } from "./sse.js";
import type { CallOptions, Transport } from "./transport.js";

/** How often a stream is connected again without a new byte: together with the pauses, about half a minute. */
export const RECONNECT_ATTEMPTS = 10;
/** A connection that held this long was good, also if the command was silent. */
const GOOD_CONNECTION_MS = 10_000;
/** How long an aborted call waits for the daemon to take the signal for its command. */
export const ABORT_TIMEOUT_MS = 5_000;
/** How much output an error of a streamed command repeats. */
const ERROR_OUTPUT_BYTES = 64 << 10;

/** What happens to the command if the caller's AbortSignal aborts: it gets SIGINT as by Ctrl-C, or SIGKILL, or it keeps running. */
export type OnAbort = "interrupt" | "kill" | "detach";

/** Something that happens to a command beside its output. */
export type CommandEvent = Extract<AttachedFrame, { event: "started" | "queued" | "running" | "awaiting_input" }>;

export interface FollowOptions {
  signal?: AbortSignal | undefined;
  /** Throw CommandFailed if the command does not exit with 0. */
  check?: boolean | undefined;
  /** Called for what happens beside the output: the command was queued, it runs, it waits for input. */
  onEvent?: ((event: CommandEvent) => void) | undefined;
}

export interface WaitOptions extends FollowOptions {
  /** How many bytes of output the result holds: the first and the last half of that. */
  maxOutputBytes?: number | undefined;
  /** Called with each piece of output as it comes. */
  onOutput?: ((chunk: OutputChunk) => void) | undefined;
}

/** How to start a command that was not sent yet. */
export type Start = { operation: "execStream"; body: ApiExecRequest } | { operation: "runStream"; body: ApiRunRequest };

export interface CommandSettings {
  start?: Start | undefined;
  streams?: StreamMode | undefined;
  rawOutput?: boolean | undefined;
  onAbort?: OnAbort | undefined;
  /** The id was made here, so nobody else can have used it. */
  isOwnId?: boolean;
  /** A run belongs to no shell, so it has no directory of one. */
  isRun?: boolean;
  defaults?: WaitOptions;
  /** Called once, when the command is known to have ended. */
  onEnd?: (() => Promise<void>) | undefined;
}

/** A chunk with its exact bytes. */
type ChunkFrame = ChunkEvent & { event: "chunk"; bytes: Uint8Array };
type Frame = Exclude<AttachedFrame, { event: "chunk" }> | ChunkFrame;

/** The offset of the next byte: what came before it is known. */
class Cursor {
  next: number;
  missing = 0;

  constructor(from: number) {
    this.next = from;
  }

  /** The part of a chunk that is new; undefined if there is none. */
  take(event: ChunkFrame): OutputChunk | undefined {
    const whole = event.bytes;
    const known = Math.max(0, this.next - event.offset);
    if (known >= whole.length) return undefined;
    const missingBefore = this.missing + Math.max(0, event.offset - this.next);
    const bytes = known === 0 ? whole : whole.subarray(known);
    const text = known === 0 ? event.chunk : decode(bytes);
    const offset = event.offset + known;
    this.next = offset + bytes.length;
    this.missing = 0;
    return { text, bytes, stream: event.stream, offset, timestamp: event.timestamp, missingBefore };
  }

  skip(offset: number, bytes: number): void {
    const end = offset + bytes;
    this.missing += Math.max(0, end - this.next);
    this.next = Math.max(this.next, end);
  }
}

/** A command in a shell, or a run. Iterating over it gives its output. */
export class Command implements AsyncIterable<OutputChunk> {
  /** The id by which the command can be found again: `session.command(execId)`. */
  readonly execId: string;
  readonly #transport: Transport;
  readonly #sessionId: string;
  readonly #settings: CommandSettings;
  #state: "unsent" | "unknown" | "begun";
  /** Whether the request that starts the command was sent at least once. */
  #sent = false;
  /** The conflict that a start met. It is about the id, or about the session: asking for the command tells. */
  #conflict: Conflict | undefined;
  #outcome: ExecOutcome | undefined;

  constructor(transport: Transport, sessionId: string, execId: string, settings: CommandSettings = {}) {
    this.#transport = transport;
    this.#sessionId = sessionId;
    this.execId = execId;
    this.#settings = settings;
    this.#state = settings.start ? "unsent" : "begun";
  }

  /** How it ended, once that is known here: after an iteration to the end, `wait` or `poll`. */
  get outcome(): ExecOutcome | undefined {
    return this.#outcome;
  }

  [Symbol.asyncIterator](): AsyncGenerator<OutputChunk, void, undefined> {
    return this.follow();
  }

  /**
   * The output from a byte on, until the command ends. Lost connections are made again; every byte comes once. Leaving the loop early
   * leaves the command running.
   */
  async *follow(options: FollowOptions & { from?: number } = {}): AsyncGenerator<OutputChunk, void, undefined> {
    const { check, signal, from, onEvent } = { ...this.#settings.defaults, from: 0, ...options };
    // Only an error needs this output.
    const kept = check ? this.#builder(ERROR_OUTPUT_BYTES) : undefined;
    for await (const item of this.#items(from, signal, onEvent)) {
      if (typeof item === "number") kept?.skip(item);
      else {
        kept?.push(item);
        yield item;
      }
    }
    if (kept && this.#outcome) checked(kept.finish(this.#outcome));
  }

  /** Waits for the end, and returns how it ended with the output. Starts the command if that has not happened. */
  async wait(options: WaitOptions = {}): Promise<ExecResult> {
    const { check, signal, onEvent, onOutput, maxOutputBytes } = { ...this.#settings.defaults, ...options };
    const builder = this.#builder(maxOutputBytes ?? MAX_OUTPUT_BYTES);
    for await (const item of this.#items(0, signal, onEvent)) {
      if (typeof item === "number") builder.skip(item);
      else {
        builder.push(item);
        onOutput?.(item);
      }
    }
    if (!this.#outcome) throw new ProtocolError("the command has no outcome");
    const result = builder.finish(this.#outcome);
    return check ? checked(result) : result;
  }

  /** The output so far, as far as the session still has it, without waiting. */
  async logs(options: CallOptions & { maxOutputBytes?: number } = {}): Promise<string> {
    const builder = this.#builder(options.maxOutputBytes ?? MAX_OUTPUT_BYTES);
    const cursor = new Cursor(0);
    for await (const event of this.#ask(0, false, options)) {
      if (event.event === "gap") builder.skip(event.bytes);
      const chunk = event.event === "chunk" ? cursor.take(event) : undefined;
      if (chunk) builder.push(chunk);
      if (event.event === "done") await this.#ended(outcomeOf(event));
    }
    const unknown: ExecOutcome = { execId: this.execId, kind: "lost", exitCode: 0, outputBytes: 0, timedOut: false, shellRestarted: false, oomKilled: false, awaitingInput: false, durationMs: 0, networkDenied: [] };
    return builder.finish(this.#outcome ?? unknown).output;
  }

  /** How it ended, or undefined while it runs. Does not wait. */
  async poll(options: CallOptions = {}): Promise<ExecOutcome | undefined> {
    if (this.#outcome) return this.#outcome;
    for await (const event of this.#ask(Number.MAX_SAFE_INTEGER, false, options)) {
      if (event.event === "done") await this.#ended(outcomeOf(event));
    }
    return this.#outcome;
  }

  /** Sends a signal, such as `INT` or `TERM`. A command that waits in the queue is taken out of it. */
  async signal(signal: string | number, options: CallOptions = {}): Promise<void> {
    await this.#transport.json("sendSignal", { path: this.#path, body: { signal: String(signal), execId: this.execId }, ...options });
  }

  /** Ends the command by SIGKILL. */
  async kill(options: CallOptions = {}): Promise<void> {
    await this.signal("KILL", options);
  }

  /**
   * Writes to the open standard input of a run that was started with `stdinOpen`. Resolves when the program's pipe has taken all of it.
   * A broken connection is not repeated: nobody knows how much of it the program has read.
   */
  async write(data: string | Uint8Array | ReadableStream<Uint8Array>, options: CallOptions & { close?: boolean } = {}): Promise<number> {
    const { close, ...call } = options;
    const body = typeof data === "string" ? encode(data) : data;
    const path = { ...this.#path, execId: this.execId };
    const answer = await this.#transport.json("writeStdin", { path, query: close === undefined ? {} : { close }, raw: { body, type: "application/octet-stream" }, ...call });
    return answer.bytes;
  }

  /** Ends the standard input of a run that was started with `stdinOpen`. */
  async closeStdin(options: CallOptions = {}): Promise<void> {
    await this.#transport.json("closeStdin", { path: { ...this.#path, execId: this.execId }, ...options });
  }

  get #path(): { sessionId: string } {
    return { sessionId: this.#sessionId };
  }

  #builder(limit: number): ResultBuilder {
    return new ResultBuilder(this.#settings.streams ?? "merged", limit, this.#settings.rawOutput ?? false);
  }

  /** The output until the end, every byte once. A number stands for bytes at the end that are no longer kept. */
  async *#items(from: number, signal: AbortSignal | undefined, onEvent: FollowOptions["onEvent"]): AsyncGenerator<OutputChunk | number, void, undefined> {
    const cursor = new Cursor(from);
    for (let failures = 1; ; failures++) {
      let cause: CoveError;
      const [before, since] = [cursor.next, Date.now()];
      try {
        for await (const event of this.#connect(cursor.next, signal)) {
          this.#state = "begun";
          switch (event.event) {
            case "chunk": {
              const chunk = cursor.take(event);
              if (chunk) yield chunk;
              break;
            }
            case "gap":
              cursor.skip(event.offset, event.bytes);
              break;
            case "done":
              if (cursor.missing > 0) yield cursor.missing;
              await this.#ended(outcomeOf(event));
              return;
            case "error":
              throw apiError({ code: event.errorCode, message: event.error, status: 0, details: event.details as Record<string, unknown> | undefined });
            default:
              onEvent?.(event);
          }
        }
        cause = new ConnectionLost("the stream ended before the command did");
      } catch (error) {
        if (signal?.aborted) {
          await this.#aborted();
          throw signal.reason;
        }
        cause = this.#retryable(error);
      }
      if (cursor.next > before || Date.now() - since > GOOD_CONNECTION_MS) failures = 1;
      if (failures >= RECONNECT_ATTEMPTS) throw this.#givenUp(cause, cursor.next);
      await sleep(backoff(failures), signal).catch(async (error: unknown) => {
        await this.#aborted();
        throw error;
      });
    }
  }

  /** The error, if another try may help; otherwise throws it. Decides what is known about the start. */
  #retryable(error: unknown): CoveError {
    if (this.#state === "unsent") {
      if (!(error instanceof ConnectionLost)) throw error;
      this.#state = "unknown";
      return error;
    }
    if (this.#state === "unknown" && error instanceof ExecNotFound) {
      if (this.#conflict) throw this.#conflict;
      this.#state = "unsent";
      return error;
    }
    if (this.#state === "unknown" && error instanceof Conflict && error === this.#conflict) return error;
    if (error instanceof ConnectionLost || error instanceof ConnectionFailed) return error;
    if (error instanceof LimitReached && error.retryAfterMs !== undefined) return error;
    throw error;
  }

  #givenUp(cause: CoveError, next: number): CoveError {
    const how = `session.command(${JSON.stringify(this.execId)}).follow({ from: ${next} }) continues where this stopped`;
    return new ConnectionLost(`${cause.message}; it could not be made again in ${RECONNECT_ATTEMPTS} tries. The command may still run: ${how}`, { cause });
  }

  /** One connection: the request that starts the command, or one that asks for its output. */
  async *#connect(from: number, signal: AbortSignal | undefined): AsyncGenerator<Frame, void, undefined> {
    const { start } = this.#settings;
    if (this.#state !== "unsent" || !start) {
      yield* this.#ask(from, true, { signal });
      return;
    }
    const wasSent = this.#sent;
    this.#sent = true;
    try {
      yield* frames(this.#transport.events(start.operation, { path: this.#path, body: start.body, signal }));
    } catch (error) {
      // An earlier request arrived after all: one of ours, or one that the runtime sent again by itself, as browsers do.
      if ((wasSent || this.#settings.isOwnId) && error instanceof Conflict) {
        this.#state = "unknown";
        this.#conflict = error;
      }
      throw error;
    }
  }

  #ask(from: number, follow: boolean, options: CallOptions): AsyncGenerator<Frame, void, undefined> {
    const path = { ...this.#path, execId: this.execId };
    return frames(this.#transport.events("followExec", { path, query: { from, follow }, attempts: follow ? 1 : this.#transport.attempts, ...options }));
  }

  async #ended(outcome: ExecOutcome): Promise<void> {
    if (this.#outcome) return;
    if (this.#settings.isRun) delete outcome.cwd;
    this.#outcome = outcome;
    await this.#settings.onEnd?.();
  }

  /** The caller gave up: the command is ended too, unless it was meant to go on. */
  async #aborted(): Promise<void> {
    const { onAbort = "detach", start } = this.#settings;
    if (onAbort === "detach" || (start && !this.#sent) || this.#outcome) return;
    // The command may have ended, or never have begun.
    await this.signal(onAbort === "kill" ? "KILL" : "INT", { requestTimeoutMs: ABORT_TIMEOUT_MS }).catch(() => undefined);
  }
}

export function checked(result: ExecResult): ExecResult {
  if (!result.ok) throw result.timedOut ? new CommandTimedOut(result) : new CommandFailed(result);
  return result;
}

/** The result of a plain reply. */
export function replied(reply: ExecReply): ExecResult {
  const bytes = reply.outputBase64 === undefined ? encode(reply.output) : fromBase64(reply.outputBase64);
  return {
    ...outcomeOf(reply),
    ok: reply.kind === "exited" && reply.exitCode === 0,
    output: reply.output,
    bytes,
    truncated: reply.truncated,
    omittedBytes: reply.omittedBytes ?? 0,
    ...(reply.compact === undefined ? {} : { compact: reply.compact }),
  };
}

const KNOWN_EVENTS: ReadonlySet<string> = new Set<AttachedFrame["event"]>(["started", "queued", "running", "chunk", "gap", "awaiting_input", "done", "error"]);

async function* frames(events: AsyncGenerator<ServerEvent, void, undefined>): AsyncGenerator<Frame, void, undefined> {
  for await (const { event, data, id } of events) {
    // A later daemon may have events that this SDK does not know.
    if (!KNOWN_EVENTS.has(event)) continue;
    const frame = { event, ...(fromWire(JSON.parse(data)) as object) } as AttachedFrame;
    yield frame.event === "chunk" ? withBytes(frame, id) : frame;
  }
}

/** The id of a chunk is the offset after it. If that does not fit, bytes would be lost or doubled. */
function withBytes(chunk: ChunkEvent & { event: "chunk" }, id: string | undefined): ChunkFrame {
  const bytes = chunk.chunkBase64 === undefined ? encode(chunk.chunk) : fromBase64(chunk.chunkBase64);
  if (id !== undefined && chunk.offset + bytes.length !== Number(id)) {
    throw new ProtocolError(`a chunk at ${chunk.offset} has ${bytes.length} bytes and ends at ${id}`);
  }
  return { ...chunk, bytes };
}

function outcomeOf(done: Partial<ExecOutcome> & { execId: string; kind: ExecOutcome["kind"]; exitCode: number }): ExecOutcome {
  const outcome: ExecOutcome = {
    execId: done.execId,
    kind: done.kind,
    exitCode: done.exitCode,
    outputBytes: done.outputBytes ?? 0,
    timedOut: done.timedOut ?? false,
    shellRestarted: done.shellRestarted ?? false,
    oomKilled: done.oomKilled ?? false,
    awaitingInput: done.awaitingInput ?? false,
    durationMs: done.durationMs ?? 0,
    networkDenied: done.networkDenied ?? [],
  };
  if (done.signal !== undefined) outcome.signal = done.signal;
  if (done.cwd !== undefined) outcome.cwd = done.cwd;
  if (done.reason !== undefined) outcome.reason = done.reason;
  return outcome;
}

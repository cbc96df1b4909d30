// Sends requests to the daemon by fetch, with the key, a time limit, and retries where they are safe.
//
// A request is repeated after a broken connection only if the daemon does the same for two of them as for one: reads, writes of a whole
// value, and a create with an idempotency key. A request that never reached the daemon, or that it refused for the moment (429 with
// Retry-After), is repeated whatever it is. Commands are repeated by their exec id, in command.ts.
import { backoff, Deadline, sleep } from "./deadline.js";
import { apiError, ConnectionFailed, ConnectionLost, CoveError, LimitReached, ProtocolError, RequestTimeout } from "./errors.js";
import { OPERATIONS, type Operations } from "./generated.js";
import { fromWire, toSnake, toWire } from "./names.js";
import { EventParser, type ServerEvent } from "./sse.js";

export type OperationId = keyof Operations;

/** Where a daemon is, and the key that it takes. A page in a browser has no key if the server that it came from adds one. */
export interface Target {
  url: string;
  apiKey: string | undefined;
}

const authorization = (apiKey: string | undefined): Record<string, string> => (apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` });

/** What every call takes. */
export interface CallOptions {
  /** Ends the call. Its reason is thrown. */
  signal?: AbortSignal | undefined;
  /** How long to wait for the answer. The default is `requestTimeoutMs` of the client. */
  requestTimeoutMs?: number | undefined;
}

type Body = string | Uint8Array | Blob | FormData | ReadableStream<Uint8Array>;

export interface CallArgs<K extends OperationId> extends CallOptions {
  path?: Operations[K]["path"];
  query?: Operations[K]["query"];
  body?: Operations[K]["body"];
  /** A body that is not JSON. */
  raw?: { body: Body; type?: string };
  headers?: Record<string, string>;
  /** The answer may take any time: the limit is for its head alone. */
  isStream?: boolean;
  /** The head of the answer may take longer than runtimes usually wait for it. */
  isSlow?: boolean;
  /** How often the request is sent at most, if not as often as usual. */
  attempts?: number;
}

export interface TransportOptions {
  fetch?: typeof globalThis.fetch | undefined;
  requestTimeoutMs?: number | undefined;
  attempts?: number | undefined;
}

/** How long an ordinary request may take. */
export const REQUEST_TIMEOUT_MS = 60_000;
/** How often a request is sent at most, if repeating it is safe. */
export const REQUEST_ATTEMPTS = 4;
/** A longer `Retry-After` is left to the caller. */
export const MAX_RETRY_AFTER_MS = 5_000;
/** A stream in which nothing comes for this long is broken: the daemon sends a keep-alive every 15 seconds. */
export const STREAM_SILENCE_MS = 45_000;
/** How much of an answer that is not JSON is shown in an error. */
const SHOWN_ANSWER = 200;

/** Operations that are safe to repeat although their method alone does not say so. */
const REPEATABLE: ReadonlySet<OperationId> = new Set<OperationId>(["destroySession", "resumeSession", "resizeTerminal", "writeFileFromJson"]);

export class Transport {
  readonly #target: () => Promise<Target>;
  readonly #fetch: typeof globalThis.fetch;
  readonly #isOwnFetch: boolean;
  readonly #requestTimeoutMs: number;
  readonly attempts: number;

  constructor(target: () => Promise<Target>, options: TransportOptions = {}) {
    this.#target = target;
    // A fetch that is called as a method of something else is refused by browsers.
    const given = options.fetch;
    this.#isOwnFetch = given === undefined;
    this.#fetch = given ?? ((input, init) => globalThis.fetch(input, init));
    this.#requestTimeoutMs = options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS;
    this.attempts = options.attempts ?? REQUEST_ATTEMPTS;
  }

  target(): Promise<Target> {
    return this.#target();
  }

  /** Calls an operation whose answer is JSON. */
  async json<K extends OperationId>(id: K, args: CallArgs<K> = {}): Promise<Operations[K]["answer"]> {
    const answer = await this.#repeat(id, args, async (response) => {
      const text = await response.text();
      try {
        return { value: JSON.parse(text) as unknown };
      } catch {
        throw new ProtocolError(`the daemon's answer to ${id} is not JSON: ${text.slice(0, SHOWN_ANSWER)}`);
      }
    });
    return fromWire(answer.value);
  }

  /** Calls an operation and returns its answer, once its head is there. The caller reads or cancels the body. */
  raw<K extends OperationId>(id: K, args: CallArgs<K> = {}): Promise<Response> {
    return this.#repeat(id, { ...args, isStream: true }, (response) => Promise.resolve(response));
  }

  /** The events of an answer. Ends without an error if the connection does; a broken one throws ConnectionLost. */
  async *events<K extends OperationId>(id: K, args: CallArgs<K> = {}): AsyncGenerator<ServerEvent, void, undefined> {
    const deadline = new Deadline(args.signal, undefined);
    const reading: Reading = { isComplete: false };
    try {
      const headers = { ...args.headers, accept: "text/event-stream" };
      const response = await this.raw(id, { ...args, headers, signal: deadline.signal });
      if (!response.body) throw new ProtocolError(`the daemon's answer to ${id} has no body`);
      reading.reader = response.body.getReader();
      yield* readEvents(reading.reader, reading, deadline);
    } catch (error) {
      args.signal?.throwIfAborted();
      throw error;
    } finally {
      // A connection whose answer was read to its end is used again. One that the caller leaves earlier is closed.
      if (reading.isComplete && reading.reader) void drain(reading.reader, deadline);
      else deadline.abort();
    }
  }

  /** A request to any path below the daemon's address, without retries: for what a server in a sandbox answers. */
  async fetchPath(path: string, init: RequestInit): Promise<Response> {
    const { url, apiKey } = await this.#target();
    const headers = new Headers(init.headers);
    for (const [name, value] of Object.entries(authorization(apiKey))) headers.set(name, value);
    try {
      return await this.#fetch(`${url}${path}`, { redirect: "manual", ...init, headers });
    } catch (error) {
      init.signal?.throwIfAborted();
      throw broken(error, url);
    }
  }

  async #repeat<K extends OperationId, T>(id: K, args: CallArgs<K>, read: (response: Response) => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      let pause = backoff(attempt);
      try {
        return await this.#once(id, args, read);
      } catch (error) {
        if (attempt >= (args.attempts ?? this.attempts) || args.raw?.body instanceof ReadableStream) throw error;
        if (error instanceof LimitReached && error.retryAfterMs !== undefined && error.retryAfterMs <= MAX_RETRY_AFTER_MS) {
          pause = Math.max(pause, error.retryAfterMs);
        } else if (!(error instanceof ConnectionFailed) && !(error instanceof ConnectionLost && isRepeatable(id, args.headers))) {
          throw error;
        }
      }
      await sleep(pause, args.signal);
    }
  }

  async #once<K extends OperationId, T>(id: K, args: CallArgs<K>, read: (response: Response) => Promise<T>): Promise<T> {
    const { url, apiKey } = await this.#target();
    const [method, template] = OPERATIONS[id];
    const limit = args.requestTimeoutMs ?? this.#requestTimeoutMs;
    const deadline = new Deadline(args.signal, limit);
    const headers: Record<string, string> = { ...authorization(apiKey), ...args.headers };
    const init: RequestInit & { duplex?: "half" } = { method, headers, signal: deadline.signal, redirect: "error" };
    if (args.raw) {
      if (args.raw.type !== undefined) headers["content-type"] = args.raw.type;
      const body = args.raw.body instanceof ReadableStream ? await (await import("#node")).requestBody(args.raw.body) : args.raw.body;
      init.body = body as BodyInit;
      if (body instanceof ReadableStream) init.duplex = "half";
    } else if (args.body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(toWire(args.body));
    }
    if (args.isSlow && this.#isOwnFetch) Object.assign(init, (await import("#node")).patience());
    try {
      const response = await this.#fetch(`${url}${expand(template, args.path ?? {})}${queryText(args.query ?? {})}`, init);
      if (!response.ok) throw await refused(response, url);
      return await read(response);
    } catch (error) {
      args.signal?.throwIfAborted();
      if (deadline.isOver) throw new RequestTimeout(`no answer to ${id} from ${url} within ${limit} ms; give a longer requestTimeoutMs if it needs more`);
      throw broken(error, url);
    } finally {
      // The caller's own signal still ends an answer that is read later; the time limit does not.
      if (args.isStream) deadline.restart(undefined);
      else deadline.end();
    }
  }
}

function isRepeatable(id: OperationId, headers: Record<string, string> | undefined): boolean {
  const [method] = OPERATIONS[id];
  return method === "GET" || method === "PUT" || REPEATABLE.has(id) || headers?.["idempotency-key"] !== undefined;
}

interface Reading {
  reader?: ReadableStreamDefaultReader<Uint8Array>;
  /** Whether the last event has come. */
  isComplete: boolean;
}

/** The names of last events. */
const LAST: ReadonlySet<string> = new Set(["done", "error"]);
/** How long the end of an answer may take after its last event. */
const DRAIN_TIMEOUT_MS = 1_000;

async function* readEvents(reader: ReadableStreamDefaultReader<Uint8Array>, reading: Reading, deadline: Deadline): AsyncGenerator<ServerEvent, void, undefined> {
  const parser = new EventParser();
  for (;;) {
    deadline.restart(STREAM_SILENCE_MS);
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      const why = deadline.isOver ? `nothing came for ${STREAM_SILENCE_MS / 1000} s` : reasonOf(error);
      throw new ConnectionLost(`the connection to the daemon broke: ${why}`, { cause: error });
    } finally {
      // The caller may take any time with what came.
      deadline.restart(undefined);
    }
    if (piece.done) return;
    for (const event of parser.push(piece.value)) {
      reading.isComplete = LAST.has(event.event);
      yield event;
    }
  }
}

async function drain(reader: ReadableStreamDefaultReader<Uint8Array>, deadline: Deadline): Promise<void> {
  deadline.restart(DRAIN_TIMEOUT_MS);
  try {
    while (!(await reader.read()).done);
    deadline.end();
  } catch {
    // Everything that matters has come.
  }
}

/** A path with its parameters. */
export function expand(template: string, parameters: Readonly<Record<string, string | number>>): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = String(parameters[name]);
    if (value === "" || value === "." || value === "..") throw new ProtocolError(`${JSON.stringify(value)} cannot be a part of a path (${name})`);
    // The path of a file keeps its slashes.
    return name === "path" ? value : encodeURIComponent(value);
  });
}

type QueryValue = string | number | boolean | undefined | readonly (string | number)[];

export function queryText(query: Readonly<Record<string, QueryValue>>): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    const all = Array.isArray(value) ? (value as readonly (string | number)[]) : [value as string | number | boolean];
    for (const one of all) parameters.append(toSnake(name), one === true ? "1" : one === false ? "0" : String(one));
  }
  const text = parameters.toString();
  return text && `?${text}`;
}

/** The error that an answer says. */
async function refused(response: Response, url: string): Promise<Error> {
  // A connection that breaks here is like one that breaks before the answer.
  const text = await response.text();
  const requestId = response.headers.get("x-request-id") ?? undefined;
  const seconds = Number(response.headers.get("retry-after") ?? NaN);
  const retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : undefined;
  try {
    const body = JSON.parse(text) as { error_code?: unknown; message?: unknown; details?: Record<string, unknown> };
    if (typeof body.error_code === "string" && typeof body.message === "string") {
      return apiError({ code: body.error_code, message: body.message, details: body.details, status: response.status, requestId, retryAfterMs });
    }
  } catch {
    // Something between us and the daemon answered.
  }
  const shown = text.slice(0, SHOWN_ANSWER);
  return new ProtocolError(`status ${response.status} from ${url}, which is no answer of a Cove daemon; check the address${shown && `: ${shown}`}`);
}

/** Codes of a connection that was never made, so that nothing was sent. */
const NEVER_CONNECTED = new Set(["ECONNREFUSED", "ConnectionRefused", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT", "FailedToOpenSocket"]);
const MAX_CAUSES = 8;

function causes(error: unknown): unknown[] {
  const all: unknown[] = [];
  let next: unknown = error;
  while (next !== undefined && next !== null && all.length < MAX_CAUSES) {
    all.push(next);
    const { cause, errors } = next as { cause?: unknown; errors?: unknown[] };
    next = cause ?? errors?.[0];
  }
  return all;
}

/** The deepest message: fetch itself says only that it failed. */
function reasonOf(error: unknown): string {
  const last = causes(error).at(-1);
  const { code, message } = (last ?? {}) as { code?: unknown; message?: unknown };
  return (typeof message === "string" && message) || (typeof code === "string" && code) || String(error);
}

/** A failure of fetch, as one of our errors. */
function broken(error: unknown, url: string): Error {
  if (error instanceof CoveError) return error;
  const isRefused = causes(error).some((one) => NEVER_CONNECTED.has((one as { code?: string }).code ?? "") || /connection refused/i.test(String((one as { message?: string }).message)));
  const why = reasonOf(error);
  if (isRefused) return new ConnectionFailed(`no daemon answers at ${url}: ${why}. Start one with \`cove serve\`, or give its address with COVE_URL or new Cove({ url })`, { cause: error });
  return new ConnectionLost(`the connection to ${url} broke: ${why}`, { cause: error });
}

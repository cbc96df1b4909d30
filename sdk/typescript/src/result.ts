// How a command ended, with its output: all of it, or the first and the last part.
import { concat, decode, encode } from "./bytes.js";
import type { CompactFacts, OutcomeKind, Stream, StreamMode } from "./generated.js";
import { clean } from "./terminal-text.js";

/** A piece of output. */
export interface OutputChunk {
  /** The output as text. Bytes that are not UTF-8 appear as U+FFFD. */
  text: string;
  /** The exact bytes. */
  bytes: Uint8Array;
  /** Where it came from. */
  stream: Stream;
  /** The position of the first byte in the command's output. */
  offset: number;
  /** When the command printed it: Unix time in milliseconds. */
  timestamp: number;
  /** How many bytes just before this chunk the daemon no longer has; 0 unless the reader was too slow or came too late. */
  missingBefore: number;
}

/** How a command ended. */
export interface ExecOutcome {
  execId: string;
  /** The way in which it ended. */
  kind: OutcomeKind;
  /** The exit status as bash shows it: 128+n after signal n, 124 after a timeout, 126 or 127 if nothing could be run. */
  exitCode: number;
  /** The signal that killed the shell, or the program of a run. */
  signal?: number;
  /** The shell's directory after the command; absent for a run. */
  cwd?: string;
  /** How many bytes it printed, including those that `output` leaves out. */
  outputBytes: number;
  timedOut: boolean;
  /** Whether the shell was replaced during or before this command. Its state was restored. */
  shellRestarted: boolean;
  /** Whether the kernel killed a process because memory ran out. */
  oomKilled: boolean;
  /** Whether a program waited for input at the terminal when the command ended. */
  awaitingInput: boolean;
  durationMs: number;
  /** What the session's network did not allow, as rules that would allow it. */
  networkDenied: string[];
  /** The reason, if `kind` is `never_ran` or `lost`. */
  reason?: string;
}

/** How a command ended, and what it printed. */
export interface ExecResult extends ExecOutcome {
  /** Whether it exited with 0. */
  ok: boolean;
  /** The output of all streams in the order in which it came. If it is truncated, a line between the parts says how much is left out. */
  output: string;
  /** The exact bytes of `output`. */
  bytes: Uint8Array;
  /** Standard output alone: for runs, and with `streams: "split"`. */
  stdout?: string;
  /** Standard error alone: for runs, and with `streams: "split"`. */
  stderr?: string;
  /** Whether `output` is less than the whole output. */
  truncated: boolean;
  /** How many bytes `output` leaves out. */
  omittedBytes: number;
  /** What the view left out, with `view: "compact"`. */
  compact?: CompactFacts;
}

/** How many bytes of output a result holds, unless the caller says otherwise. It is also the daemon's default. */
export const MAX_OUTPUT_BYTES = 1 << 20;

/** Keeps a head and a tail of half the limit each, as the daemon's own replies do. */
export class Collector {
  readonly #head: Uint8Array[] = [];
  #headRoom: number;
  #tail: Uint8Array[] = [];
  #tailBytes = 0;
  readonly #tailLimit: number;
  #omitted = 0;

  constructor(limit: number) {
    this.#tailLimit = Math.floor(limit / 2);
    this.#headRoom = limit - this.#tailLimit;
  }

  push(bytes: Uint8Array): void {
    let rest = bytes;
    if (this.#headRoom > 0) {
      const fits = rest.subarray(0, this.#headRoom);
      this.#head.push(fits);
      this.#headRoom -= fits.length;
      rest = rest.subarray(fits.length);
    }
    if (rest.length === 0) return;
    this.#tail.push(rest);
    this.#tailBytes += rest.length;
    let first = this.#tail[0];
    while (first !== undefined && this.#tailBytes > this.#tailLimit) {
      const excess = Math.min(first.length, this.#tailBytes - this.#tailLimit);
      this.#tailBytes -= excess;
      this.#omitted += excess;
      if (excess === first.length) this.#tail.shift();
      else this.#tail[0] = first.subarray(excess);
      first = this.#tail[0];
    }
  }

  /** Counts bytes that never came. The tail begins after them, so that output is missing in one place only. */
  skip(bytes: number): void {
    if (bytes === 0) return;
    this.#omitted += bytes + this.#tailBytes;
    this.#tail = [];
    this.#tailBytes = 0;
    this.#headRoom = 0;
  }

  finish(render: (bytes: Uint8Array) => Uint8Array = (bytes) => bytes): { bytes: Uint8Array; omitted: number } {
    let head = concat(this.#head);
    let tail = concat(this.#tail);
    if (this.#omitted === 0) return { bytes: render(concat([head, tail])), omitted: 0 };
    // A character that the limit cuts in two is left out as a whole.
    const cut = unfinished(head);
    head = head.subarray(0, head.length - cut);
    let continued = 0;
    while (continued < 3 && isContinuation(tail[continued])) continued++;
    tail = tail.subarray(continued);
    const omitted = this.#omitted + cut + continued;
    return { bytes: concat([render(head), encode(`\n[${omitted} bytes left out]\n`), render(tail)]), omitted };
  }
}

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0b1100_0000) === 0b1000_0000;

/** How many bytes at the end are the begin of a character. */
function unfinished(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (isContinuation(byte)) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

/** Collects the chunks of one command for its result. */
export class ResultBuilder {
  readonly #all: Collector;
  readonly #stdout: Collector;
  readonly #stderr: Collector;
  readonly #isSplit: boolean;
  readonly #render: (bytes: Uint8Array) => Uint8Array;

  constructor(streams: StreamMode, limit: number, isRaw: boolean) {
    this.#all = new Collector(limit);
    this.#stdout = new Collector(limit);
    this.#stderr = new Collector(limit);
    this.#isSplit = streams === "split";
    this.#render = streams === "tty" && !isRaw ? clean : (bytes) => bytes;
  }

  push(chunk: OutputChunk): void {
    this.skip(chunk.missingBefore);
    this.#all.push(chunk.bytes);
    if (chunk.stream === "stdout") this.#stdout.push(chunk.bytes);
    if (chunk.stream === "stderr") this.#stderr.push(chunk.bytes);
  }

  skip(bytes: number): void {
    for (const one of [this.#all, this.#stdout, this.#stderr]) one.skip(bytes);
  }

  finish(outcome: ExecOutcome): ExecResult {
    const { bytes, omitted } = this.#all.finish(this.#render);
    const split = this.#isSplit ? { stdout: decode(this.#stdout.finish().bytes), stderr: decode(this.#stderr.finish().bytes) } : {};
    return {
      ...outcome,
      ok: outcome.kind === "exited" && outcome.exitCode === 0,
      output: decode(bytes),
      bytes,
      ...split,
      truncated: omitted > 0,
      omittedBytes: omitted,
    };
  }
}

// Waits that end: by a caller's AbortSignal, or by a time limit.

/** A signal that aborts with the caller's own, or when `restart` was not called for too long. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #onAbort = () => {
    this.#controller.abort(this.#outer?.reason);
  };
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Whether the time was over. */
  isOver = false;

  constructor(outer: AbortSignal | undefined, ms: number | undefined) {
    this.#outer = outer;
    outer?.throwIfAborted();
    outer?.addEventListener("abort", this.#onAbort, { once: true });
    this.restart(ms);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Begins the time anew; `undefined` means no limit. */
  restart(ms: number | undefined): void {
    clearTimeout(this.#timer);
    if (ms === undefined) return;
    this.#timer = setTimeout(() => {
      this.isOver = true;
      this.#controller.abort();
    }, ms);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#onAbort);
  }

  /** Ends what the signal was given to. */
  abort(): void {
    this.end();
    this.#controller.abort();
  }
}

/** Waits for a time; rejects with the signal's reason if it aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(signal.reason as Error);
      return;
    }
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** The pause before the first repeated try. It doubles with each. */
const FIRST_PAUSE_MS = 100;
/** The longest pause between two tries. */
const MAX_PAUSE_MS = 5_000;

/** The pause before try number `attempt` (from 1): exponential, with half of it random, so that many clients do not come at once. */
export function backoff(attempt: number, random: () => number = Math.random): number {
  const full = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (attempt - 1));
  return full / 2 + (full / 2) * random();
}

// A terminal in a session: bytes both ways over a WebSocket. Browsers cannot send the key with a WebSocket, and Node 20 has none, so the
// connection is made by node/websocket.ts.
import type { Socket } from "./node/websocket.js";
import { ProtocolError } from "./errors.js";
import type { Target } from "./transport.js";
import { encode } from "./bytes.js";

/** How a terminal ended. */
export interface TerminalExit {
  exitCode?: number;
  reason?: string;
}

/** The largest message that the daemon takes. */
const MAX_MESSAGE_BYTES = 1 << 20;

/** Iterating over it gives what the terminal shows, until it ends. */
export class Terminal implements AsyncIterable<Uint8Array> {
  /** The name of its shell. */
  readonly shell: string;
  readonly #socket: Socket;
  #exit: TerminalExit | undefined;

  private constructor(socket: Socket, shell: string) {
    this.#socket = socket;
    this.shell = shell;
  }

  static async open(target: Target, path: string, signal?: AbortSignal): Promise<Terminal> {
    const { openWebSocket } = await import("#node");
    const socket = await openWebSocket(target, path, signal);
    const first = await socket.next();
    const ready = first !== undefined && typeof first === "string" ? (JSON.parse(first) as { type?: string; shell?: string }) : {};
    if (ready.type !== "ready" || ready.shell === undefined) {
      socket.close();
      throw new ProtocolError("the terminal did not begin as expected");
    }
    return new Terminal(socket, ready.shell);
  }

  /** How it ended; undefined while it is open. */
  get exit(): TerminalExit | undefined {
    return this.#exit;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (let bytes = await this.read(); bytes !== undefined; bytes = await this.read()) yield bytes;
  }

  /** What the terminal shows next; undefined when it has ended. */
  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      const message = await this.#socket.next();
      if (typeof message !== "string") return message;
      const { type, exit_code: exitCode, reason } = JSON.parse(message) as { type: string; exit_code?: number; reason?: string };
      if (type === "exit") {
        this.#exit = { ...(exitCode === undefined ? {} : { exitCode }), ...(reason === undefined ? {} : { reason }) };
      }
    }
  }

  /** Types. */
  write(data: string | Uint8Array): void {
    const bytes = typeof data === "string" ? encode(data) : data;
    for (let at = 0; at < bytes.length; at += MAX_MESSAGE_BYTES) this.#socket.send(bytes.subarray(at, at + MAX_MESSAGE_BYTES));
  }

  resize(cols: number, rows: number): void {
    this.#socket.send(JSON.stringify({ type: "resize", cols, rows }));
  }

  /** Closes the connection. A terminal that was opened without a name ends with it. */
  close(): void {
    this.#socket.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

// The browser's WebSocket, for terminals. A browser cannot send a key with it, so it works only through the page's own server, which adds
// the key. The browser does not let a reader slow the sender down: if too much waits for the reader, the connection is closed.
import { ConnectionFailed, ProtocolError, Unsupported } from "./errors.js";
import type { Socket } from "./node/websocket.js";
import type { Target } from "./transport.js";

/** How many bytes may wait for the reader. */
const MAX_WAITING_BYTES = 16 << 20;

export async function openWebSocket(target: Target, path: string, signal?: AbortSignal): Promise<Socket> {
  if (target.apiKey !== undefined) {
    throw new Unsupported("a browser cannot send a key with a WebSocket: let the page's own server add it, and give new Cove({ url }) without apiKey");
  }
  signal?.throwIfAborted();
  const url = `${target.url}${path}`;
  const socket = new WebSocket(url.replace(/^http/, "ws"));
  const connection = new Connection(socket);
  const onAbort = () => {
    socket.close();
  };
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    await connection.opened;
  } catch {
    signal?.throwIfAborted();
    throw new ConnectionFailed(`no terminal at ${url}: the browser does not say why. The page's server has to pass WebSockets on to the daemon`);
  } finally {
    signal?.removeEventListener("abort", onAbort);
  }
  return connection;
}

class Connection implements Socket {
  /** Settles when the connection is open, or cannot be. */
  readonly opened: Promise<void>;
  readonly #socket: WebSocket;
  readonly #messages: (string | Uint8Array)[] = [];
  #waitingBytes = 0;
  #waiting: ((message: string | Uint8Array | undefined) => void)[] = [];
  #failure: Error | undefined;
  #isOver = false;

  constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    this.opened = new Promise((resolve, reject) => {
      socket.addEventListener("open", () => {
        resolve();
      });
      socket.addEventListener("close", () => {
        this.#end();
        reject(new Error("closed"));
      });
    });
    socket.addEventListener("message", ({ data }: MessageEvent<string | ArrayBuffer>) => {
      this.#deliver(typeof data === "string" ? data : new Uint8Array(data));
    });
  }

  next(): Promise<string | Uint8Array | undefined> {
    const message = this.#messages.shift();
    if (message !== undefined) {
      this.#waitingBytes -= message.length;
      return Promise.resolve(message);
    }
    if (this.#failure) return Promise.reject(this.#failure);
    if (this.#isOver) return Promise.resolve(undefined);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  send(message: string | Uint8Array): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(message);
  }

  close(): void {
    this.#socket.close();
    this.#end();
  }

  #deliver(message: string | Uint8Array): void {
    if (this.#isOver) return;
    const waiting = this.#waiting.shift();
    if (waiting) {
      waiting(message);
      return;
    }
    this.#messages.push(message);
    this.#waitingBytes += message.length;
    if (this.#waitingBytes > MAX_WAITING_BYTES) {
      this.#failure = new ProtocolError(`the terminal was closed: more than ${MAX_WAITING_BYTES} bytes waited to be read`);
      this.close();
    }
  }

  #end(): void {
    this.#isOver = true;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const one of waiting) one(undefined);
  }
}

// A small WebSocket client (RFC 6455), for the terminal alone: Node 20 has none, and others cannot send the key in a header.
// It has no extensions. What came and was not taken is bounded: the connection is not read while too much waits.
import { createHash, randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { ProtocolError } from "../errors.js";
import type { Target } from "../transport.js";
import { upgrade } from "./upgrade.js";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** The longest message that is taken. The daemon's have at most 1 MiB. */
const MAX_MESSAGE_BYTES = 16 << 20;
/** While this many messages wait for the reader, the connection is not read. */
const MAX_WAITING = 64;

const CONTINUATION = 0x0;
const TEXT = 0x1;
const BINARY = 0x2;
const CLOSE = 0x8;
const PING = 0x9;
const PONG = 0xa;

export interface Socket {
  /** The next message: text or bytes; undefined when the connection has ended. */
  next: () => Promise<string | Uint8Array | undefined>;
  send: (message: string | Uint8Array) => void;
  close: () => void;
}

export async function openWebSocket(target: Target, path: string, signal?: AbortSignal): Promise<Socket> {
  const key = randomBytes(16).toString("base64");
  const headers = { upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": key };
  const { stream, response, head } = await upgrade(target, path, headers, signal);
  const expected = createHash("sha1").update(`${key}${GUID}`).digest("base64");
  if (response.headers["sec-websocket-accept"] !== expected) {
    stream.destroy();
    throw new ProtocolError("the answer is not that of a WebSocket");
  }
  return new Connection(stream, head);
}

class Connection implements Socket {
  readonly #stream: Duplex;
  #buffer: Buffer;
  #parts: Buffer[] = [];
  #kind = BINARY;
  readonly #messages: (string | Uint8Array)[] = [];
  #waiting: ((message: string | Uint8Array | undefined) => void)[] = [];
  #failure: Error | undefined;
  #isOver = false;

  constructor(stream: Duplex, head: Buffer) {
    this.#stream = stream;
    this.#buffer = head;
    stream.on("data", (piece: Buffer) => {
      this.#buffer = Buffer.concat([this.#buffer, piece]);
      this.#read();
    });
    // A connection that breaks is over, like one that is closed.
    stream.on("error", () => {
      this.#end();
    });
    stream.on("close", () => {
      this.#end();
    });
    this.#read();
  }

  next(): Promise<string | Uint8Array | undefined> {
    const message = this.#messages.shift();
    if (message !== undefined) {
      if (this.#stream.isPaused() && this.#messages.length < MAX_WAITING) this.#stream.resume();
      return Promise.resolve(message);
    }
    if (this.#failure) return Promise.reject(this.#failure);
    if (this.#isOver) return Promise.resolve(undefined);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  send(message: string | Uint8Array): void {
    this.#frame(typeof message === "string" ? TEXT : BINARY, Buffer.from(message));
  }

  close(): void {
    if (this.#isOver) return;
    this.#frame(CLOSE, Buffer.from([0x03, 0xe8]));
    // What the daemon still sends has no reader.
    this.#stream.end(() => this.#stream.destroy());
    this.#end();
  }

  #frame(opcode: number, payload: Buffer): void {
    if (this.#isOver || this.#stream.writableEnded) return;
    const short = payload.length < 126 ? payload.length : payload.length < 0x1_0000 ? 126 : 127;
    const extra = short === 126 ? 2 : short === 127 ? 8 : 0;
    const header = Buffer.alloc(2 + extra + 4);
    header[0] = 0x80 | opcode;
    header[1] = 0x80 | short;
    if (extra === 2) header.writeUInt16BE(payload.length, 2);
    if (extra === 8) header.writeBigUInt64BE(BigInt(payload.length), 2);
    const mask = randomBytes(4);
    mask.copy(header, 2 + extra);
    const masked = Buffer.from(payload.map((byte, at) => byte ^ (mask[at % 4] ?? 0)));
    this.#stream.write(Buffer.concat([header, masked]));
  }

  /** Takes all whole frames out of the buffer. */
  #read(): void {
    for (;;) {
      const [first, second] = this.#buffer;
      if (first === undefined || second === undefined) return;
      let length = second & 0x7f;
      let at = 2;
      if (length === 126) {
        if (this.#buffer.length < 4) return;
        length = this.#buffer.readUInt16BE(2);
        at = 4;
      } else if (length === 127) {
        if (this.#buffer.length < 10) return;
        length = Number(this.#buffer.readBigUInt64BE(2));
        at = 10;
      }
      if (length > MAX_MESSAGE_BYTES || (second & 0x80) !== 0 || (first & 0x70) !== 0) {
        this.#fail("the daemon sent a frame that is too long or malformed");
        return;
      }
      if (this.#buffer.length < at + length) return;
      const payload = this.#buffer.subarray(at, at + length);
      this.#buffer = this.#buffer.subarray(at + length);
      this.#take(first & 0x0f, (first & 0x80) !== 0, payload);
    }
  }

  #take(opcode: number, isLast: boolean, payload: Buffer): void {
    switch (opcode) {
      case PING:
        this.#frame(PONG, payload);
        return;
      case PONG:
        return;
      case CLOSE:
        this.close();
        return;
      case TEXT:
      case BINARY:
        this.#kind = opcode;
        this.#parts = [payload];
        break;
      case CONTINUATION:
        this.#parts.push(payload);
        break;
      default:
        this.#fail("the daemon sent a frame of an unknown kind");
        return;
    }
    if (!isLast) return;
    const whole = Buffer.concat(this.#parts);
    this.#deliver(this.#kind === TEXT ? whole.toString("utf8") : new Uint8Array(whole));
  }

  #deliver(message: string | Uint8Array): void {
    const waiting = this.#waiting.shift();
    if (waiting) waiting(message);
    else if (this.#messages.push(message) >= MAX_WAITING) this.#stream.pause();
  }

  #fail(why: string): void {
    this.#failure = new ProtocolError(why);
    this.#stream.destroy();
  }

  #end(): void {
    this.#isOver = true;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const one of waiting) one(undefined);
  }
}

// A web app's own server, as docs/guides/typescript.md describes it: it serves a page, and passes what the page asks below /cove on to the
// daemon, with the key, which the page never has. Below /cut it does the same, and cuts the connections.
import { once } from "node:events";
import { createServer, request as httpRequest, type IncomingMessage, type OutgoingHttpHeaders, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import { HEAD_BYTES } from "./cuts.js";
import type { StepResult } from "./story.js";

export interface Upstream {
  port: number;
  apiKey: string;
}

/** What the page may send to the daemon. Cookies are the app's own, and the key is added here. */
const PASSED = ["accept", "content-type", "content-length", "transfer-encoding", "idempotency-key", "last-event-id", "range", "x-request-id"];
const UPGRADE = ["connection", "upgrade", "sec-websocket-key", "sec-websocket-version"];

export class Backend {
  readonly #server: Server;
  readonly #files = new Map<string, { type: string; content: string }>();
  readonly #nextCut: () => number;
  #upstream: Upstream | undefined;
  #report: ((results: StepResult[]) => void) | undefined;
  cuts = 0;
  /** The requests that the page made of the daemon, and whether one of them had a key. */
  seen: { path: string; hasKey: boolean }[] = [];

  private constructor(nextCut: () => number) {
    this.#nextCut = nextCut;
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch(() => response.destroy());
    });
    this.#server.on("upgrade", (request, socket, head) => {
      this.#upgrade(request, socket, head);
    });
    this.#server.listen(0, "127.0.0.1");
  }

  static async start(nextCut: () => number): Promise<Backend> {
    const backend = new Backend(nextCut);
    if (!backend.#server.listening) await once(backend.#server, "listening");
    return backend;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The daemon to pass requests on to. */
  connect(upstream: Upstream): void {
    this.#upstream = upstream;
  }

  serve(path: string, type: string, content: string): void {
    this.#files.set(path, { type, content });
  }

  /** What the page sends to /report, once. */
  reported(): Promise<StepResult[]> {
    return new Promise((resolve) => (this.#report = resolve));
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? "/";
    const file = this.#files.get(path);
    if (file) {
      response.setHeader("content-type", file.type);
      response.end(file.content);
    } else if (path === "/report") {
      this.#report?.(JSON.parse(await text(request)) as StepResult[]);
      response.end();
    } else if (this.#isOurs(request) && /^\/(cove|cut)\//.test(path)) {
      this.#pass(request, response, path.startsWith("/cut/"));
    } else {
      response.statusCode = 404;
      response.end();
    }
  }

  /** A page of another site makes the browser send requests too, with the app's cookies. It cannot hide where they come from. */
  #isOurs(request: IncomingMessage): boolean {
    return request.headers.origin === undefined || request.headers.origin === this.origin;
  }

  #pass(request: IncomingMessage, response: ServerResponse, isCut: boolean): void {
    const sent = this.#send(request, PASSED);
    sent.once("response", (answer) => {
      let left = isCut ? this.#nextCut() : Infinity;
      if (left < HEAD_BYTES) {
        this.cuts += 1;
        response.destroy();
        sent.destroy();
        return;
      }
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.on("data", (piece: Buffer) => {
        if (piece.length >= left) {
          this.cuts += 1;
          response.write(piece.subarray(0, left), () => response.socket?.destroy());
          sent.destroy();
          left = Infinity;
        } else {
          left -= piece.length;
          if (!response.write(piece)) {
            answer.pause();
            response.once("drain", () => answer.resume());
          }
        }
      });
      answer.once("end", () => response.end());
      answer.once("error", () => response.destroy());
    });
    sent.once("error", () => response.destroy());
    // The page has left: the daemon should know.
    response.once("close", () => sent.destroy());
    request.pipe(sent);
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on("error", () => socket.destroy());
    // Nothing but this check keeps a page of another site from opening a WebSocket here.
    if (request.headers.origin !== this.origin || !request.url?.startsWith("/cove/")) {
      socket.end("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
      return;
    }
    const sent = this.#send(request, UPGRADE);
    sent.once("error", () => socket.destroy());
    sent.once("response", () => socket.destroy());
    sent.once("upgrade", (answer, daemon, first) => {
      const lines = Object.entries(answer.headers).map(([name, value]) => `${name}: ${String(value)}\r\n`);
      socket.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join("")}\r\n`);
      socket.write(first);
      daemon.write(head);
      daemon.pipe(socket).pipe(daemon);
      daemon.on("error", () => socket.destroy());
      daemon.once("close", () => socket.destroy());
      socket.once("close", () => daemon.destroy());
    });
    sent.end();
  }

  /** The same request to the daemon, with the key and without what tells of the page. */
  #send(request: IncomingMessage, names: readonly string[]) {
    const { port, apiKey } = this.#upstream ?? { port: 0, apiKey: "" };
    const path = (request.url ?? "").replace(/^\/(cove|cut)/, "");
    this.seen.push({ path, hasKey: request.headers.authorization !== undefined });
    const headers: OutgoingHttpHeaders = { authorization: `Bearer ${apiKey}` };
    for (const name of names) if (request.headers[name] !== undefined) headers[name] = request.headers[name];
    return httpRequest({ host: "127.0.0.1", port, path, method: request.method, headers, agent: false });
  }
}

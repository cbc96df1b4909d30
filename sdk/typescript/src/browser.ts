// What browsers have in the place of node/index.ts: an address on the page's own server, the browser's WebSocket, and for everything else an
// error that says what to use instead.
import { Unsupported } from "./errors.js";
import type { Target } from "./transport.js";

export { openWebSocket } from "./browser-socket.js";

function unsupported(what: string): () => never {
  return () => {
    throw new Unsupported(`${what}: this needs Node, Bun or Deno`);
  };
}

/** The address that the page gives, which may be relative to the page. Without a key, the page's own server has to add one. */
export function findDaemon({ url, apiKey }: { url?: string; apiKey?: string }): Promise<Target> {
  if (url === undefined) throw new Unsupported("a browser cannot look for a daemon: give new Cove({ url }), such as a path of the server that the page came from");
  return Promise.resolve({ url: new URL(url, globalThis.location.href).href.replace(/\/+$/, ""), apiKey });
}

/** A stream as the body of a request: it is read first, because browsers send streams by HTTP/2 alone, or not at all. */
export const requestBody = (stream: ReadableStream<Uint8Array>): Promise<ReadableStream<Uint8Array> | Blob> => new Response(stream).blob();

/** A browser has no way to wait longer than it does. */
export const patience = (): object => ({});

export const findBinary = unsupported("a browser cannot start programs");
export const startDaemon = unsupported("a browser cannot start a daemon");
export const openTcp = unsupported("a browser has no TCP connections");
export const forward = unsupported("a browser cannot listen on a port");
export const packDirectory = unsupported("a browser cannot read directories; use files.write or files.writeArchive");
export const unpackDirectory = unsupported("a browser cannot write directories; use files.read or files.readArchive");

// What needs Node, Bun or Deno. Browsers get browser.ts in its place, by "imports" of package.json.
export { startDaemon, findBinary } from "./embedded.js";
export { findDaemon } from "./find.js";
export { forward, openTcp } from "./forward.js";
export { packDirectory } from "./pack.js";
export { patience } from "./patience.js";
export { unpackDirectory } from "./unpack.js";
export { openWebSocket } from "./websocket.js";

/** A stream as the body of a request: fetch sends it as it comes. */
export const requestBody = (stream: ReadableStream<Uint8Array>): Promise<ReadableStream<Uint8Array> | Blob> => Promise.resolve(stream);

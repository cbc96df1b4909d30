// Upgrades an HTTP connection to the daemon: for terminals (WebSocket) and for TCP connections to ports.
import { request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Duplex } from "node:stream";
import { apiError, ConnectionFailed, ProtocolError } from "../errors.js";
import type { Target } from "../transport.js";

/** How long the daemon may take to answer an upgrade. */
const UPGRADE_TIMEOUT_MS = 30_000;
/** How much is read of an answer that refuses. */
const MAX_REFUSAL_BYTES = 64 << 10;

export interface Upgraded {
  stream: Duplex;
  response: IncomingMessage;
  /** Bytes that came together with the head. */
  head: Buffer;
}

export function upgrade(target: Target, path: string, headers: Record<string, string>, signal?: AbortSignal): Promise<Upgraded> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const url = new URL(`${target.url}${path}`);
    const send = url.protocol === "https:" ? httpsRequest : httpRequest;
    const request = send(url, { headers: { authorization: `Bearer ${target.apiKey ?? ""}`, connection: "Upgrade", ...headers }, agent: false, timeout: UPGRADE_TIMEOUT_MS });
    const onAbort = () => request.destroy(signal?.reason as Error);
    signal?.addEventListener("abort", onAbort, { once: true });
    const settled = () => signal?.removeEventListener("abort", onAbort);
    request.once("upgrade", (response, stream, head) => {
      settled();
      (stream).setTimeout(0);
      resolve({ stream, response, head });
    });
    request.once("response", (response) => {
      settled();
      refusal(response).then(reject, reject);
    });
    request.once("timeout", () => request.destroy(new Error(`no answer within ${UPGRADE_TIMEOUT_MS} ms`)));
    request.once("error", (error) => {
      settled();
      reject(signal?.aborted ? (signal.reason as Error) : new ConnectionFailed(`no daemon answers at ${target.url}: ${error.message}`, { cause: error }));
    });
    request.end();
  });
}

async function refusal(response: IncomingMessage): Promise<Error> {
  let text = "";
  for await (const piece of response.setEncoding("utf8")) {
    text += String(piece);
    if (text.length > MAX_REFUSAL_BYTES) break;
  }
  const status = response.statusCode ?? 0;
  try {
    const body = JSON.parse(text) as { error_code: string; message: string; details?: Record<string, unknown> };
    return apiError({ code: body.error_code, message: body.message, details: body.details, status });
  } catch {
    return new ProtocolError(`status ${status} instead of a connection: ${text.slice(0, 200)}`);
  }
}

// TCP connections to ports of a sandbox, and a port of this machine that is forwarded to one.
import { createServer, type AddressInfo, type Server } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Target } from "../transport.js";
import { upgrade } from "./upgrade.js";

export async function openTcp(target: Target, path: string, signal?: AbortSignal): Promise<Duplex> {
  const { stream, head } = await upgrade(target, path, { upgrade: "cove-tcp" }, signal);
  if (head.length > 0) stream.unshift(head);
  return stream;
}

/** A port of this machine that leads into a sandbox. */
export interface Forward {
  host: string;
  port: number;
  /** Stops to listen, and ends the connections. */
  close: () => Promise<void>;
  [Symbol.asyncDispose]: () => Promise<void>;
}

export async function forward(connect: () => Promise<Duplex>, options: { localPort?: number; host?: string }): Promise<Forward> {
  const open = new Set<Duplex>();
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
    // Only this connection ends if its port is closed.
    void connect().then(
      (remote) => Promise.all([pipeline(socket, remote), pipeline(remote, socket)]).catch(() => undefined),
      () => socket.destroy(),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.localPort ?? 0, options.host ?? "127.0.0.1", resolve);
  });
  const { address, port } = server.address() as AddressInfo;
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => {
        resolve();
      });
      for (const socket of open) socket.destroy();
    });
  return { host: address, port, close, [Symbol.asyncDispose]: close };
}

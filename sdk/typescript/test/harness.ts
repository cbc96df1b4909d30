// A real daemon with a data directory of its own, and a TCP proxy that cuts connections.
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Cove, type CoveOptions } from "@cove/sdk";

const START_TIMEOUT_MS = 60_000;

export function coveBinary(): string {
  const binary = process.env["COVE_BIN"];
  if (!binary) throw new Error("COVE_BIN names the daemon to test with; scripts/sdk-typescript sets it");
  return binary;
}

/** The tester's variables without those that would configure a daemon or a client. */
export function plainEnv(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("COVE_")));
}

/** The runtime of the daemons: `COVE_SDK_RUNTIME`, which is `local` unless it is set, or `docker`. */
export const runtime = sdkRuntime(process.env["COVE_SDK_RUNTIME"]);

function sdkRuntime(name: string | undefined): "local" | "docker" {
  if (name === undefined || name === "" || name === "local") return "local";
  if (name === "docker") return name;
  throw new Error(`COVE_SDK_RUNTIME is local or docker, not ${name}`);
}

/** The settings of a daemon on that runtime. The engine and the image are those that scripts/docker/test sets. */
function runtimeSettings(): NodeJS.ProcessEnv {
  if (runtime === "local") return { COVE_IMAGES_PULL: "never" };
  const image = process.env["COVE_E2E_IMAGE"] ?? "cove-python";
  return {
    COVE_DOCKER_SOCKET: process.env["COVE_E2E_DOCKER_SOCKET"] ?? "/var/run/docker.sock",
    COVE_DOCKER_OCI_RUNTIME: process.env["COVE_E2E_OCI_RUNTIME"] ?? "runc",
    COVE_DOCKER_IMAGES: ["base", "python", "node"].map((name) => `${name}=${image}`).join(","),
    COVE_DOCKER_PULL: "never",
  };
}

export class TestDaemon {
  readonly #directory: string;
  readonly dataDir: string;
  #child: ChildProcess;
  url: string;
  apiKey: string;

  readonly #env: NodeJS.ProcessEnv;

  private constructor(directory: string, env: NodeJS.ProcessEnv, started: Started, apiKey: string) {
    this.#directory = directory;
    this.#env = env;
    this.dataDir = join(directory, "data");
    this.#child = started.child;
    this.url = started.url;
    this.apiKey = apiKey;
  }

  /** `env` has settings beside the usual ones. */
  static async start(env: NodeJS.ProcessEnv = {}): Promise<TestDaemon> {
    const directory = await mkdtemp(join(tmpdir(), "cove-ts-"));
    const started = await serve(directory, "127.0.0.1:0", env);
    return new TestDaemon(directory, env, started, (await readFile(join(directory, "data/api-key"), "utf8")).trim());
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  client(options: CoveOptions = {}): Cove {
    return new Cove({ url: this.url, apiKey: this.apiKey, ...options });
  }

  /** Kills the daemon, so that it can do nothing more, and starts another one at the same address. */
  async killAndRestart(): Promise<void> {
    await ended(this.#child, "SIGKILL");
    this.#child = (await serve(this.#directory, `127.0.0.1:${this.port}`, this.#env)).child;
  }

  async stop(): Promise<void> {
    await ended(this.#child, "SIGTERM");
    await rm(this.#directory, { recursive: true, force: true });
  }
}

async function ended(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  const exit = once(child, "exit");
  child.kill(signal);
  await exit;
}

interface Started {
  child: ChildProcess;
  url: string;
}

async function serve(directory: string, listen: string, settings: NodeJS.ProcessEnv): Promise<Started> {
  const args = ["serve", "--runtime", runtime, "--listen", listen, "--data-dir", join(directory, "data")];
  const env = { ...plainEnv(), HOME: directory, COVE_SESSIONS_ON_STOP: "destroy", ...runtimeSettings(), ...settings };
  const child = spawn(coveBinary(), args, { stdio: ["ignore", "pipe", "pipe"], env });
  let log = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (log = (log + text).slice(-4000)));
  const deadline = AbortSignal.timeout(START_TIMEOUT_MS);
  const lines = createInterface({ input: child.stdout });
  try {
    for (;;) {
      const [line] = (await Promise.race([once(lines, "line", { signal: deadline }), once(child, "exit", { signal: deadline }).then(() => [])])) as [string?];
      if (line === undefined) throw new Error("the daemon ended");
      if (line.startsWith("listening on ")) return { child, url: line.slice("listening on ".length).trim() };
    }
  } catch (error) {
    child.kill("SIGKILL");
    throw new Error(`no daemon: ${String(error)}\n${log}`, { cause: error });
  } finally {
    child.stdout.resume();
  }
}

/** What happens to one connection: it is cut after this many bytes to the daemon, or from it. */
export interface Cut {
  up?: number;
  down?: number;
}

/** Forwards connections to a port, and cuts each as told. */
export class CuttingProxy {
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  cuts = 0;

  private constructor(port: number, plan: (cuts: number) => Cut) {
    this.#server = createServer((client) => {
      const cut = plan(this.cuts);
      const daemon = connect(port, "127.0.0.1");
      this.#open.add(client);
      const end = () => {
        client.destroy();
        daemon.destroy();
        this.#open.delete(client);
      };
      for (const socket of [client, daemon]) {
        socket.on("error", end);
        socket.on("close", end);
      }
      const carry = (from: Socket, to: Socket, most: number) => {
        let left = most;
        from.on("data", (bytes: Buffer) => {
          if (bytes.length < left) {
            left -= bytes.length;
            to.write(bytes);
            return;
          }
          this.cuts += 1;
          // What was sent before the cut must arrive.
          if (left > 0) to.write(bytes.subarray(0, left), end);
          else end();
          left = 0;
        });
      };
      carry(client, daemon, cut.up ?? Infinity);
      carry(daemon, client, cut.down ?? Infinity);
    });
    this.#server.listen(0, "127.0.0.1");
  }

  static async start(port: number, plan: (cuts: number) => Cut): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(port, plan);
    if (!proxy.#server.listening) await once(proxy.#server, "listening");
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Ends all connections, so that the next request makes a new one. */
  drop(): void {
    for (const socket of this.#open) socket.destroy();
  }

  async stop(): Promise<void> {
    this.drop();
    this.#server.close();
    await once(this.#server, "close");
  }
}

/** A port at which nothing listens. */
export async function closedPort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Waits until a condition holds; fails after a deadline. */
export async function until(what: string, condition: () => boolean | Promise<boolean>, ms = 30_000): Promise<void> {
  const end = Date.now() + ms;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`it did not happen within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

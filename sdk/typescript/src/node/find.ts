// Finds a daemon on this machine and its key: what the caller names, or what a running daemon wrote to its data directory.
import { readFile } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { CoveError, DaemonNotFound, Unsupported } from "../errors.js";
import type { Target } from "../transport.js";

export interface FindOptions {
  url?: string;
  apiKey?: string;
  dataDir?: string;
}

/** The files of a data directory by which a daemon is found. */
const DAEMON_FILE = "daemon.json";
const KEY_FILE = "api-key";

export async function findDaemon(options: FindOptions, env: NodeJS.ProcessEnv = process.env): Promise<Target> {
  const given = (value: string | undefined) => (value === "" ? undefined : value);
  const dataDir = () => given(options.dataDir) ?? given(env["COVE_DATA_DIR"]) ?? defaultDataDir(env);
  const url = address(given(options.url) ?? given(env["COVE_URL"]) ?? (await runningDaemon(dataDir())));
  const apiKey = given(options.apiKey) ?? given(env["COVE_API_KEY"]) ?? (await readKey(dataDir()));
  return { url, apiKey };
}

function defaultDataDir(env: NodeJS.ProcessEnv): string {
  const absolute = (value: string | undefined) => (value !== undefined && isAbsolute(value) ? value : undefined);
  const home = absolute(env["HOME"]);
  const base = absolute(env["XDG_DATA_HOME"]) ?? (home && join(home, ".local/share"));
  if (base === undefined) throw new DaemonNotFound("neither HOME nor XDG_DATA_HOME is set: give new Cove({ url, apiKey }), or COVE_URL and COVE_API_KEY");
  return join(base, "cove");
}

function address(url: string): string {
  if (url.startsWith("unix:")) throw new Unsupported("fetch cannot use a Unix socket: give the daemon's http address, or a fetch of your own with new Cove({ url, apiKey, fetch })");
  const whole = url.includes("://") ? url : `http://${url}`;
  if (!URL.canParse(whole)) throw new CoveError(`${JSON.stringify(url)} is not the address of a daemon: use http://HOST:PORT`);
  return whole.replace(/\/+$/, "");
}

async function runningDaemon(dataDir: string): Promise<string> {
  const none = () => new DaemonNotFound(`no daemon runs on the data directory ${dataDir}: start one with \`cove serve\`, use Cove.embedded(), or name one with COVE_URL or new Cove({ url })`);
  const path = join(dataDir, DAEMON_FILE);
  const text = await readFile(path, "utf8").catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") throw none();
    throw new CoveError(`cannot read ${path}: ${(error as Error).message}`, { cause: error });
  });
  const { url, pid } = parse(path, text);
  // A daemon that was killed could not remove its file.
  if (!isAlive(pid)) throw none();
  return url;
}

function parse(path: string, text: string): { url: string; pid: number } {
  try {
    const { url, pid } = JSON.parse(text) as { url?: unknown; pid?: unknown };
    if (typeof url === "string" && typeof pid === "number") return { url, pid };
  } catch {
    // The same error as for other content.
  }
  throw new CoveError(`cannot understand ${path}: it is written by \`cove serve\`; start the daemon again, or give its address with COVE_URL`);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // The process exists and belongs to another user.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

async function readKey(dataDir: string): Promise<string> {
  const path = join(dataDir, KEY_FILE);
  try {
    return (await readFile(path, "utf8")).trim();
  } catch (error) {
    throw new CoveError(`no API key: give one with COVE_API_KEY or new Cove({ apiKey }) (cannot read ${path}: ${(error as Error).message})`, { cause: error });
  }
}

// A daemon of this process's own. Its standard input is a pipe from this process: when this process ends, even by `kill -9`, the pipe
// closes, and the daemon destroys its sessions and exits.
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { access, constants } from "node:fs/promises";
import { createRequire } from "node:module";
import { delimiter, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import type { EmbeddedOptions } from "../cove.js";
import { Deadline } from "../deadline.js";
import { BinaryNotFound, EmbeddedFailed } from "../errors.js";

/** How long the daemon may take until it listens. */
const START_TIMEOUT_MS = 30_000;
/** How long the daemon may take to end its sessions. */
const STOP_TIMEOUT_MS = 30_000;
/** How much of the daemon's log an error shows. */
const SHOWN_LOG = 2_000;
/** Variables that name another daemon. */
const OF_ANOTHER_DAEMON = ["COVE_URL", "COVE_API_KEY", "COVE_DATA_DIR"];

export interface EmbeddedDaemon {
  url: string;
  apiKey: string;
  dataDir: string;
  pid: number;
  /** Ends the daemon, and waits until it is gone. */
  stop: () => Promise<void>;
}

/** The program: COVE_BIN, the platform's package, or `cove` in PATH. */
export async function findBinary(env: NodeJS.ProcessEnv = process.env): Promise<string> {
  const named = env["COVE_BIN"];
  if (named) return named;
  const name = `@cove/cli-${process.platform}-${process.arch}`;
  const packaged = resolvePackage(name);
  const inPath = (env["PATH"] ?? "").split(delimiter).filter((directory) => directory !== "");
  for (const candidate of [...(packaged ? [join(packaged, "bin/cove")] : []), ...inPath.map((directory) => join(directory, "cove"))]) {
    try {
      await access(candidate, constants.X_OK);
      return candidate;
    } catch {
      // The next place.
    }
  }
  throw new BinaryNotFound(`the program cove is not here: install the package ${name}, put cove into PATH, or name it with COVE_BIN`);
}

function resolvePackage(name: string): string | undefined {
  try {
    return dirname(createRequire(import.meta.url).resolve(`${name}/package.json`));
  } catch {
    return undefined;
  }
}

export async function startDaemon(options: EmbeddedOptions): Promise<EmbeddedDaemon> {
  const binary = options.binary ?? (await findBinary());
  const inherited = Object.entries(process.env).filter(([name]) => !OF_ANOTHER_DAEMON.includes(name));
  const env = { ...Object.fromEntries(inherited), ...options.env };
  const args = ["serve", "--embedded", ...(options.dataDir === undefined ? [] : ["--data-dir", options.dataDir])];
  // Before the start, because it throws if the caller has aborted already.
  const deadline = new Deadline(options.signal, START_TIMEOUT_MS);
  // A process group of its own, so that Ctrl-C reaches this process and not the daemon, which ends after it.
  const child = spawn(binary, args, { stdio: ["pipe", "pipe", "pipe"], env, detached: true });
  const log = keepLog(child, options.log ?? "ignore");
  try {
    const line = await firstLine(child, deadline.signal);
    const announced = announcement(line);
    if (!announced) throw new Error("it did not say where it listens");
    // The process may end while the daemon runs, and takes the daemon with it.
    for (const handle of [child, child.stdin, child.stdout, child.stderr]) (handle as { unref?: () => void } | null)?.unref?.();
    child.stdout.resume();
    return { ...announced, stop: () => stop(child) };
  } catch (error) {
    child.kill("SIGKILL");
    // What it started may still have these open, and would keep this process from ending.
    for (const pipe of child.stdio) pipe?.destroy();
    options.signal?.throwIfAborted();
    const why = deadline.isOver ? `it did not listen within ${START_TIMEOUT_MS / 1000} s` : (error as Error).message;
    const shown = log().trim();
    throw new EmbeddedFailed(`cannot start a daemon with ${binary}: ${why}${shown && `\n${shown}`}`, { cause: error });
  } finally {
    deadline.end();
  }
}

async function firstLine(child: ChildProcess, signal: AbortSignal): Promise<string> {
  const ended = new AbortController();
  const either = AbortSignal.any([signal, ended.signal]);
  // Without a listener, a program that cannot be started would end this process.
  child.once("error", (error) => {
    ended.abort(error);
  });
  // It has ended, and everything that it printed has come.
  child.once("close", (code, killed) => {
    ended.abort(new Error(`it ended with ${code ?? killed ?? "an unknown status"}`));
  });
  if (!child.stdout) throw new Error("it has no standard output");
  const lines = createInterface({ input: child.stdout });
  try {
    const [line] = (await once(lines, "line", { signal: either })) as [string];
    return line;
  } catch (error) {
    throw either.aborted && either.reason instanceof Error ? either.reason : error;
  } finally {
    lines.close();
  }
}

function announcement(line: string): Omit<EmbeddedDaemon, "stop"> | undefined {
  try {
    const { url, api_key: apiKey, data_dir: dataDir, pid } = JSON.parse(line) as { url?: string; api_key?: string; data_dir?: string; pid?: number };
    if (url === undefined || apiKey === undefined) return undefined;
    return { url, apiKey, dataDir: dataDir ?? "", pid: pid ?? 0 };
  } catch {
    return undefined;
  }
}

/** Keeps the end of the daemon's log for an error, and shows it if asked to. */
function keepLog(child: ChildProcess, where: "inherit" | "ignore"): () => string {
  let kept = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    kept = (kept + text).slice(-SHOWN_LOG);
    if (where === "inherit") process.stderr.write(text);
  });
  return () => kept;
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.ref();
  const ended = once(child, "exit");
  child.stdin?.end();
  const timer = setTimeout(() => child.kill("SIGKILL"), STOP_TIMEOUT_MS);
  await ended;
  clearTimeout(timer);
}

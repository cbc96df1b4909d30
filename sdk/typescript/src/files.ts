// Files in a session's sandbox. Paths are absolute, or relative to /workspace.
import { fromBase64, decode, toBase64 } from "./bytes.js";
import { FileNotFound, InvalidRequest, ProtocolError } from "./errors.js";
import type { FileView, ListView } from "./generated.js";
import type { CallOptions, Transport } from "./transport.js";
import { Watch, type WatchOptions } from "./watch.js";

export type FileData = string | Uint8Array | Blob | ReadableStream<Uint8Array>;

/** What happened so far to a transfer of a directory. */
export interface TransferProgress {
  /** The file that is being sent or was received, relative to the directory. */
  path: string;
  files: number;
  bytes: number;
}

export interface UploadDirOptions extends CallOptions {
  /** Files whose patterns are respected, in every directory. The default is `.gitignore` and `.coveignore`; `[]` sends everything. */
  ignoreFiles?: readonly string[];
  /** More patterns, as lines of an ignore file. */
  ignore?: readonly string[];
  onProgress?: (progress: TransferProgress) => void;
}

export interface DownloadDirOptions extends CallOptions {
  onProgress?: (progress: TransferProgress) => void;
}

/** A whole transfer may take this long without an answer's head; the daemon itself ends one in which nothing moves. */
export const TRANSFER_TIMEOUT_MS = 3_600_000;

export class Files {
  readonly #transport: Transport;
  readonly #path: { sessionId: string };

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = { sessionId };
  }

  /** The content of a file, or of a range of it: `start` and `end` are offsets, and `end` is the first byte that is left out. */
  async read(path: string, options: CallOptions & { start?: number; end?: number } = {}): Promise<Uint8Array> {
    const response = await this.#get(path, options);
    return new Uint8Array(await response.arrayBuffer());
  }

  /** The content of a file as text. Bytes that are not UTF-8 appear as U+FFFD. */
  async readText(path: string, options: CallOptions = {}): Promise<string> {
    return decode(await this.read(path, options));
  }

  /** The content of a file as a stream, for large ones. */
  async readStream(path: string, options: CallOptions & { start?: number; end?: number } = {}): Promise<ReadableStream<Uint8Array>> {
    const { body } = await this.#get(path, options);
    return body ?? new Blob([]).stream();
  }

  #get(path: string, options: CallOptions & { start?: number; end?: number }): Promise<Response> {
    const { start, end, ...call } = options;
    const range = start !== undefined || end !== undefined;
    const headers: Record<string, string> = range ? { range: `bytes=${start ?? 0}-${end === undefined ? "" : end - 1}` } : {};
    return this.#transport.raw("readFile", { path: { ...this.#path, path: filePath(path) }, headers, ...call });
  }

  /** Writes a file, all or nothing. Missing directories are created. Returns how many bytes it has. `mode` is a number such as 0o755. */
  async write(path: string, data: FileData, options: CallOptions & { mode?: number } = {}): Promise<number> {
    const { mode, ...call } = options;
    const body = typeof data === "string" ? new TextEncoder().encode(data) : data;
    const answer = await this.#transport.json("writeFile", {
      path: { ...this.#path, path: filePath(path) },
      query: mode === undefined ? {} : { mode: mode.toString(8) },
      raw: { body, type: "application/octet-stream" },
      requestTimeoutMs: TRANSFER_TIMEOUT_MS,
      ...call,
    });
    return answer.bytes;
  }

  /** Writes several small files into one directory, by their names. Returns their paths. */
  async writeMany(directory: string, files: Readonly<Record<string, string | Uint8Array>>, options: CallOptions = {}): Promise<string[]> {
    const answer = await this.#transport.json("uploadFiles", { path: this.#path, raw: { body: form(directory, files) }, ...options });
    return answer.paths;
  }

  /** The entries of a directory: at most 10,000, and `truncated` says whether there are more. */
  list(path = ".", options: CallOptions & { recursive?: boolean } = {}): Promise<ListView> {
    const { recursive, ...call } = options;
    return this.#transport.json("listFiles", { path: this.#path, query: flags({ path, recursive }), ...call });
  }

  /** What a path is. Links are followed, unless `follow` is false. */
  stat(path: string, options: CallOptions & { follow?: boolean } = {}): Promise<FileView> {
    const { follow, ...call } = options;
    return this.#transport.json("statFile", { path: this.#path, query: flags({ path, follow }), ...call });
  }

  /**
   * What changes in a directory, by default /workspace; with `recursive`, also below it. `await watch.ready()` resolves when everything is
   * watched; so does the first change.
   */
  watch(path = ".", options: WatchOptions = {}): Watch {
    return new Watch(this.#transport, this.#path.sessionId, path, options);
  }

  async exists(path: string, options: CallOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof FileNotFound) return false;
      throw error;
    }
  }

  /** Makes a directory; with `parents`, also those above it, and it may exist. */
  mkdir(path: string, options: CallOptions & { parents?: boolean } = {}): Promise<FileView> {
    const { parents, ...call } = options;
    return this.#transport.json("makeDirectory", { path: this.#path, body: flags({ path, parents }), ...call });
  }

  move(from: string, to: string, options: CallOptions & { overwrite?: boolean } = {}): Promise<FileView> {
    const { overwrite, ...call } = options;
    return this.#transport.json("moveFile", { path: this.#path, body: { from, to, ...flags({ overwrite }) }, ...call });
  }

  async delete(path: string, options: CallOptions & { recursive?: boolean } = {}): Promise<void> {
    const { recursive, ...call } = options;
    await this.#transport.json("deleteFile", { path: this.#path, query: flags({ path, recursive }), ...call });
  }

  /** The content of a directory as a tar archive. */
  async readArchive(path: string, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const { body } = await this.#transport.raw("readArchive", { path: this.#path, query: { path }, ...options });
    if (!body) throw new ProtocolError("the archive has no body");
    return body;
  }

  /** Unpacks a tar archive, without compression, into a directory, which is created if it is missing. Not all or nothing. */
  async writeArchive(path: string, archive: Uint8Array | Blob | ReadableStream<Uint8Array>, options: CallOptions = {}): Promise<number> {
    const raw = { body: archive, type: "application/x-tar" };
    const answer = await this.#transport.json("unpackArchive", { path: this.#path, query: { path }, raw, requestTimeoutMs: TRANSFER_TIMEOUT_MS, ...options });
    return answer.bytes;
  }

  /** Sends a directory of this machine into the sandbox. What `.gitignore` and `.coveignore` name stays here. */
  async uploadDir(local: string, remote = ".", options: UploadDirOptions = {}): Promise<TransferProgress> {
    const { signal, requestTimeoutMs } = options;
    const { packDirectory } = await import("#node");
    const packed = packDirectory(local, options);
    await this.writeArchive(remote, packed.stream, { signal, ...(requestTimeoutMs === undefined ? {} : { requestTimeoutMs }) });
    return packed.progress;
  }

  /** Copies a directory of the sandbox to this machine. Files that exist are replaced; nothing is written outside of `local`. */
  async downloadDir(remote: string, local: string, options: DownloadDirOptions = {}): Promise<TransferProgress> {
    const { unpackDirectory } = await import("#node");
    const { onProgress, ...call } = options;
    return unpackDirectory(await this.readArchive(remote, call), local, onProgress);
  }
}

/** Files of a workspace, with and without a session that uses it. */
export class WorkspaceFiles {
  readonly #transport: Transport;
  readonly #path: { workspaceId: string };

  constructor(transport: Transport, workspaceId: string) {
    this.#transport = transport;
    this.#path = { workspaceId };
  }

  list(path = ".", options: CallOptions & { recursive?: boolean } = {}): Promise<ListView> {
    const { recursive, ...call } = options;
    return this.#transport.json("listWorkspaceFiles", { path: this.#path, query: flags({ path, recursive }), ...call });
  }

  /** The content of a file. Throws if it is longer than `maxBytes`, or than what the daemon puts into one answer. */
  async read(path: string, options: CallOptions & { maxBytes?: number } = {}): Promise<Uint8Array> {
    const { maxBytes, ...call } = options;
    const answer = await this.#transport.json("readWorkspaceFile", { path: this.#path, query: flags({ path, maxBytes }), ...call });
    if (answer.truncated) throw new ProtocolError(`${path} is too large for one answer; read it in a session that uses the workspace`);
    return fromBase64(answer.contentBase64);
  }

  async readText(path: string, options: CallOptions = {}): Promise<string> {
    return decode(await this.read(path, options));
  }

  async write(path: string, data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    const content = typeof data === "string" ? { text: data } : { contentBase64: toBase64(data) };
    await this.#transport.json("writeWorkspaceFile", { path: this.#path, body: { path, ...content }, ...options });
  }

  async writeMany(directory: string, files: Readonly<Record<string, string | Uint8Array>>, options: CallOptions = {}): Promise<string[]> {
    const answer = await this.#transport.json("uploadWorkspaceFiles", { path: this.#path, raw: { body: form(directory, files) }, ...options });
    return answer.paths;
  }
}

/** An object without the fields that are undefined. */
export function flags<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as { [K in keyof T]: Exclude<T[K], undefined> };
}

function form(directory: string, files: Readonly<Record<string, string | Uint8Array>>): FormData {
  const data = new FormData();
  data.append("path", directory);
  for (const [name, content] of Object.entries(files)) data.append("file", new Blob([content as BlobPart]), name);
  return data;
}

/**
 * A path as a part of an address. Every URL parser takes `.` and `..` out of an address, which would lead to another route, so they are
 * taken out here.
 */
export function filePath(path: string): string {
  const invalid = (message: string) => new InvalidRequest({ code: "INVALID_REQUEST", status: 400, message });
  if (path === "" || path.includes("\0")) throw invalid("the path is empty or has a NUL; give an absolute path, or one relative to /workspace");
  const kept: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") {
      if (kept.pop() === undefined && !path.startsWith("/")) throw invalid(`${path} leaves /workspace; give an absolute path instead`);
    } else if (part !== "" && part !== ".") kept.push(part);
  }
  return `${path.startsWith("/") ? "/" : ""}${kept.map(encodeURIComponent).join("/")}`;
}

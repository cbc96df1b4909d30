// Unpacks a tar archive from a sandbox, which is not trusted: nothing is written outside of the directory, no link is followed, and no
// file gets special bits.
import { constants, link, lstat, mkdir, open, rm, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { TransferProgress } from "../files.js";
import { CoveError } from "../errors.js";
import { BLOCK, padding, readHeader, readRecords, type RawHeader } from "./tar.js";

/** The longest pax or GNU header that is read. */
const MAX_RECORDS_BYTES = 1 << 20;

/** Reads an exact number of bytes at a time. */
class Bytes {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #rest: Uint8Array = new Uint8Array(0);

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = stream.getReader();
  }

  /** Up to `most` bytes; undefined at the end. */
  async some(most: number): Promise<Uint8Array | undefined> {
    while (this.#rest.length === 0) {
      const { done, value } = await this.#reader.read();
      if (done) return undefined;
      this.#rest = value;
    }
    const taken = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(taken.length);
    return taken;
  }

  async exactly(count: number): Promise<Uint8Array> {
    const whole = new Uint8Array(count);
    for (let at = 0; at < count; ) {
      const piece = await this.some(count - at);
      if (!piece) throw new CoveError("the archive ended too early: the connection broke, or the directory changed meanwhile; try again");
      whole.set(piece, at);
      at += piece.length;
    }
    return whole;
  }

  async skip(count: number): Promise<void> {
    for (let left = count; left > 0; ) left -= (await this.exactly(Math.min(left, 64 << 10))).length;
  }

  async drain(): Promise<void> {
    while ((await this.some(Number.MAX_SAFE_INTEGER)) !== undefined);
  }

  cancel(): Promise<void> {
    return this.#reader.cancel();
  }
}

export async function unpackDirectory(archive: ReadableStream<Uint8Array>, local: string, onProgress?: (progress: TransferProgress) => void): Promise<TransferProgress> {
  const progress: TransferProgress = { path: "", files: 0, bytes: 0 };
  const bytes = new Bytes(archive);
  try {
    await mkdir(local, { recursive: true });
    for await (const entry of entries(bytes)) {
      const name = safeName(entry.name);
      if (name === undefined) {
        await bytes.skip(entry.size + padding(entry.size).length);
        continue;
      }
      await place(bytes, local, name, entry);
      progress.path = name;
      if (entry.type !== "5") progress.files += 1;
      progress.bytes += entry.size;
      onProgress?.({ ...progress });
    }
    await bytes.drain();
  } catch (error) {
    // The connection may be broken already.
    await bytes.cancel().catch(() => undefined);
    throw error;
  }
  return progress;
}

/** The entries, with what extended headers say about them. */
async function* entries(bytes: Bytes): AsyncGenerator<RawHeader, void, undefined> {
  let more: Partial<RawHeader> = {};
  for (;;) {
    const raw = readHeader(await bytes.exactly(BLOCK));
    if (!raw) return;
    if (!["x", "g", "L", "K"].includes(raw.type)) {
      yield { ...raw, ...more };
      more = {};
      continue;
    }
    if (raw.size > MAX_RECORDS_BYTES) throw new CoveError("the archive is damaged: a header is too long");
    const body = await bytes.exactly(raw.size);
    await bytes.skip(padding(raw.size).length);
    const text = () => Buffer.from(body).toString("utf8").replace(/\0.*$/s, "");
    if (raw.type === "L") more.name = text();
    if (raw.type === "K") more.link = text();
    if (raw.type !== "x") continue;
    const records = readRecords(body);
    const [path, linkpath, size] = ["path", "linkpath", "size"].map((name) => records.get(name));
    if (path !== undefined) more.name = path;
    if (linkpath !== undefined) more.link = linkpath;
    if (size !== undefined) more.size = Number(size);
  }
}

/** The name without what would lead out of the directory; undefined for the directory itself. */
function safeName(name: string): string | undefined {
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  if (name.startsWith("/") || parts.includes("..") || name.includes("\0")) throw new CoveError(`the archive names ${JSON.stringify(name)}, which is outside of the directory`);
  return parts.length === 0 ? undefined : parts.join("/");
}

async function place(bytes: Bytes, local: string, name: string, entry: RawHeader): Promise<void> {
  await makeParents(local, name);
  const path = join(local, name);
  switch (entry.type) {
    case "5":
      await makeDirectory(path);
      return;
    case "2":
      await rm(path, { recursive: true, force: true });
      await symlink(entry.link, path);
      return;
    case "1": {
      const from = safeName(entry.link);
      if (from === undefined) throw new CoveError("the archive has a link to its own directory");
      await makeParents(local, from);
      await rm(path, { recursive: true, force: true });
      await link(join(local, from), path);
      return;
    }
    case "0":
    case "7":
      await writeFile(bytes, path, entry);
      return;
    default:
      // Devices and pipes are not made here.
      await bytes.skip(entry.size + padding(entry.size).length);
  }
}

/** Makes the directories above a path. A link in their place is refused: it could lead anywhere. */
async function makeParents(local: string, name: string): Promise<void> {
  const parts = dirname(name) === "." ? [] : dirname(name).split("/");
  let path = local;
  for (const part of parts) {
    path = join(path, part);
    await makeDirectory(path);
  }
}

async function makeDirectory(path: string): Promise<void> {
  const there = await lstat(path).catch(() => undefined);
  if (there?.isDirectory()) return;
  if (there) throw new CoveError(`${path} exists and is not a directory; remove it, or choose another directory`);
  await mkdir(path);
}

async function writeFile(bytes: Bytes, path: string, entry: RawHeader): Promise<void> {
  await rm(path, { recursive: true, force: true });
  const handle = await open(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, entry.mode & 0o777);
  try {
    for (let left = entry.size; left > 0; ) {
      const piece = await bytes.some(left);
      if (!piece) throw new CoveError("the archive ended too early: the connection broke, or the directory changed meanwhile; try again");
      await handle.writeFile(piece);
      left -= piece.length;
    }
    await handle.chmod(entry.mode & 0o777);
    await handle.utimes(entry.mtime, entry.mtime);
  } finally {
    await handle.close();
  }
  await bytes.skip(padding(entry.size).length);
}

// Packs a directory of this machine as a tar archive, without what ignore files name. Files are read as the archive is sent.
import { open, readdir, readFile, readlink, lstat, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import type { TransferProgress, UploadDirOptions } from "../files.js";
import { CoveError } from "../errors.js";
import { IgnoreRules } from "./ignore.js";
import { BLOCK, header, padding, type Entry } from "./tar.js";

/** Ignore files that are respected in every directory. */
const IGNORE_FILES = [".gitignore", ".coveignore"];
const PIECE_BYTES = 256 << 10;

export interface Packed {
  stream: ReadableStream<Uint8Array>;
  /** Changes while the stream is read. */
  progress: TransferProgress;
}

export function packDirectory(local: string, options: UploadDirOptions): Packed {
  const progress: TransferProgress = { path: "", files: 0, bytes: 0 };
  const rules = IgnoreRules.none.with((options.ignore ?? []).join("\n"), "");
  const names = options.ignoreFiles ?? IGNORE_FILES;
  const pieces = archive(local, names, rules, (path, bytes, isFile) => {
    progress.path = path;
    progress.bytes += bytes;
    if (isFile) progress.files += 1;
    options.onProgress?.({ ...progress });
  });
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await pieces.return();
      },
    },
    { highWaterMark: 1 },
  );
  return { stream, progress };
}

type Told = (path: string, bytes: number, isFile: boolean) => void;

async function* archive(local: string, names: readonly string[], rules: IgnoreRules, told: Told): AsyncGenerator<Uint8Array, void, undefined> {
  const root = await lstat(local).catch((error: unknown) => {
    throw new CoveError(`cannot read ${local}: ${(error as Error).message}`, { cause: error });
  });
  if (!root.isDirectory()) throw new CoveError(`${local} is not a directory; send a file with session.files.write`);
  yield* directory(local, "", names, rules, told);
  // Two empty blocks end an archive.
  yield new Uint8Array(2 * BLOCK);
}

async function* directory(local: string, path: string, names: readonly string[], outer: IgnoreRules, told: Told): AsyncGenerator<Uint8Array, void, undefined> {
  const entries = await readdir(join(local, path), { withFileTypes: true });
  let rules = outer;
  for (const name of names) {
    if (entries.some((entry) => entry.name === name && entry.isFile())) rules = rules.with(await readFile(join(local, path, name), "utf8"), path);
  }
  entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    const inner = `${path}${entry.name}`;
    if (rules.ignores(inner, entry.isDirectory())) continue;
    const place = join(local, inner);
    const facts = await lstat(place);
    const common = { mode: facts.mode & 0o777, mtime: Math.floor(facts.mtimeMs / 1000), size: 0 };
    if (entry.isDirectory()) {
      yield header({ ...common, name: `${inner}/`, kind: "directory" });
      yield* directory(local, `${inner}/`, names, rules, told);
    } else if (entry.isSymbolicLink()) {
      yield header({ ...common, name: inner, kind: "symlink", link: await readlink(place) });
      told(inner, 0, true);
    } else if (entry.isFile()) {
      yield* file(place, { ...common, name: inner, kind: "file" }, told);
    }
    // Sockets, pipes and devices have no content to send.
  }
}

async function* file(place: string, entry: Entry, told: Told): AsyncGenerator<Uint8Array, void, undefined> {
  const handle: FileHandle = await open(place);
  try {
    const { size } = await handle.stat();
    yield header({ ...entry, size });
    for (let sent = 0; sent < size; ) {
      const { bytesRead, buffer } = await handle.read({ buffer: Buffer.alloc(Math.min(PIECE_BYTES, size - sent)) });
      if (bytesRead === 0) throw new CoveError(`${place} became shorter while it was sent; try again`);
      sent += bytesRead;
      told(entry.name, bytesRead, false);
      yield new Uint8Array(buffer.buffer, buffer.byteOffset, bytesRead);
    }
    yield padding(size);
    told(entry.name, 0, true);
  } finally {
    await handle.close();
  }
}

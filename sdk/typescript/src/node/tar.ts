// The tar format: headers that are written (ustar, with pax records for long names), and headers that are read.
import { CoveError } from "../errors.js";

export const BLOCK = 512;
/** The longest name, and the largest size, that a ustar header has room for. */
const MAX_NAME_BYTES = 100;
const MAX_SIZE = 0o77777777777;
const ENCODER = new TextEncoder();

export type Kind = "file" | "directory" | "symlink" | "hardlink";

export interface Entry {
  name: string;
  kind: Kind;
  mode: number;
  mtime: number;
  size: number;
  link?: string;
}

const TYPE: Record<Kind, string> = { file: "0", hardlink: "1", symlink: "2", directory: "5" };

/** The header of an entry, and before it one with what does not fit. */
export function header(entry: Entry): Uint8Array {
  const records: string[] = [];
  const isLong = (text: string) => ENCODER.encode(text).length > MAX_NAME_BYTES;
  if (isLong(entry.name)) records.push(record("path", entry.name));
  if (entry.link !== undefined && isLong(entry.link)) records.push(record("linkpath", entry.link));
  if (entry.size > MAX_SIZE) records.push(record("size", String(entry.size)));
  const main = block(entry, TYPE[entry.kind]);
  if (records.length === 0) return main;
  const body = ENCODER.encode(records.join(""));
  const pax = block({ name: "pax", kind: "file", mode: 0o644, mtime: entry.mtime, size: body.length }, "x");
  return Buffer.concat([pax, body, padding(body.length), main]);
}

/** A pax record begins with its own length. */
function record(name: string, value: string): string {
  const rest = ` ${name}=${value}\n`;
  const bytes = ENCODER.encode(rest).length;
  let length = bytes + 1;
  while (String(length).length + bytes !== length) length = String(length).length + bytes;
  return `${length}${rest}`;
}

function block(entry: Entry, type: string): Uint8Array {
  const bytes = new Uint8Array(BLOCK);
  const put = (at: number, length: number, text: string) => {
    bytes.set(ENCODER.encode(text).subarray(0, length), at);
  };
  const octal = (at: number, length: number, value: number) => {
    put(at, length, `${value.toString(8).padStart(length - 1, "0")}\0`);
  };
  put(0, MAX_NAME_BYTES, entry.name);
  octal(100, 8, entry.mode);
  octal(108, 8, 0);
  octal(116, 8, 0);
  octal(124, 12, Math.min(entry.size, MAX_SIZE));
  octal(136, 12, Math.max(0, entry.mtime));
  put(156, 1, type);
  put(157, MAX_NAME_BYTES, entry.link ?? "");
  put(257, 8, "ustar\u000000");
  // The sum counts its own field as spaces.
  put(148, 8, "        ");
  put(148, 8, `${sum(bytes).toString(8).padStart(6, "0")}\0 `);
  return bytes;
}

const sum = (bytes: Uint8Array): number => bytes.reduce((all, byte) => all + byte, 0);

/** The zeros after content, up to the next block. */
export function padding(size: number): Uint8Array {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}

export interface RawHeader {
  name: string;
  type: string;
  mode: number;
  mtime: number;
  size: number;
  link: string;
}

/** Reads a header; undefined for an empty block, which ends the archive. */
export function readHeader(block: Uint8Array): RawHeader | undefined {
  if (block.every((byte) => byte === 0)) return undefined;
  const text = (at: number, length: number) => {
    const field = block.subarray(at, at + length);
    const end = field.indexOf(0);
    return Buffer.from(end < 0 ? field : field.subarray(0, end)).toString("utf8");
  };
  const number = (at: number, length: number): number => {
    // GNU tar writes large numbers in binary.
    if (((block[at] ?? 0) & 0x80) !== 0) return block.subarray(at + 1, at + length).reduce((all, byte) => all * 256 + byte, 0);
    return parseInt(text(at, length).trim() || "0", 8);
  };
  const spaced = block.slice();
  spaced.fill(0x20, 148, 156);
  if (number(148, 8) !== sum(spaced)) throw new CoveError("the archive is damaged: the sum of a header is wrong");
  const prefix = text(257, 5) === "ustar" ? text(345, 155) : "";
  return {
    name: prefix ? `${prefix}/${text(0, 100)}` : text(0, 100),
    type: text(156, 1) || "0",
    mode: number(100, 8),
    mtime: number(136, 12),
    size: number(124, 12),
    link: text(157, 100),
  };
}

/** The records of a pax header. */
export function readRecords(body: Uint8Array): Map<string, string> {
  const records = new Map<string, string>();
  let at = 0;
  while (at < body.length) {
    const space = body.indexOf(0x20, at);
    const length = parseInt(Buffer.from(body.subarray(at, space)).toString("latin1"), 10);
    if (space < 0 || !(length > 0)) throw new CoveError("the archive is damaged: a pax record has no length");
    const text = Buffer.from(body.subarray(space + 1, at + length - 1)).toString("utf8");
    const equals = text.indexOf("=");
    records.set(text.slice(0, equals), text.slice(equals + 1));
    at += length;
  }
  return records;
}

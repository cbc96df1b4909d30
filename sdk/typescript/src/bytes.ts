// Bytes, text and base64, with what every JavaScript runtime has.

const encoder = new TextEncoder();

export const encode = (text: string): Uint8Array => encoder.encode(text);

/** Bytes as text. Bytes that are not UTF-8 appear as U+FFFD. A byte order mark stays. */
export const decode = (bytes: Uint8Array): string => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);

export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** How many bytes become characters at once: the arguments of one call are limited. */
const BASE64_SLICE = 0x8000;

export function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let at = 0; at < bytes.length; at += BASE64_SLICE) binary += String.fromCharCode(...bytes.subarray(at, at + BASE64_SLICE));
  return btoa(binary);
}

export function concat(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** The fields of a request that carry bytes or text, such as `stdin` and `stdinBase64`. */
export function textOrBytes<N extends string>(name: N, data: string | Uint8Array | undefined): Partial<Record<N | `${N}Base64`, string>> {
  if (data === undefined) return {};
  const field = typeof data === "string" ? { [name]: data } : { [`${name}Base64`]: toBase64(data) };
  return field as Partial<Record<N | `${N}Base64`, string>>;
}

/** A random id: letters and digits, unique enough to be an id that a client chooses. */
export function randomId(prefix: string): string {
  const random = crypto.getRandomValues(new Uint8Array(12));
  return `${prefix}${Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

// Names on the wire are in snake_case, names of this SDK in camelCase. This converts between them. The keys of maps such as `labels`
// and `env` are data: they stay as they are.
import { MAP_FIELDS } from "./generated.js";

const maps = new Set(MAP_FIELDS);

const toCamel = (name: string): string => name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
export const toSnake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

function convert(value: unknown, name: (from: string) => string, isMap: (from: string) => boolean): unknown {
  if (Array.isArray(value)) return value.map((item) => convert(item, name, isMap));
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).map(([key, field]) => [name(key), isMap(key) ? field : convert(field, name, isMap)] as const);
  return Object.fromEntries(fields);
}

/** An answer of the daemon, with names in camelCase. */
export function fromWire(value: unknown): unknown {
  return convert(value, toCamel, (name) => maps.has(toCamel(name)));
}

/** A request as the daemon reads it. */
export function toWire(value: unknown): unknown {
  return convert(value, toSnake, (name) => maps.has(name));
}

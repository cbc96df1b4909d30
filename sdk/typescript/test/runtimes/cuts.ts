// Where the connections of a story are cut: some before the answer's head is complete, the others somewhere in its body.

/** What the head of an answer has, about. */
export const HEAD_BYTES = 500;
/** A piece of output has up to 64 KiB, which are some more as an event: one that is carried whole is progress. */
const LEAST_BYTES = 80_000;
const MOST_BYTES = 250_000;
/** How many cuts a story meets at least: its longest stream has 2,000,000 bytes. */
export const LEAST_CUTS = 2_000_000 / MOST_BYTES;

/** After how many bytes the next connection is cut. Two of three make progress, so that no stream gives up. */
export function cuts(): () => number {
  let connections = 0;
  return () => {
    connections += 1;
    return Math.floor(connections % 3 === 0 ? Math.random() * HEAD_BYTES : LEAST_BYTES + Math.random() * (MOST_BYTES - LEAST_BYTES));
  };
}

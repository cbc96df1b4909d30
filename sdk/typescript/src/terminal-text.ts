// Turns terminal output into plain text: removes escape sequences, and replaces the terminal's line ends by "\n". It does what the daemon
// does for its own replies: a carriage return alone stays, and an unfinished sequence hides at most the rest of its line.

const ESC = 0x1b;
const BEL = 0x07;
const CAN = 0x18;
const SUB = 0x1a;
const LF = 0x0a;
const CR = 0x0d;

/** `control`: in a CSI sequence, up to its final byte. `string`: in an OSC, DCS, SOS, PM or APC string, up to BEL or ST. */
type State = "text" | "escape" | "intermediate" | "control" | "string";

export function clean(bytes: Uint8Array): Uint8Array {
  const text = new Uint8Array(bytes.length);
  let length = 0;
  const push = (byte: number) => {
    if (byte === BEL) return;
    if (byte === LF) while (length > 0 && text[length - 1] === CR) length--;
    text[length++] = byte;
  };
  let state: State = "text";
  for (const byte of bytes) state = step(state, byte, push);
  return text.subarray(0, length);
}

function step(state: State, byte: number, push: (byte: number) => void): State {
  if (state !== "text" && (byte === CAN || byte === SUB)) return "text";
  if (byte === ESC) return "escape";
  if (state === "string") {
    if (byte === LF) push(byte);
    return byte === LF || byte === BEL ? "text" : "string";
  }
  if (state === "text") {
    push(byte);
    return "text";
  }
  // A terminal handles a control character inside a sequence as if it came before the sequence.
  if (byte < 0x20) {
    push(byte);
    return state;
  }
  if (state === "escape" && byte === 0x5b) return "control";
  if (state === "escape" && [0x5d, 0x50, 0x58, 0x5e, 0x5f].includes(byte)) return "string";
  if (state !== "control" && byte < 0x30) return "intermediate";
  if (state === "control" && byte < 0x40) return "control";
  // No sequence contains a byte above 0x7f, so it is text again.
  if (byte > 0x7f) push(byte);
  return "text";
}

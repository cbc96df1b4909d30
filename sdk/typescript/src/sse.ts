// Reads server-sent events from the bytes of an answer. An event counts once its empty line has come; what a broken connection leaves
// unfinished is dropped.
import { ProtocolError } from "./errors.js";

export interface ServerEvent {
  event: string;
  id: string | undefined;
  data: string;
}

/** The longest event that is read. The daemon's are far smaller. */
const MAX_EVENT_CHARACTERS = 32 << 20;

export class EventParser {
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #rest = "";
  #searched = 0;

  /** The events that are complete with these bytes. */
  push(bytes: Uint8Array): ServerEvent[] {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const events: ServerEvent[] = [];
    let from = 0;
    for (;;) {
      const end = this.#rest.indexOf("\n\n", Math.max(from, this.#searched));
      if (end < 0) break;
      const event = parse(this.#rest.slice(from, end));
      if (event) events.push(event);
      from = end + 2;
      this.#searched = from;
    }
    this.#rest = this.#rest.slice(from);
    this.#searched = Math.max(0, this.#rest.length - 1);
    if (this.#rest.length > MAX_EVENT_CHARACTERS) throw new ProtocolError("the daemon sent an event that does not end");
    return events;
  }
}

function parse(block: string): ServerEvent | undefined {
  const event: ServerEvent = { event: "message", id: undefined, data: "" };
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    // A line that begins with a colon is a comment: the daemon's keep-alive.
    if (colon <= 0) continue;
    const value = line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    switch (line.slice(0, colon)) {
      case "event":
        event.event = value;
        break;
      case "id":
        event.id = value;
        break;
      case "data":
        data.push(value);
        break;
    }
  }
  if (data.length === 0) return undefined;
  event.data = data.join("\n");
  return event;
}

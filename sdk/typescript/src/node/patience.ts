// Node's fetch gives up if the head of an answer takes more than five minutes. A tool's answer comes when its command has ended, so such a
// request uses a dispatcher without that limit; the request's own time limit stays.
//
// Node has the class of dispatchers only inside, but the one that it uses by default is where undici's packages look for it. If that is not
// there, or if the program has set another kind (a proxy), the limit stays.
const DEFAULT_DISPATCHER = Symbol.for("undici.globalDispatcher.1");

type DispatcherClass = new (options: { headersTimeout: number; bodyTimeout: number }) => object;

let dispatcher: object | undefined;

/** What a request that may take long needs beside the usual. */
export function patience(): object {
  // Node loads its fetch, with the dispatcher, when one of its classes is first used.
  const isLoaded = typeof Headers === "function";
  const used = isLoaded ? (globalThis as Record<symbol, object | undefined>)[DEFAULT_DISPATCHER] : undefined;
  if (used?.constructor.name !== "Agent") return {};
  dispatcher ??= new (used.constructor as DispatcherClass)({ headersTimeout: 0, bodyTimeout: 0 });
  return { dispatcher };
}

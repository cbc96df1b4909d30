// The program of the page: the story through the page's own server, and what is special in a browser. It sends the results to /report.
import { Cove, Unsupported } from "@cove/sdk";
import { runStory, same, STEPS, thrown, type Step, type StepResult } from "./story.js";

/** What a page gets from the server that it came from. */
export interface PageSettings {
  /** Another daemon, and a key of it. */
  far: { url: string; apiKey: string };
  nobodyUrl: string;
  /** Whether that daemon allows this page's origin. */
  isAllowed: boolean;
}

/** How long it may take until a terminal that nobody reads is closed. */
const CLOSE_TIMEOUT_MS = 60_000;

export const BROWSER_STEPS: Record<string, Step> = {
  ...STEPS,

  async "what needs Node says so"({ cove }) {
    await using session = await cove.session();
    await thrown(session.files.uploadDir("/tmp"), Unsupported);
    await thrown(session.files.downloadDir(".", "/tmp"), Unsupported);
    await thrown(session.ports.connect(8000), Unsupported);
    await thrown(session.ports.forward(8000), Unsupported);
    await thrown(Cove.embedded(), Unsupported);
    await thrown(new Cove().health(), Unsupported);
  },

  async "a terminal that is not read is closed and says why, and one can be aborted"({ cove }) {
    await using session = await cove.session();
    const terminal = await session.terminal();
    terminal.write("stty -opost; head -c 40000000 /dev/zero | tr '\\0' x\n");
    // A terminal's shell ends with its connection.
    const signal = AbortSignal.timeout(CLOSE_TIMEOUT_MS);
    while ((await session.shells.list({ signal })).some(({ name }) => name === terminal.shell));
    let failure: unknown;
    try {
      for await (const bytes of terminal) if (bytes.length > 20_000_000) break;
    } catch (error) {
      failure = error;
    }
    same(String(failure).includes("bytes waited to be read"), true);
    await thrown(session.terminal({ signal: AbortSignal.abort(new Error("no")) }), Error);
  },
};

/** A page of another origin than the daemon, with a key of its own: only if the daemon allows the origin. */
const far = (settings: PageSettings): Record<string, Step> => ({
  [settings.isAllowed ? "a daemon that allows the page answers it" : "a daemon that does not allow the page does not answer it"]: async () => {
    const cove = new Cove({ ...settings.far, attempts: 1 });
    if (!settings.isAllowed) {
      await thrown(cove.session(), Error);
      return;
    }
    await using session = await cove.session();
    let text = "";
    for await (const chunk of session.stream("echo across origins")) text += chunk.text;
    same(text, "across origins\n");
    await session.files.write("a", "content");
    same([await session.files.readText("a"), (await session.files.read("a", { start: 1, end: 3 })).length], ["content", 2]);
    await thrown(session.terminal(), Unsupported);
  },
});

/** `hello` of page.ts in docs/guides/typescript.md. */
export type GuideProgram = (show: (text: string) => void) => Promise<void>;

/** The steps of a page: all of them, or the first one if the page is the control of the last. */
export function pageSteps(settings: PageSettings, guide: GuideProgram = () => Promise.resolve()): Record<string, Step> {
  if (!settings.isAllowed) return { ...Object.fromEntries(Object.entries(STEPS).slice(0, 1)), ...far(settings) };
  const program: Step = async () => {
    let shown = "";
    await guide((text) => (shown += text));
    same(shown, "hello from a sandbox\n");
  };
  return { ...BROWSER_STEPS, ...far(settings), "the program of the guide says hello": program };
}

/** Runs everything that belongs to the page. */
export async function runPage(guide?: GuideProgram): Promise<void> {
  const settings = (await (await fetch("/settings")).json()) as PageSettings;
  const results: StepResult[] = [];
  const place = {
    cove: new Cove({ url: "/cove" }),
    cut: new Cove({ url: "/cut/" }),
    stranger: new Cove({ ...settings.far, apiKey: "a-key-that-nobody-has" }),
    nobody: new Cove({ url: settings.nobodyUrl, apiKey: "any", attempts: 1 }),
    isBrowser: true,
  };
  await runStory(pageSteps(settings, guide), place, (result) => {
    results.push(result);
  });
  await fetch("/report", { method: "POST", body: JSON.stringify(results) });
}

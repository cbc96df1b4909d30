// The program that a runtime other than Node runs: the story, and the steps for what browsers do not have. It reads where the daemon is from
// COVE_STORY, and prints the result of each step as a line of JSON.
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { text } from "node:stream/consumers";
import { Cove } from "@cove/sdk";
import { runStory, same, STEPS, type Step } from "./story.js";

export interface StorySettings {
  url: string;
  cutUrl: string;
  nobodyUrl: string;
  apiKey: string;
}

export const SERVER_STEPS: Record<string, Step> = {
  ...STEPS,

  async "a directory goes there and back"({ cove }) {
    const directory = await mkdtemp(join(tmpdir(), "cove-story-"));
    try {
      await mkdir(join(directory, "from/node_modules"), { recursive: true });
      await writeFile(join(directory, "from/.gitignore"), "node_modules\n");
      await writeFile(join(directory, "from/node_modules/left-out"), "");
      await writeFile(join(directory, "from/large"), "x".repeat(3_000_000));
      await using session = await cove.session();
      const sent = await session.files.uploadDir(join(directory, "from"), "project");
      same(sent.files, 2);
      await session.files.downloadDir("project", join(directory, "back"));
      same((await readFile(join(directory, "back/large"), "utf8")).length, 3_000_000);
    } finally {
      await rm(directory, { recursive: true });
    }
  },

  async "a port is connected to and forwarded"({ cove }) {
    await using session = await cove.session();
    const program = "import socket\ns = socket.create_server(('127.0.0.1', 9000))\nwhile True:\n  c, _ = s.accept()\n  c.sendall(b'got ' + c.recv(100))\n  c.close()";
    const server = await session.spawn(["python3", "-c", program]);
    await session.ports.wait(9000);
    const direct = await session.ports.connect(9000);
    direct.write("one");
    same(await text(direct), "got one");
    const forwarded = await session.ports.forward(9000);
    const socket = connect(forwarded.port, forwarded.host);
    socket.write("two");
    same(await text(socket), "got two");
    await forwarded.close();
    await server.kill();
  },

  async "a daemon of its own is started and ended"() {
    const cove = await Cove.embedded();
    const url = await cove.url();
    const session = await cove.session();
    same((await session.exec("echo embedded")).output, "embedded\n");
    await cove.close();
    same(await fetch(`${url}/healthz`).then(() => "it answers", () => "it is gone"), "it is gone");
  },
};

const settings = process.env["COVE_STORY"];
if (settings !== undefined) {
  const { url, cutUrl, nobodyUrl, apiKey } = JSON.parse(settings) as StorySettings;
  const place = {
    cove: new Cove({ url, apiKey }),
    cut: new Cove({ url: cutUrl, apiKey }),
    stranger: new Cove({ url, apiKey: "a-key-that-nobody-has" }),
    nobody: new Cove({ url: nobodyUrl, apiKey, attempts: 1 }),
    isBrowser: false,
  };
  await runStory(SERVER_STEPS, place, (result) => {
    console.log(JSON.stringify(result));
  });
}

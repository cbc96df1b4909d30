// A daemon that is killed and started again while a stream is read.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TestDaemon } from "./harness.js";

const KILLS = 10;

test("a daemon that is killed ten times loses and doubles no byte", { timeout: 300_000 }, async () => {
  const daemon = await TestDaemon.start();
  try {
    const session = await daemon.client().session();
    const command = session.stream("i=0; until test -e /tmp/enough; do i=$((i+1)); echo line $i; sleep 0.01; done; echo total $i");
    let kills = 0;
    let text = "";
    let seen = 0;
    let killing: Promise<void> | undefined;
    for await (const chunk of command) {
      assert.equal(chunk.missingBefore, 0);
      assert.equal(chunk.offset, seen);
      seen += chunk.bytes.length;
      text += chunk.text;
      // The next kill comes when output has come through the daemon that was started after the last one.
      if (kills < KILLS) {
        await killing;
        kills += 1;
        killing = daemon.killAndRestart();
      } else if (killing) {
        await killing;
        killing = undefined;
        await session.run(["touch", "/tmp/enough"]);
      }
    }
    assert.equal(kills, KILLS);
    const total = Number(/total (\d+)\n$/.exec(text)?.[1]);
    assert.ok(total >= KILLS, text.slice(-200));
    assert.equal(text, `${Array.from({ length: total }, (_, at) => `line ${at + 1}\n`).join("")}total ${total}\n`);
    assert.equal(command.outcome?.exitCode, 0);
    await session.destroy();
  } finally {
    await daemon.stop();
  }
});

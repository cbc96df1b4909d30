// What somebody tries first who has installed the npm packages: a private daemon of an ordinary user, a shell that remembers, and a stream.
import assert from "node:assert/strict";
import { CommandFailed, Cove } from "@cove/sdk";

const cove = await Cove.embedded();
try {
  const session = await cove.session();
  await session.exec("cd /tmp && export NAME=world", { check: true });
  const result = await session.exec('echo "hello $NAME"', { check: true });
  assert.deepEqual([result.output, result.cwd, result.exitCode], ["hello world\n", "/tmp", 0]);
  let text = "";
  for await (const chunk of session.stream("for i in 1 2 3; do echo line $i; done")) text += chunk.text;
  assert.equal(text, "line 1\nline 2\nline 3\n");
  await assert.rejects(session.exec("exit 3", { check: true }), (error) => error instanceof CommandFailed && error.exitCode === 3);
  assert.equal((await session.exec("echo $NAME")).output, "world\n");
  await session.destroy();
} finally {
  await cove.close();
}
console.log("the Node program is done");

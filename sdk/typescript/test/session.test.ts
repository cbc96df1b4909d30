// Sessions and commands against a real daemon.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CommandFailed, CommandTimedOut, Conflict, ExecNotFound, InvalidRequest, SessionNotFound, ShellBusy, ShellNotFound, type CommandEvent, type Cove, type OutputChunk, type Session } from "@cove/sdk";
import { TestDaemon, until } from "./harness.js";

let daemon: TestDaemon;
let cove: Cove;
let session: Session;
before(async () => {
  daemon = await TestDaemon.start();
  cove = daemon.client();
  session = await cove.session();
});
after(async () => {
  await daemon.stop();
});

test("a shell remembers", async () => {
  await session.exec("cd /tmp && export WHO=agent");
  const result = await session.exec("echo $WHO in $PWD", { check: true });
  assert.equal(result.output, "agent in /tmp\n");
  assert.equal(result.cwd, "/tmp");
  assert.equal(result.ok, true);
  assert.equal((await session.refresh()).cwd, "/tmp");
});

test("check throws with exit code, output and directory", async () => {
  await assert.rejects(session.exec("cd /etc; echo bad; (exit 4)", { check: true }), (error: unknown) => {
    assert.ok(error instanceof CommandFailed);
    assert.deepEqual([error.exitCode, error.output, error.cwd, error.result.kind], [4, "bad\n", "/etc", "exited"]);
    return true;
  });
  const failing = async () => {
    for await (const _ of session.stream("echo streamed; false", { check: true }));
  };
  await assert.rejects(failing, (error: unknown) => error instanceof CommandFailed && error.output === "streamed\n");
});

test("standard input, variables, directory and streams go to the command", async () => {
  const options = { stdin: "a\nb\n", env: { X: "1" }, cwd: "/usr", streams: "split" } as const;
  const result = await session.exec("sort -r; echo $X $PWD >&2", options);
  assert.deepEqual([result.stdout, result.stderr], ["b\na\n", "1 /usr\n"]);
  const binary = await session.run(["od", "-An", "-tx1"], { stdin: Uint8Array.of(0, 255, 10) });
  assert.equal(binary.stdout, " 00 ff 0a\n");
  assert.equal(binary.cwd, undefined);
  const exact = await session.run(["printf", "\\377\\000"]);
  assert.deepEqual(exact.bytes, Uint8Array.of(255, 0));
});

test("a timeout is a result", async () => {
  const result = await session.exec("echo before; sleep 60", { timeoutMs: 300 });
  assert.deepEqual([result.kind, result.exitCode, result.timedOut, result.output], ["timed_out", 124, true, "before\n"]);
});

test("long output has its first and last part", async () => {
  const result = await session.exec("seq 100000", { maxOutputBytes: 20 });
  assert.equal(result.output, `1\n2\n3\n4\n5\n\n[${result.omittedBytes} bytes left out]\n99\n100000\n`);
  assert.ok(result.truncated);
  assert.equal(result.omittedBytes + 20, result.outputBytes);
});

test("a terminal's output is plain text unless it is asked for raw", async () => {
  const cmd = "printf '\\033[31mred\\033[0m\\n'";
  assert.equal((await session.exec(cmd, { streams: "tty" })).output, "red\n");
  assert.equal((await session.exec(cmd, { streams: "tty", rawOutput: true })).output, "\x1b[31mred\x1b[0m\r\n");
});

test("input reaches a program that waits at the terminal", async () => {
  const events: CommandEvent["event"][] = [];
  const command = session.stream("read -p 'name? ' name; echo hello $name", { streams: "tty", onEvent: ({ event }) => events.push(event) });
  let shown = "";
  for await (const chunk of command) {
    shown += chunk.text;
    if (shown.endsWith("name? ")) await session.input("world\n");
  }
  assert.match(shown, /hello world/);
  assert.ok(events.includes("started"));
  await assert.rejects(session.input(Uint8Array.of(10)), Conflict);
  await session.shells.resize(100, 30);
});

test("a spawned command leaves main free, has main's state, and closes its shell", async () => {
  await session.exec("cd /var && export COLOR=blue");
  const command = await session.spawn("echo $COLOR $PWD; until test -e /tmp/go; do sleep 0.05; done; exit 5");
  assert.equal(await command.poll(), undefined);
  await until("its output", async () => (await command.logs()) === "blue /var\n");
  assert.equal((await session.exec("touch /tmp/go; echo free")).output, "free\n");
  const result = await command.wait();
  assert.deepEqual([result.output, result.exitCode], ["blue /var\n", 5]);
  assert.equal((await command.poll())?.exitCode, 5);
  assert.deepEqual((await session.shells.list()).map((shell) => shell.name), ["main"]);
  // Another program finds it by its id.
  assert.equal((await (await cove.connect(session.id)).command(command.execId).wait()).output, "blue /var\n");
  const all = await session.execs();
  assert.ok(all.some((one) => one.execId === command.execId && one.state === "ended"));
  assert.equal((await session.execs({ limit: 1 })).length, 1);
});

test("a spawned program takes standard input, signals and a kill", async () => {
  const sort = await session.spawn(["sort"], { stdinOpen: true });
  assert.equal(await sort.write("b\n"), 2);
  await sort.write(new Blob(["a\n"]).stream());
  await sort.closeStdin();
  assert.equal((await sort.wait()).stdout, "a\nb\n");
  const cat = await session.spawn(["cat"], { stdinOpen: true });
  await cat.write(Uint8Array.of(65), { close: true });
  assert.equal((await cat.wait()).stdout, "A");
  const asleep = await session.spawn(["sleep", "600"]);
  await asleep.signal("TERM");
  assert.deepEqual([(await asleep.wait()).kind, asleep.outcome?.signal], ["signaled", 15]);
  const again = await session.spawn("sleep 600", { shell: "main" });
  await again.kill();
  assert.equal((await again.wait()).exitCode, 137);
});

test("an abort ends the command, unless it is told to leave it", async () => {
  const reason = new Error("the user left");
  for (const [onAbort, survives] of [["interrupt", false], ["kill", false], ["detach", true]] as const) {
    const controller = new AbortController();
    const execId = `aborted-${onAbort}`;
    await session.shells.open({ name: onAbort });
    const running = session.exec("echo begun; sleep 600", { signal: controller.signal, onAbort, execId, shell: onAbort, onOutput: () => { controller.abort(reason); } });
    await assert.rejects(running, reason);
    const command = session.command(execId);
    if (survives) {
      assert.equal(await command.poll(), undefined);
      await command.kill();
    }
    assert.notEqual((await command.wait()).exitCode, 0);
  }
  await assert.rejects(session.exec("touch /tmp/never", { signal: AbortSignal.abort(reason) }), reason);
  assert.equal((await session.exec("test -e /tmp/never")).exitCode, 1);
});

test("leaving a loop early leaves the command running", async () => {
  const command = session.stream("echo one; until test -e /tmp/left; do sleep 0.05; done; echo two");
  for await (const chunk of command) {
    assert.equal(chunk.text, "one\n");
    break;
  }
  await session.run(["touch", "/tmp/left"]);
  assert.equal((await command.wait()).output, "one\ntwo\n");
  const rest: OutputChunk[] = [];
  for await (const chunk of command.follow({ from: 2 })) rest.push(chunk);
  assert.equal(rest.map((chunk) => chunk.text).join(""), "e\ntwo\n");
});

test("a busy shell says which command it runs", async () => {
  const first = await session.spawn("sleep 600", { shell: "main" });
  await assert.rejects(session.exec("true", { queueTimeoutMs: 0 }), (error: unknown) => error instanceof ShellBusy && error.runningExecId === first.execId);
  await session.signal("INT", { shell: "main" });
  await first.wait();
});

test("shells are opened, reset and closed", async () => {
  await session.shells.open({ name: "second", env: { A: "1" }, cwd: "/usr" });
  assert.equal((await session.exec("echo $A $PWD", { shell: "second" })).output, "1 /usr\n");
  await session.exec("A=2", { shell: "second" });
  await session.shells.reset("second");
  assert.notEqual((await session.exec("echo $A", { shell: "second" })).output, "2\n");
  await session.shells.close("second");
  await assert.rejects(session.exec("true", { shell: "second" }), ShellNotFound);
  await assert.rejects(session.command("never-was").wait(), ExecNotFound);
  await assert.rejects(session.exec("true", { execId: "twice" }).then(() => session.exec("true", { execId: "twice" })), Conflict);
});

test("a shell is used by its name", async () => {
  const shell = await session.openShell({ cwd: "/usr" });
  await shell.exec("A=own");
  assert.equal((await shell.stream("echo $A $PWD").wait()).output, "own /usr\n");
  const busy = await shell.spawn("sleep 600");
  await shell.signal("INT");
  assert.equal((await busy.wait()).exitCode, 130);
  await shell.resize(101, 33);
  const size = shell.exec("stty size; read line; echo got $line", { streams: "tty", onEvent: ({ event }) => void (event === "awaiting_input" && shell.input("this\n")) });
  assert.match((await size).output, /33 101[^]*got this/);
  await session.resize(80, 24, { shell: shell.name });
  await shell.reset();
  assert.equal((await session.shell(shell.name).exec("echo [$A]")).output, "[]\n");
  await shell.close();
  await assert.rejects(shell.exec("true"), ShellNotFound);
});

test("a command that takes too long is an error of its own with check", async () => {
  await assert.rejects(session.exec("sleep 60", { timeoutMs: 100, check: true }), CommandTimedOut);
});

test("a terminal is typed at, resized and ended", async () => {
  const terminal = await session.terminal({ cols: 80, rows: 24 });
  terminal.resize(101, 33);
  terminal.write("stty size; exit 7\n");
  let shown = "";
  for await (const bytes of terminal) shown += new TextDecoder().decode(bytes);
  assert.match(shown, /33 101/);
  assert.deepEqual(terminal.exit, { exitCode: 7 });
  const named = await session.terminal({ shell: "for-people" });
  assert.equal(named.shell, "for-people");
  named.write("x".repeat(70_000));
  named.close();
  const gone = await cove.session();
  await gone.destroy();
  await assert.rejects(gone.terminal(), SessionNotFound);
  await assert.rejects(session.terminal({ signal: AbortSignal.abort(new Error("no")) }), /no/);
});

test("sessions are listed by label, updated, paused and found again", async () => {
  await using other = await cove.session("base", { labels: { job: "demo", my_key: "v" }, ttlSeconds: 100 });
  assert.deepEqual((await cove.list({ labels: { job: "demo", my_key: "v" } })).map(({ id }) => id), [other.id]);
  assert.deepEqual(await cove.list({ labels: { job: "other" } }), []);
  assert.deepEqual((await other.update({ labels: { job: "changed" } })).labels, { job: "changed" });
  assert.equal((await other.pause()).status, "paused");
  assert.deepEqual((await cove.list({ status: ["paused", "stopped"] })).map(({ id }) => id), [other.id]);
  assert.equal((await other.resume()).status, "running");
  const { pids } = await other.stats();
  assert.ok(pids > 0);
  {
    await using found = await cove.connect(other.id);
    assert.equal(found.info.labels["job"], "changed");
  }
  // Only its own session ends with a block.
  assert.equal((await other.refresh()).status, "running");
});

test("a session is destroyed at the end of its block, also after an error", async () => {
  let id = "";
  const failing = async () => {
    await using own = await cove.session();
    id = own.id;
    throw new Error("in the block");
  };
  await assert.rejects(failing, /in the block/);
  assert.deepEqual((await cove.list()).filter((one) => one.id === id), []);
  const gone = await cove.session();
  await gone.destroy();
  await gone.destroy();
  await assert.rejects(gone.exec("true"), SessionNotFound);
});

test("snapshots, forks, stop and start keep files and state", async () => {
  await using origin = await cove.session();
  await origin.exec("cd /tmp; export KEPT=yes; echo kept > /workspace/file");
  const snapshot = await origin.snapshot({ name: "base" });
  assert.equal((await cove.snapshots.get(snapshot.id)).name, "base");
  assert.ok((await cove.snapshots.list()).some(({ id }) => id === snapshot.id));
  await using copy = await cove.session({ snapshot: snapshot.id });
  assert.equal((await copy.exec("echo $KEPT $PWD; cat /workspace/file")).output, "yes /tmp\nkept\n");
  const forks = await origin.fork({ count: 3 });
  const outputs = await Promise.all(forks.map((fork, at) => fork.exec(`echo ${at} >> /workspace/file; cat /workspace/file`)));
  assert.deepEqual(outputs.map(({ output }) => output), ["kept\n0\n", "kept\n1\n", "kept\n2\n"]);
  await Promise.all(forks.map((fork) => fork.destroy()));
  assert.equal((await origin.stop()).status, "stopped");
  await assert.rejects(origin.exec("true"), Conflict);
  await assert.rejects(origin.spawn(["true"]), Conflict);
  await assert.rejects(origin.spawn("true"), Conflict);
  assert.equal((await origin.start()).status, "running");
  assert.equal((await origin.exec("echo $KEPT; cat /workspace/file")).output, "yes\nkept\n");
  await cove.snapshots.delete(snapshot.id);
});

test("an aborted create leaves no session", async () => {
  const labels = { create: "aborted" };
  const controller = new AbortController();
  const creating = cove.session({ labels, signal: controller.signal });
  setImmediate(() => { controller.abort(new Error("changed my mind")); });
  await assert.rejects(creating, /changed my mind/);
  await until("no session is left", async () => (await cove.list({ labels })).length === 0);
});

test("the same idempotency key gives the same session", async () => {
  await using one = await cove.session({ idempotencyKey: "same" });
  assert.equal((await cove.session({ idempotencyKey: "same" })).id, one.id);
});

test("a compact view is short and says what it left out", async () => {
  const result = await session.exec("seq -f 'part %.0f' 5000; ls /nope", { view: "compact", maxTokens: 4000 });
  assert.deepEqual([result.exitCode, result.ok, result.truncated], [2, false, true]);
  assert.match(result.output, /cannot access '\/nope'/);
  assert.ok(result.output.length < 1000 && result.bytes.length < 1000);
  assert.equal(result.compact?.originalBytes, result.outputBytes);
  assert.ok(result.compact.tokens < result.compact.originalTokens);
  assert.equal((await session.command(result.execId).wait()).output.length, result.outputBytes);
  assert.equal((await session.exec("echo full")).compact, undefined);
  await assert.rejects(session.exec("true", { view: "compact", maxTokens: 1 }), InvalidRequest);
  await assert.rejects(session.exec("(exit 3)", { view: "compact", check: true }), (error: unknown) => error instanceof CommandFailed && error.exitCode === 3);
});

test("a compact view whose reply is lost is the output itself, of one command", async () => {
  let lost = 0;
  const fetch: typeof globalThis.fetch = async (input, init) => {
    const response = await globalThis.fetch(input, init);
    if (!(input as string).endsWith("/exec")) return response;
    lost++;
    throw new TypeError("cut");
  };
  const unlucky = await daemon.client({ fetch }).connect(session.id);
  const result = await unlucky.exec("echo once >> /tmp/lost; cat /tmp/lost", { view: "compact" });
  assert.deepEqual([lost, result.output, result.compact], [1, "once\n", undefined]);
});

test("an abort ends a command with a compact view, unless it is to go on", async () => {
  for (const onAbort of ["interrupt", "kill", "detach"] as const) {
    const controller = new AbortController();
    const execId = `compact-${onAbort}`;
    const running = session.exec(`touch /tmp/${execId}; sleep 600`, { view: "compact", signal: controller.signal, onAbort, execId });
    await until("the command runs", () => session.files.exists(`/tmp/${execId}`));
    controller.abort(new Error("gone"));
    await assert.rejects(running, /gone/);
    if (onAbort === "detach") {
      assert.equal(await session.command(execId).poll(), undefined);
      await session.command(execId).kill();
    }
    assert.equal((await session.exec("echo free")).output, "free\n");
  }
});

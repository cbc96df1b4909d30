// Tools for models: plain ones, and those of the frameworks, driven by the real packages with a scripted model.
import assert from "node:assert/strict";
import type Anthropic from "@anthropic-ai/sdk";
import { AIMessage, HumanMessage, type BaseMessage, type ToolMessage } from "@langchain/core/messages";
import { fakeModel } from "@langchain/core/testing";
import { Agent, Runner, shellTool, type Model, type ModelResponse } from "@openai/agents";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { after, before, test } from "node:test";
import { InvalidRequest, SessionNotFound, type Session } from "@cove/sdk";
import { aiTools } from "@cove/sdk/ai";
import { anthropicTools } from "@cove/sdk/anthropic";
import { langchainTools } from "@cove/sdk/langchain";
import { openaiShell, openaiTools } from "@cove/sdk/openai";
import { coveTools } from "@cove/sdk/tools";
import { TestDaemon, until } from "./harness.js";

const PIXEL = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");

let daemon: TestDaemon;
let session: Session;
before(async () => {
  daemon = await TestDaemon.start();
  session = await daemon.client().session();
});
after(async () => {
  await daemon.stop();
});

test("tools run, remember, and tell errors to the model", async () => {
  const tools = session.tools();
  assert.match(await tools.call("bash", { command: "cd /tmp; echo hi" }), /^hi\n\[exit code 0, in \/tmp, \d/);
  const failed = await tools.result("bash", '{"command": "printf here; pwd >&2; false"}');
  assert.equal(failed.failed, true);
  assert.match(failed.text, /^here\/tmp\n\[exit code 1, in \/tmp/);
  assert.match(await tools.call("bash", { command: "sleep 60", timeout_seconds: 1 }), /timed out/);
  assert.match(await tools.call("bash", { command: "getent hosts example.com" }), /denied: example\.com/);
  assert.match(await tools.call("bash", { command: "exit 3" }), /the shell was replaced/);
  assert.deepEqual(await tools.result("write", { path: "src/a.py", content: "one\ntwo\nthree\n" }), { text: "Created src/a.py (14 bytes).", failed: false });
  assert.match(await tools.call("read", { path: "src/a.py", offset: 2, limit: 1 }), /2\ttwo/);
  assert.match(await tools.call("edit", { path: "src/a.py", old_string: "two", new_string: "2" }), /^Edited src\/a\.py in 1 place\.\n[^]*\+2\n/);
  assert.match(await tools.call("ls", {}), /a\.py/);
  assert.deepEqual((await session.callTool("find", { pattern: "*.py" })).structured, { is_cut: false, paths: ["src/a.py"] });
  for (const [name, input, said] of [
    ["edit", { path: "src/a.py", old_string: "two", new_string: "2" }, /not in the file/],
    ["ls", { path: "/tmp/none-here" }, /none-here/],
    ["read", { path: "none" }, /none/],
    ["bash", {}, /give command/],
    ["read", { filePath: "a" }, /unknown field `filePath`.*path \(text, required\)/],
    ["bash", "no json", /the arguments are not JSON/],
    ["bash", 7, /the arguments are not an object/],
    ["bash", [], /the arguments are not an object/],
    ["read_file", { path: "a" }, /there is no tool read_file; the tools are read, write/],
  ] as const) {
    const answer = await tools.result(name, input);
    assert.equal(answer.failed, true, name);
    assert.match(answer.text, said);
  }
  await assert.rejects(session.callTool("read", {}), InvalidRequest);
  await assert.rejects(tools.call("bash", { command: "true" }, { signal: AbortSignal.abort(new Error("gone")) }), /gone/);
  const list = coveTools(session, { only: ["write"] });
  assert.equal(await list[0]!.execute('{"path": "b", "content": ""}'), "Created b (0 bytes).");
});

test("the model gets the tools that it may call, in the form of its API", async () => {
  const tools = session.tools({ only: ["bash", "read"] });
  assert.deepEqual(tools.schemas.map(({ name }) => name), ["read", "bash"]);
  assert.deepEqual(tools.openaiSchemas[0]!.function, tools.schemas[0]);
  assert.deepEqual(tools.anthropicSchemas[0]!.input_schema, tools.schemas[0]!.parameters);
  assert.ok(!("additionalProperties" in tools.geminiSchemas[0]!.parameters));
  assert.match(await tools.call("write", { path: "c", content: "" }), /there is no tool write; the tools are/);
  assert.equal(await session.files.exists("c"), false);
  assert.throws(() => session.tools({ only: ["list_files" as "ls"] }), /there is no tool list_files; the tools are read/);
  tools.schemas[0]!.parameters.properties = {};
  assert.ok("path" in tools.schemas[0]!.parameters.properties, "a caller cannot change the definitions");
});

test("what no model can change is thrown", async () => {
  const other = await daemon.client().session();
  const [tools, claude] = [other.tools(), anthropicTools(other)];
  await other.destroy();
  await assert.rejects(tools.call("ls", {}), SessionNotFound);
  await assert.rejects(claude.handle({ id: "t", name: "bash", input: { command: "true" } }), SessionNotFound);
});

test("an image comes as an image", async () => {
  await session.files.write("pixel.png", PIXEL);
  const tools = session.tools();
  const [text, image] = await tools.content("read", { path: "pixel.png" });
  assert.ok(text?.type === "text" && text.text.includes("image/png"));
  assert.deepEqual(image, { type: "image", mediaType: "image/png", dataBase64: PIXEL.toString("base64") });
  assert.equal(await tools.call("read", { path: "pixel.png" }), text.text);
  const answer = await anthropicTools(session).handle({ id: "t", name: "str_replace_based_edit_tool", input: { command: "view", path: "pixel.png" } });
  assert.deepEqual(answer.content, [text, { type: "image", source: { type: "base64", media_type: "image/png", data: PIXEL.toString("base64") } }]);
});

test("the tools continue in a session that was restored, and it ends with the first one", async () => {
  const cove = daemon.client();
  const first = await cove.session();
  const tools = first.tools();
  await tools.call("bash", { command: "echo good > state; export STEP=1" });
  const { snapshot_id: snapshot } = (await tools.reply("snapshot", {})).structured as { snapshot_id: string };
  await tools.call("bash", { command: "echo bad > state; STEP=2" });
  const ids = new Set([first.id]);
  for (let times = 0; times < 2; times++) {
    assert.equal((await tools.result("restore", { snapshot_id: snapshot })).failed, false);
    ids.add(tools.session.id);
    assert.match(await tools.call("bash", { command: "cat state; echo $STEP" }), /^good\n1\n/);
  }
  assert.equal(await first.files.readText("state"), "bad\n");
  await first.destroy();
  assert.equal(ids.size, 3);
  for (const id of ids) assert.equal((await cove.connect(id)).info.status, "destroyed");
  await cove.snapshots.delete(snapshot);
});

test("Anthropic's bash and text editor do what their commands say", async () => {
  const { definitions, handle } = anthropicTools(session);
  // The package's own types accept the definitions and the results.
  const request: Pick<Anthropic.MessageCreateParams, "tools"> = { tools: definitions };
  assert.equal(request.tools?.length, 2);
  const use = async (name: string, input: unknown) => {
    const result: Anthropic.ToolResultBlockParam = await handle({ id: "t1", name, input });
    assert.equal(result.tool_use_id, "t1");
    return { ...result, content: typeof result.content === "string" ? result.content : "" };
  };
  const edit = (input: Record<string, unknown>) => use("str_replace_based_edit_tool", input);
  await use("bash", { command: "export A=1; cd /usr" });
  assert.match((await use("bash", { command: "echo $A" })).content, /^1\n\[exit code 0, in \/usr/);
  assert.equal((await use("bash", { restart: true })).content, "The shell was started anew.");
  assert.match((await use("bash", { command: "echo [$A]" })).content, /^\[\]\n/);
  const path = "/workspace/t/f.txt";
  await edit({ command: "create", path, file_text: "a\nb\n" });
  assert.match((await edit({ command: "view", path })).content, /1\ta\n +2\tb/);
  assert.doesNotMatch((await edit({ command: "view", path, view_range: [2, -1] })).content, /1\ta/);
  assert.doesNotMatch((await edit({ command: "view", path, view_range: [1, 1] })).content, /2\tb/);
  await edit({ command: "insert", path, insert_line: 1, insert_text: "x\ny\n" });
  await edit({ command: "str_replace", path, old_str: "b", new_str: "B" });
  await edit({ command: "str_replace", path, old_str: "y\n" });
  assert.equal(await session.files.readText(path), "a\nx\nB\n");
  assert.match((await edit({ command: "view", path: "/workspace/t" })).content, /f\.txt/);
  const wrong = [
    { command: "undo_edit", path },
    { command: "insert", path, insert_line: 99, insert_text: "" },
    { command: "view", path: "/none" },
    { command: "view", path, view_range: [2] },
    { command: "view", path, view_range: [2, 1] },
    { command: "create", path },
  ];
  for (const input of wrong) assert.equal((await edit(input)).is_error, true, JSON.stringify(input));
  assert.equal((await use("browser", {})).is_error, true);
});

test("an agent of the OpenAI Agents SDK uses the tools", async () => {
  const usage = { requests: 1, inputTokens: 0, outputTokens: 0, totalTokens: 0 };
  const asked: unknown[] = [];
  const model: Model = {
    getResponse(request) {
      asked.push(request.input);
      const call = [{ name: "bash", input: { command: "echo from the sandbox" } }, { name: "read", input: { path: "pixel.png" } }][asked.length - 1];
      const output =
        call !== undefined
          ? [{ type: "function_call", callId: `c${asked.length}`, name: call.name, status: "completed", arguments: JSON.stringify(call.input) }]
          : [{ type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text: "finished" }] }];
      return Promise.resolve({ usage, output } as unknown as ModelResponse);
    },
    getStreamedResponse() {
      throw new Error("not streamed");
    },
  };
  const agent = new Agent({ name: "coder", model, tools: await openaiTools(session) });
  const result = await new Runner({ tracingDisabled: true }).run(agent, "go");
  assert.equal(result.finalOutput, "finished");
  assert.match(JSON.stringify(asked[1]), /from the sandbox\\n/);
  assert.match(JSON.stringify(asked[2]), /"input_image","image":"data:image\/png;base64,iVBOR/);
  const shell = openaiShell(session, { maxOutputBytes: 100 });
  assert.equal(shellTool({ shell }).name, "shell");
  const two = await shell.run({ commands: ["echo out; echo err >&2; (exit 2)", "true"] });
  assert.deepEqual(two.output, [
    { stdout: "out\n", stderr: "err\n", outcome: { type: "exit", exitCode: 2 } },
    { stdout: "", stderr: "", outcome: { type: "exit", exitCode: 0 } },
  ]);
  const late = await shell.run({ commands: ["sleep 60"], timeoutMs: 200 });
  assert.deepEqual(late.output, [{ stdout: "", stderr: "", outcome: { type: "timeout" } }]);
});

test("generateText of the AI SDK uses the tools", async () => {
  const usage = { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } };
  let step = 0;
  const model = new MockLanguageModelV3({
    doGenerate: () => {
      step += 1;
      const content =
        step === 1
          ? [{ type: "tool-call" as const, toolCallId: "c1", toolName: "write", input: JSON.stringify({ path: "ai.txt", content: "written" }) }, { type: "tool-call" as const, toolCallId: "c2", toolName: "read", input: JSON.stringify({ path: "pixel.png" }) }]
          : [{ type: "text" as const, text: "finished" }];
      const finishReason = step === 1 ? { unified: "tool-calls" as const, raw: undefined } : { unified: "stop" as const, raw: undefined };
      return Promise.resolve({ content, finishReason, usage, warnings: [] });
    },
  });
  const result = await generateText({ model, tools: await aiTools(session), prompt: "go", stopWhen: stepCountIs(3) });
  assert.equal(result.text, "finished");
  assert.equal(await session.files.readText("ai.txt"), "written");
  const told = JSON.stringify(model.doGenerateCalls[1]?.prompt);
  assert.match(told, /Created ai\.txt/);
  assert.match(told, /iVBOR/);
});

test("a chat model of LangChain uses the tools, and an abort of one ends the command", async () => {
  const model = fakeModel()
    .respondWithTools([{ name: "bash", args: { command: "cd /tmp; echo from the sandbox" } }])
    .respondWithTools([{ name: "read", args: { path: "none" } }])
    .respondWithTools([{ name: "read", args: { path: "pixel.png" } }])
    .respond(new AIMessage("finished"));
  const tools = await langchainTools(session);
  // What an agent does: it asks the model, and gives its tool calls to the tools until there are none.
  const messages: BaseMessage[] = [new HumanMessage("go")];
  const answers: ToolMessage[] = [];
  for (;;) {
    const said = (await model.bindTools(tools as never).invoke(messages)) as AIMessage;
    messages.push(said);
    if (!said.tool_calls?.length) break;
    for (const call of said.tool_calls) {
      const found = tools.find(({ name }) => name === call.name)!;
      answers.push((await found.invoke({ ...call, type: "tool_call" })) as ToolMessage);
    }
    messages.push(...answers.slice(-said.tool_calls.length));
  }
  assert.match(answers[0]?.text ?? "", /^from the sandbox\n\[exit code 0, in \/tmp/);
  assert.match(answers[1]?.text ?? "", /none/);
  assert.match(JSON.stringify(answers[2]?.content), /data:image\/png;base64,iVBOR/);
  assert.equal(messages.at(-1)?.content, "finished");
  await assert.rejects(tools[0]!.invoke({}), /schema/);
  const controller = new AbortController();
  const bash = tools.find(({ name }) => name === "bash")!;
  const running = bash.invoke({ command: "echo begun > /tmp/langchain; sleep 600" }, { signal: controller.signal });
  await until("the command runs", () => session.files.exists("/tmp/langchain"));
  controller.abort();
  await assert.rejects(running);
  // `main` is free again: the command was ended.
  assert.equal((await session.exec("echo free")).output, "free\n");
  // A command that no tool has started is left alone.
  const own = session.exec("sleep 2; echo end");
  await until("it runs", async () => (await session.execs()).at(-1)?.state === "running");
  const waiting = new AbortController();
  const queued = session.callTool("bash", { command: "echo never" }, { signal: waiting.signal });
  await until("the tool waits", async () => (await session.execs()).at(-1)?.state === "queued");
  waiting.abort();
  await assert.rejects(queued);
  await assert.rejects(session.callTool("bash", { command: "true" }, { signal: AbortSignal.abort() }));
  assert.equal((await own).output, "end\n");
});

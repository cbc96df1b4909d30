// Tools for models: plain ones, and those of the frameworks, driven by the real packages with a scripted model.
import assert from "node:assert/strict";
import type Anthropic from "@anthropic-ai/sdk";
import { AIMessage, HumanMessage, type BaseMessage, type ToolMessage } from "@langchain/core/messages";
import { fakeModel } from "@langchain/core/testing";
import { Agent, Runner, shellTool, type Model, type ModelResponse } from "@openai/agents";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { after, before, test } from "node:test";
import type { Session } from "@cove/sdk";
import { aiTools } from "@cove/sdk/ai";
import { anthropicTools } from "@cove/sdk/anthropic";
import { langchainTools } from "@cove/sdk/langchain";
import { openaiShell, openaiTools } from "@cove/sdk/openai";
import { coveTools } from "@cove/sdk/tools";
import { TestDaemon, until } from "./harness.js";

let daemon: TestDaemon;
let session: Session;
before(async () => {
  daemon = await TestDaemon.start();
  session = await daemon.client().session();
});
after(async () => {
  await daemon.stop();
});

test("plain tools run, remember, and tell errors to the model", async () => {
  const tools = Object.fromEntries(coveTools(session, { maxOutputBytes: 1000 }).map((tool) => [tool.name, tool]));
  const call = (name: string, input: unknown) => tools[name]!.execute(input);
  assert.deepEqual(tools["bash"]!.parameters.required, ["command"]);
  assert.equal(await call("bash", { command: "cd /tmp; echo hi" }), "hi\n[exit code 0; now in /tmp]");
  assert.equal(await call("bash", '{"command": "printf here; pwd >&2; false"}'), "here/tmp\n[exit code 1; now in /tmp]");
  assert.match(await call("bash", { command: "sleep 60", timeout_ms: 100 }), /exit code 124.*it was stopped because it took too long/);
  assert.match(await call("bash", { command: "getent hosts example.com" }), /denied example\.com/);
  assert.match(await call("bash", { command: "exit 3" }), /the shell was replaced/);
  assert.equal(await call("write_file", { path: "src/a.py", content: "one\ntwo\nthree\n" }), "wrote 14 bytes to src/a.py");
  assert.equal(await call("read_file", { path: "src/a.py", start_line: 2, end_line: 2 }), "     2\ttwo");
  assert.match(await call("edit_file", { path: "src/a.py", old_text: "two", new_text: "2" }), /edited src\/a\.py:\n {5}1\tone\n {5}2\t2\n/);
  assert.match(await call("edit_file", { path: "src/a.py", old_text: "two", new_text: "2" }), /^error: the old text does not occur/);
  assert.match(await call("edit_file", { path: "src/a.py", old_text: "e", new_text: "E" }), /^error: the old text occurs 3 times/);
  assert.equal(await call("list_files", { recursive: true }), "src/\nsrc/a.py");
  assert.equal(await call("list_files", { path: "/tmp/none-here" }).then((text) => text.startsWith("error: ")), true);
  assert.match(await call("read_file", { path: "src/a.py", start_line: 9 }), /^error: the file has 3 lines/);
  assert.match(await call("read_file", { path: "none" }), /^error: .*FILE_NOT_FOUND/);
  assert.match(await call("bash", {}), /^error: command is missing/);
  assert.match(await call("bash", "no json"), /^error: the arguments are not JSON/);
  assert.match(await call("bash", 7), /^error: the arguments are not an object/);
  assert.match(await call("bash", { command: "true", timeout_ms: "x" }), /^error: timeout_ms is no number/);
  await assert.rejects(tools["bash"]!.execute({ command: "true" }, { signal: AbortSignal.abort(new Error("gone")) }), /gone/);
});

test("Anthropic's bash and text editor do what their commands say", async () => {
  const { definitions, handle } = anthropicTools(session);
  // The package's own types accept the definitions and the results.
  const request: Pick<Anthropic.MessageCreateParams, "tools"> = { tools: definitions };
  assert.equal(request.tools?.length, 2);
  const use = async (name: string, input: unknown) => {
    const result: Anthropic.ToolResultBlockParam = await handle({ id: "t1", name, input });
    assert.equal(result.tool_use_id, "t1");
    return result;
  };
  const edit = (input: Record<string, unknown>) => use("str_replace_based_edit_tool", input);
  await use("bash", { command: "export A=1; cd /usr" });
  assert.equal((await use("bash", { command: "echo $A" })).content, "1\n[exit code 0; now in /usr]");
  assert.equal((await use("bash", { restart: true })).content, "the shell was restarted");
  assert.match(JSON.stringify((await use("bash", { command: "echo [$A]" })).content), /^"\[\]/);
  const path = "/workspace/t/f.txt";
  await edit({ command: "create", path, file_text: "a\nb\n" });
  assert.equal((await edit({ command: "view", path })).content, "     1\ta\n     2\tb");
  assert.equal((await edit({ command: "view", path, view_range: [2, -1] })).content, "     2\tb");
  await edit({ command: "insert", path, insert_line: 1, insert_text: "x\ny\n" });
  await edit({ command: "str_replace", path, old_str: "b", new_str: "B" });
  await edit({ command: "str_replace", path, old_str: "y\n" });
  assert.equal(await session.files.readText(path), "a\nx\nB\n");
  await session.exec("mkdir -p /workspace/t/.git /workspace/t/d/e/f");
  assert.equal((await edit({ command: "view", path: "/workspace/t" })).content, "/workspace/t/d/\n/workspace/t/d/e/\n/workspace/t/f.txt");
  for (const wrong of [{ command: "undo_edit", path }, { command: "insert", path, insert_line: 99, insert_text: "" }, { command: "view", path: "/none" }, { command: "create", path }]) {
    assert.equal((await edit(wrong)).is_error, true);
  }
  assert.equal((await use("browser", {})).is_error, true);
  const other = anthropicTools(session, { shell: "of-its-own" });
  assert.equal((await other.handle({ id: "t", name: "bash", input: { restart: true } })).content, "the shell was restarted");
});

test("an agent of the OpenAI Agents SDK uses the tools", async () => {
  const usage = { requests: 1, inputTokens: 0, outputTokens: 0, totalTokens: 0 };
  const asked: unknown[] = [];
  const model: Model = {
    getResponse(request) {
      asked.push(request.input);
      const output =
        asked.length === 1
          ? [{ type: "function_call", callId: "c1", name: "bash", status: "completed", arguments: JSON.stringify({ command: "echo from the sandbox" }) }]
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
          ? [{ type: "tool-call" as const, toolCallId: "c1", toolName: "write_file", input: JSON.stringify({ path: "ai.txt", content: "written" }) }]
          : [{ type: "text" as const, text: "finished" }];
      const finishReason = step === 1 ? { unified: "tool-calls" as const, raw: undefined } : { unified: "stop" as const, raw: undefined };
      return Promise.resolve({ content, finishReason, usage, warnings: [] });
    },
  });
  const result = await generateText({ model, tools: await aiTools(session), prompt: "go", stopWhen: stepCountIs(3) });
  assert.equal(result.text, "finished");
  assert.equal(await session.files.readText("ai.txt"), "written");
});

test("a chat model of LangChain uses the tools, and an abort of one ends the command", async () => {
  const model = fakeModel()
    .respondWithTools([{ name: "bash", args: { command: "cd /tmp; echo from the sandbox" } }])
    .respondWithTools([{ name: "read_file", args: { path: "none" } }])
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
  assert.equal(answers[0]?.content, "from the sandbox\n[exit code 0; now in /tmp]");
  assert.match(answers[1]?.text ?? "", /^error: .*FILE_NOT_FOUND/);
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
});

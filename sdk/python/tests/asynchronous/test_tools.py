"""Tools for models: what a model asks for is done by the daemon, and what it does wrong is told in words."""

from __future__ import annotations

import base64
import re
from types import SimpleNamespace

import pytest

from cove import AsyncCove, InvalidRequest, SessionNotFound, ToolImage, ToolText, Unauthorized
from cove.agents import AsyncAnthropicTools, AsyncTools

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


async def test_tools_do_what_they_are_asked(cove: AsyncCove) -> None:
    async with cove.session() as session:
        tools = session.tools()
        assert isinstance(tools, AsyncTools)
        assert {"read", "write", "edit", "ls", "bash", "restore"} <= {schema["name"] for schema in tools.schemas}
        assert re.match(r"\[exit code 0, in /tmp, \d", await tools.call("bash", {"command": "cd /tmp; export A=1"}))
        assert (await tools.call("bash", '{"command": "echo $A in $PWD"}')).startswith("1 in /tmp\n[exit code 0, in /tmp")
        text, failed = await tools.result("bash", {"command": "printf x; (exit 3)"})
        assert (failed, text.startswith("x\n[exit code 3, ")) == (True, True)
        assert "timed out" in await tools.call("bash", {"command": "sleep 60", "timeout_seconds": 1})
        assert "the shell was replaced" in await tools.call("bash", {"command": "exit 2"})
        assert await tools.call("write", {"path": "d/a.txt", "content": "one\ntwo\n"}) == "Created d/a.txt (8 bytes)."
        text, failed = await tools.result("edit", {"path": "d/a.txt", "old_string": "two", "new_string": "2"})
        assert (failed, "Edited d/a.txt in 1 place." in text, "+2" in text) == (False, True, True)
        assert "2\t2" in await tools.call("read", {"path": "d/a.txt", "offset": 2})
        assert "a.txt" in await tools.call("ls", {})
        assert "d/a.txt" in await tools.call("grep", {"pattern": "^on.$"})
        reply = await session.call_tool("find", {"pattern": "*.txt"})
        assert reply.structured is not None
        assert reply.structured["paths"] == ["d/a.txt"]


async def test_a_part_of_the_tools_is_all_that_a_model_can_call(cove: AsyncCove) -> None:
    async with cove.session() as session:
        tools = session.tools(only=["ls", "read"])
        assert [schema["name"] for schema in tools.schemas] == ["read", "ls"]
        assert [schema["function"]["name"] for schema in tools.openai_schemas] == ["read", "ls"]
        assert tools.anthropic_schemas[0]["input_schema"]["required"] == ["path"]
        assert "additionalProperties" not in tools.gemini_schemas[0]["parameters"]
        assert await tools.result("bash", {"command": "touch x"}) == ("there is no tool 'bash'; the tools are read, ls", True)
        assert not await session.files.exists("x")
        with pytest.raises(ValueError, match="there is no tool 'list_files'"):
            session.tools(only=["list_files"])


async def test_mistakes_of_a_model_are_answers(cove: AsyncCove) -> None:
    async with cove.session() as session:
        tools = session.tools()
        await session.files.write("twice", "x x")
        for name, arguments, said in [
            ("nothing", {}, "there is no tool 'nothing'; the tools are read, write"),
            ("bash", {}, "give command"),
            ("bash", {"command": 3}, "expected a string"),
            ("bash", {"cmd": "true"}, "command (text)"),
            ("bash", "[1]", "no JSON object"),
            ("bash", "{", "no JSON: Expecting"),
            ("read", {"path": "missing"}, "missing"),
            ("read", {"path": "twice", "offset": 9}, "9"),
            ("edit", {"path": "twice", "old_string": "x", "new_string": "y"}, "2"),
            ("edit", {"path": "twice", "old_string": "z", "new_string": "y"}, "not in the file"),
        ]:
            text, failed = await tools.result(name, arguments)  # type: ignore[arg-type]
            assert failed, name
            assert said in text, text
        with pytest.raises(InvalidRequest, match="path is empty"):
            await session.call_tool("read", {"path": ""})
    with pytest.raises(SessionNotFound):
        await tools.call("bash", {"command": "true"})
    with pytest.raises(SessionNotFound):
        await AsyncAnthropicTools(session).handle({"id": "t", "name": "bash", "input": {"command": "true"}})


async def test_a_wrong_key_is_not_told_to_the_model(cove: AsyncCove) -> None:
    async with cove.session() as session:
        endpoint = await session._transport.endpoint()
        async with AsyncCove(endpoint.base, "wrong") as other:
            session._transport, ours = other._transport, session._transport
            with pytest.raises(Unauthorized):
                await session.tools().call("ls", {})
            session._transport = ours


async def test_an_image_comes_as_an_image(cove: AsyncCove) -> None:
    async with cove.session() as session:
        await session.files.write("pixel.png", PIXEL)
        tools = session.tools()
        text, image = await tools.content("read", {"path": "pixel.png"})
        assert isinstance(text, ToolText)
        assert "image/png" in text.text
        assert image == ToolImage("image/png", PIXEL)
        assert await tools.call("read", {"path": "pixel.png"}) == text.text
        assert [type(part) for part in await tools.content("read", {})] == [ToolText]
        use = {"command": "view", "path": "pixel.png"}
        answer = await AsyncAnthropicTools(session).handle({"id": "t", "name": "str_replace_based_edit_tool", "input": use})
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
        assert answer["content"] == [{"type": "text", "text": text.text}, {"type": "image", "source": source}]


@pytest.mark.local_only("snapshots of Docker need an engine that commits")
async def test_the_tools_continue_in_a_session_that_was_restored(cove: AsyncCove) -> None:
    async with cove.session() as session:
        tools = session.tools()
        await tools.call("bash", {"command": "echo good > state; export STEP=1"})
        kept = (await session.call_tool("snapshot", {})).structured
        assert kept is not None
        await tools.call("bash", {"command": "echo bad > state; STEP=2"})
        for _ in range(2):
            text, failed = await tools.result("restore", {"snapshot_id": kept["snapshot_id"]})
            assert not failed, text
            assert tools.session.id != session.id
            assert (await tools.call("bash", {"command": "cat state; echo $STEP"})).startswith("good\n1\n")
        assert await session.files.read_text("state") == "bad\n"
    # Both sessions that were restored have ended with the first one.
    assert len(session._restored) == 2
    for gone in (*session._restored, session.id):
        with pytest.raises(SessionNotFound):
            await cove.connect(gone)
    await cove.snapshots.delete(kept["snapshot_id"])


async def test_anthropics_tools_have_their_shapes(cove: AsyncCove) -> None:
    async with cove.session() as session:
        tools = AsyncAnthropicTools(session)
        assert [one["name"] for one in tools.definitions] == ["bash", "str_replace_based_edit_tool"]
        assert tools.schemas == []

        async def use(name: str, **given: object) -> str:
            block = SimpleNamespace(type="tool_use", id="t1", name=name, input=given)
            answer = await tools.handle(block)
            assert (answer["type"], answer["tool_use_id"]) == ("tool_result", "t1")
            return ("error: " if answer.get("is_error") else "") + str(answer["content"])

        edit, path = "str_replace_based_edit_tool", "/workspace/f.py"
        assert (await use("bash", command="export A=1; cd /tmp; echo $A")).startswith("1\n[exit code 0, in /tmp")
        assert await use("bash", restart=True) == "The shell was started anew."
        assert (await use("bash", command="echo [$A]")).startswith("[]\n")
        assert await use(edit, command="create", path=path, file_text="a\nb\nc\n") == "Created /workspace/f.py (6 bytes)."
        shown = await use(edit, command="view", path=path, view_range=[2, 3])
        assert re.search(r"2\tb\n +3\tc", shown), shown
        assert "1\ta" not in shown
        assert "1\ta" in await use(edit, command="view", path=path, view_range=[1, -1])
        assert "f.py" in await use(edit, command="view", path="/workspace")
        assert "Edited /workspace/f.py" in await use(edit, command="str_replace", path=path, old_str="b\n", new_str="B\n")
        assert "/workspace/f.py" in await use(edit, command="insert", path=path, insert_line=0, insert_text="top")
        assert "/workspace/f.py" in await use(edit, command="insert", path=path, insert_line=4, insert_text="end\n")
        assert await session.files.read_text("f.py") == "top\na\nB\nc\nend\n"
        for wrong in [
            {"command": "undo", "path": path},
            {"command": "insert", "path": path, "insert_line": 99, "insert_text": "x"},
            {"command": "view", "path": "/none"},
            {"command": "view", "path": path, "view_range": [3]},
            {"command": "view", "path": path, "view_range": [3, 2]},
            {"command": "str_replace", "path": path, "old_str": "none"},
        ]:
            assert (await use(edit, **wrong)).startswith("error: "), wrong
        assert (await use("browser")).startswith("error: there is no tool 'browser'")
        block = {"type": "tool_use", "id": "t2", "name": "bash", "input": {"command": "echo dict"}}
        assert (await tools.handle(block))["content"].startswith("dict\n")

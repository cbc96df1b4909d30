"""Tools for models: what a model asks for is done, and what it does wrong is told in words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cove import AsyncCove, SessionNotFound
from cove.agents import AsyncAnthropicTools, AsyncTools


async def test_plain_tools_do_what_they_are_asked(cove: AsyncCove) -> None:
    async with cove.session() as session:
        tools = AsyncTools(session)
        assert [schema["name"] for schema in tools.schemas] == ["bash", "read_file", "write_file", "edit_file", "list_files"]
        assert tools.openai_schemas[0]["function"]["name"] == "bash"
        assert tools.anthropic_schemas[0]["input_schema"]["required"] == ["command"]
        assert await tools.call("bash", {"command": "cd /tmp; export A=1"}) == "(no output)"
        assert await tools.call("bash", '{"command": "echo $A in $PWD"}') == "1 in /tmp\n"
        assert await tools.call("bash", {"command": "printf x; (exit 3)"}) == "x\n[exit code 3]"
        assert "took too long" in await tools.call("bash", {"command": "sleep 60", "timeout": 0.3})
        assert "the shell was replaced" in await tools.call("bash", {"command": "exit 2"})
        assert "denied example.com" in await tools.call("bash", {"command": "getent hosts example.com"})
        assert await tools.call("list_files", {}) == "(empty)"
        assert await tools.call("write_file", {"path": "d/a.txt", "content": "one\ntwo\n"}) == "Wrote 8 bytes to d/a.txt"
        assert await tools.call("edit_file", {"path": "d/a.txt", "old_text": "two", "new_text": "2"}) == "Edited d/a.txt"
        assert await tools.call("read_file", {"path": "d/a.txt"}) == "     1\tone\n     2\t2"
        assert await tools.call("read_file", {"path": "d/a.txt", "first_line": 2, "last_line": 2}) == "     2\t2"
        assert await tools.call("list_files", {"recursive": True}) == "d/\nd/a.txt"


async def test_mistakes_of_a_model_are_answers(cove: AsyncCove) -> None:
    async with cove.session() as session:
        tools = AsyncTools(session)
        await session.files.write("twice", "x x")
        for name, arguments, said in [
            ("nothing", {}, "there is no tool 'nothing'"),
            ("bash", {}, "'command' is missing"),
            ("bash", {"command": 3}, "must be of type str"),
            ("bash", "[1]", "no JSON object"),
            ("bash", "{", "Expecting"),
            ("bash", {"command": "true", "timeout": -1}, "more than 0"),
            ("read_file", {"path": "missing"}, "no such file"),
            ("read_file", {"path": "twice", "first_line": 9}, "there are 1 lines"),
            ("edit_file", {"path": "twice", "old_text": "x", "new_text": "y"}, "2 times"),
            ("edit_file", {"path": "twice", "old_text": "z", "new_text": "y"}, "not found"),
            ("edit_file", {"path": "twice", "old_text": "", "new_text": "y"}, "empty"),
        ]:
            text, is_error = await tools.result(name, arguments)  # type: ignore[arg-type]
            assert is_error
            assert said in text, text
    with pytest.raises(SessionNotFound):
        await tools.call("bash", {"command": "true"})


async def test_anthropics_tools_have_their_shapes(cove: AsyncCove) -> None:
    async with cove.session() as session:
        tools = AsyncAnthropicTools(session)
        assert [one["name"] for one in tools.definitions] == ["bash", "str_replace_based_edit_tool"]

        async def use(name: str, **given: object) -> str:
            block = SimpleNamespace(type="tool_use", id="t1", name=name, input=given)
            answer = await tools.handle(block)
            assert (answer["type"], answer["tool_use_id"]) == ("tool_result", "t1")
            return ("error: " if answer.get("is_error") else "") + str(answer["content"])

        edit = "str_replace_based_edit_tool"
        assert await use("bash", command="export A=1; cd /tmp; echo $A") == "1\n"
        assert await use("bash", restart=True) == "The shell was restarted"
        assert await use("bash", command="echo [$A]") == "[]\n"
        assert await use(edit, command="create", path="/workspace/f.py", file_text="a\nb\nc\n") == "Wrote /workspace/f.py"
        assert await use(edit, command="view", path="/workspace/f.py", view_range=[2, 3]) == "     2\tb\n     3\tc"
        assert await use(edit, command="view", path="/workspace") == "f.py"
        assert await use(edit, command="str_replace", path="/workspace/f.py", old_str="b\n", new_str="B\n") == "Edited /workspace/f.py"
        assert await use(edit, command="insert", path="/workspace/f.py", insert_line=0, insert_text="top") == "Edited /workspace/f.py"
        assert (
            await use(edit, command="insert", path="/workspace/f.py", insert_line=4, insert_text="end\n") == "Edited /workspace/f.py"
        )
        assert await session.files.read_text("f.py") == "top\na\nB\nc\nend\n"
        assert (await use(edit, command="undo", path="/workspace/f.py")).startswith("error: Error: the command 'undo'")
        assert (await use(edit, command="insert", path="/workspace/f.py", insert_line=99, insert_text="x")).startswith("error:")
        assert (await use("browser")).startswith("error: ")
        block = {"type": "tool_use", "id": "t2", "name": "bash", "input": {"command": "echo dict"}}
        assert await tools.handle(block) == {"type": "tool_result", "tool_use_id": "t2", "content": "dict\n"}

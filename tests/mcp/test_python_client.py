"""The Python reference client, over HTTP and over standard input and output."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import jsonschema
import mcp
import pytest
from clients import Notes, connected, done, new_session, sessions, text

if TYPE_CHECKING:
    from daemon import Daemon

TOOLS = {
    *("read", "write", "edit", "ls", "grep", "find", "git", "diff", "delete", "bash"),
    *("run_background", "wait", "output", "kill", "expose_port", "snapshot", "restore", "network_request"),
}
READ_ONLY = {"read", "ls", "grep", "find", "diff", "wait", "output"}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_learns_what_the_server_has(daemon: Daemon, transport: str, mode: str) -> None:
    async with connected(daemon, transport, mode=mode) as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.protocol_version) == ("cove", "2025-11-25")
        assert "/workspace" in (client.instructions or "")
        capabilities = client.server_capabilities
        assert None not in (capabilities.tools, capabilities.resources, capabilities.prompts)
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        for tool in tools:
            assert all((tool.description, tool.title, tool.annotations)), tool.name
            assert tool.annotations.read_only_hint == (tool.name in READ_ONLY), tool.name
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)
            assert tool.input_schema["type"] == "object"
            if tool.output_schema is not None:
                jsonschema.Draft202012Validator.check_schema(tool.output_schema)
                assert tool.output_schema["type"] == "object"
        templates = (await client.list_resource_templates()).resource_templates
        assert {template.uri_template for template in templates} == {"cove://files/{+path}", "cove://execs/{exec_id}"}
        assert (await client.list_resources()).resources == [], "there is no sandbox yet"
        prompts = (await client.list_prompts()).prompts
        assert "fix-failing-test" in {prompt.name for prompt in prompts}
        for prompt in prompts:
            given = {argument.name: "x" for argument in prompt.arguments or []}
            assert (await client.get_prompt(prompt.name, given)).messages, prompt.name


# Each call with whether it is an error. `{…}` is a value of an earlier answer.
CALLS: list[tuple[str, dict[str, Any], bool]] = [
    ("write", {"path": "a b/ä.txt", "content": "one\ntwo\nthree\n"}, False),
    ("read", {"path": "a b/ä.txt"}, False),
    ("read", {"path": "a b/ä.txt", "offset": 2, "limit": 1}, False),
    ("read", {"path": "missing"}, True),
    ("edit", {"path": "a b/ä.txt", "old_string": "two", "new_string": "2"}, False),
    ("edit", {"path": "a b/ä.txt", "old_string": "tow", "new_string": "2"}, True),
    ("diff", {"path": "a b/ä.txt"}, False),
    ("ls", {}, False),
    ("ls", {"path": "missing"}, True),
    ("grep", {"pattern": "t.ree"}, False),
    ("grep", {"pattern": "absent"}, False),
    ("grep", {"pattern": "("}, True),
    ("find", {"pattern": "*.txt"}, False),
    ("git", {"args": "init -q -b main ."}, False),
    ("git", {"args": "status"}, False),
    ("bash", {"command": "cd /tmp && echo hello"}, False),
    ("bash", {"command": "exit 3"}, True),
    ("bash", {"command": "sleep 300", "timeout_seconds": 1}, True),
    ("bash", {"restart": True}, False),
    ("run_background", {"command": "echo begun; sleep 300"}, False),
    ("output", {"exec_id": "{exec_id}"}, False),
    ("kill", {"exec_id": "{exec_id}", "signal": "KILL"}, False),
    ("wait", {"exec_id": "{exec_id}"}, True),
    ("expose_port", {"port": 8000}, False),
    ("network_request", {"hosts": ["example.com"]}, True),
    ("snapshot", {}, False),
    ("restore", {"snapshot_id": "{snapshot_id}"}, False),
    ("read", {"path": "a b/ä.txt"}, False),
    ("delete", {"path": "a b", "recursive": True}, False),
    ("delete", {"path": "a b"}, True),
]


async def test_every_tool_answers_as_its_schema_says(daemon: Daemon, transport: str) -> None:
    assert {tool for tool, _, _ in CALLS} == TOOLS
    async with connected(daemon, transport) as client:
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        known: dict[str, Any] = {}
        for tool, arguments, is_error in CALLS:
            arguments = {name: known[value[1:-1]] if str(value).startswith("{") else value for name, value in arguments.items()}
            result = await client.call_tool(tool, arguments)
            assert (result.is_error, bool(text(result))) == (is_error, True), f"{tool} {arguments}: {result}"
            schema = schemas[tool]
            if result.structured_content is not None:
                assert schema is not None, tool
                jsonschema.validate(result.structured_content, schema)
                known |= result.structured_content
            assert is_error or (schema is None) == (result.structured_content is None), f"{tool} {arguments}: {result}"


async def test_a_wrong_call_tells_a_model_what_is_right(daemon: Daemon, transport: str) -> None:
    async with connected(daemon, transport) as client:
        wrong = await client.call_tool("bash", {"comand": "ls"})
        assert (wrong.is_error, "timeout_seconds" in text(wrong)) == (True, True), wrong
        with pytest.raises(mcp.MCPError, match="network_request") as unknown:
            await client.call_tool("nope", {})
        assert unknown.value.code == -32602


async def test_files_and_outputs_are_resources(daemon: Daemon, transport: str) -> None:
    async with connected(daemon, transport) as client:
        await done(client, "write", path="a ä.txt", content="hello")
        result = await client.call_tool("bash", {"command": "seq 3"})
        assert result.structured_content is not None
        resources = {resource.name: str(resource.uri) for resource in (await client.list_resources()).resources}
        [content] = (await client.read_resource(resources["a ä.txt"])).contents
        assert content.text == "hello"
        [content] = (await client.read_resource(f"cove://execs/{result.structured_content['exec_id']}")).contents
        assert content.text.split() == ["1", "2", "3"]
        with pytest.raises(mcp.MCPError):
            await client.read_resource("cove://files/missing")


@pytest.fixture(params=["with sessions", "without sessions"])
def version(request: pytest.FixtureRequest, daemon: Daemon) -> dict[str, Any]:
    """Arguments of `connected` for both kinds of protocol versions. One without MCP sessions needs a session of ours."""
    if request.param == "with sessions":
        return {"mode": "legacy"}
    session = new_session(daemon)
    return {"mode": "2026-07-28", "query": f"?session={session}", "options": ("--session", session)}


async def test_a_command_tells_of_its_progress(daemon: Daemon, transport: str, version: dict[str, Any]) -> None:
    async with connected(daemon, transport, **version) as client:
        await done(client, "bash", command="mkfifo gate")
        notes = Notes()
        command = {"command": "echo first; cat gate; cat gate; echo over"}
        call = asyncio.create_task(client.call_tool("bash", command, progress_callback=notes))
        for seen, word in [("first", "second"), ("second", "third")]:
            await notes.until(seen)
            assert not call.done()
            await done(client, "run_background", command=f"echo {word} > gate")
        assert text(await call).startswith("first\nsecond\nthird\nover\n")
        numbers = [number for number, _ in notes.heard]
        assert numbers == sorted(set(numbers)), "progress grows"


async def test_a_cancelled_call_ends_its_command(daemon: Daemon, transport: str, version: dict[str, Any]) -> None:
    async with connected(daemon, transport, **version) as client:
        notes = Notes()
        command = {"command": "sh -c 'echo $$ > pid; echo begun; exec sleep 300' && touch survived"}
        call = asyncio.create_task(client.call_tool("bash", command, progress_callback=notes))
        await notes.until("begun")
        look = "kill -0 $(cat /workspace/pid) 2>/dev/null && echo alive || echo gone"

        async def looked() -> str:
            started = await client.call_tool("run_background", {"command": look})
            assert started.structured_content is not None
            return await done(client, "wait", exec_id=started.structured_content["exec_id"], timeout_seconds=10)

        assert "alive" in await looked(), "a control: the process is seen while it runs"
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # The shell is free as soon as the command has ended.
        assert "yes" in await done(client, "bash", command="test ! -e survived && echo yes", timeout_seconds=20)
        assert "gone" in await looked()


async def test_two_clients_at_once_have_a_sandbox_each(daemon: Daemon, transport: str) -> None:
    before = sessions(daemon)
    async with connected(daemon, transport) as one, connected(daemon, transport) as two:
        await asyncio.gather(*(done(c, "write", path="mine", content=word) for c, word in [(one, "first"), (two, "second")]))
        await done(one, "write", path="only one", content="")
        for client, word, files in [(one, "first", 2), (two, "second", 1)]:
            assert word in await done(client, "read", path="mine")
            assert len((await done(client, "bash", command="ls -A /workspace")).splitlines()) == files + 1
        assert len(set(sessions(daemon)) - set(before)) == 2
    assert sessions(daemon) == before, "sandboxes end with their connections"


async def test_the_version_without_sessions_works_in_a_session_that_exists(daemon: Daemon, transport: str) -> None:
    session = new_session(daemon)
    given = {"query": f"?session={session}", "options": ("--session", session)}
    async with connected(daemon, transport, mode="2026-07-28", **given) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        await done(client, "bash", command="cd /tmp; COLOUR=blue")
        assert "blue in /tmp" in await done(client, "bash", command="echo $COLOUR in $PWD")
    async with connected(daemon, transport, **given) as client:
        assert client.protocol_version == "2026-07-28", "a client that may choose takes the newest version"
        assert "blue in /tmp" in await done(client, "bash", command="echo $COLOUR in $PWD")

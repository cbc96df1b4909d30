"""Sandkasten's own client 0.3.0, from PyPI and unmodified, against our daemon: every class, method and option of it.

`test_this_is_all_there_is` fails if the package has something that the others do not use.
"""

from __future__ import annotations

import asyncio
import datetime
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("sandkasten", reason="Sandkasten's client needs Python 3.11")

import httpx
import sandkasten
from sandkasten import SandboxClient, SandkastenAPIError, SandkastenError, SandkastenStreamError, Session

from .surface import parameters, surface

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ..daemon import Daemon


def client_of(daemon: Daemon, **options: Any) -> SandboxClient:
    return SandboxClient(base_url=daemon.url, api_key=daemon.key, **options)


def test_this_is_all_there_is() -> None:
    assert sandkasten.__version__ == "0.3.0"
    assert surface(SandboxClient) == {
        "__init__": ["base_url", "api_key", "timeout"],
        "close": [],
        "create_session": ["image", "ttl_seconds", "workspace_id"],
        "delete_workspace": ["workspace_id"],
        "get_session": ["session_id"],
        "list_sessions": [],
        "list_workspaces": [],
    }
    assert surface(Session) == {
        "__init__": ["client", "session_id"],
        "destroy": [],
        "exec": ["cmd", "timeout_ms", "raw_output"],
        "exec_stream": ["cmd", "timeout_ms", "raw_output"],
        "id": [],
        "info": [],
        "read": ["path", "max_bytes"],
        "stats": [],
        "upload": ["file", "dest_path", "filename"],
        "write": ["path", "content"],
    }
    from sandkasten import agents

    assert set(sandkasten.__all__) | set(agents.__all__) == {
        *("ExecChunk", "ExecResult", "ReadResult", "SandboxClient", "SandkastenAPIError", "SandkastenError"),
        *("SandkastenStreamError", "Session", "SessionInfo", "SessionStats", "WorkspaceInfo"),
        *("SandkastenContext", "sandkasten_tools", "create_sandkasten_tools", "sandbox_tools_for_workspace"),
    }
    assert parameters(agents.sandbox_tools_for_workspace) == ["client", "workspace_id", "image", "ttl_seconds"]
    # The package never raises this one: it lets httpx's own errors through.
    assert issubclass(SandkastenAPIError, SandkastenError)


async def test_a_command_has_every_field_of_its_result(daemon: Daemon) -> None:
    async with client_of(daemon) as client, await client.create_session() as session:
        first = await session.exec("cd /tmp && export A=1 && f() { echo in f; } && echo hello; echo err >&2; sleep 0.05")
        assert (first.exit_code, first.output, first.cwd, first.truncated) == (0, "hello\nerr\n", "/tmp", False)
        assert first.duration_ms > 0
        assert (await session.exec("echo $A; f; pwd")).output == "1\nin f\n/tmp\n"
        assert (await session.exec("exit 3")).exit_code == 3
        assert (await session.exec("echo $A")).output == "1\n", "the shell that exited is back with its state"
        assert (await session.exec('echo "open')).exit_code == 2
        late = await session.exec("echo before; sleep 60", timeout_ms=300)
        assert (late.exit_code, late.output) == (124, "before\n")
        large = await session.exec("head -c 3000000 /dev/zero | tr '\\0' x")
        assert large.truncated
        assert (1 << 20) <= len(large.output) < (1 << 20) + 100, "1 MiB, and a line that says what is left out"
        assert (await session.exec("printf 'ä€😀'; printf '\\377'")).output == "ä€😀\ufffd"
        assert (await session.exec("sleep 4711 & echo started")).output == "started\n", "background work does not hold it up"
        assert (await session.exec("kill %1 && echo ended")).output.startswith("ended\n")


@pytest.mark.parametrize("raw", [False, True])
async def test_raw_output_keeps_escape_sequences_and_line_ends(daemon: Daemon, raw: bool) -> None:
    """Commands have no terminal here, so what they print comes unchanged in either way, and no program adds colours by itself."""
    command = "printf '\\033[31mred\\033[0m\\r\\n'; [ -t 1 ] || echo no terminal"
    expected = "\x1b[31mred\x1b[0m\r\nno terminal\n"
    async with client_of(daemon) as client, await client.create_session() as session:
        assert (await session.exec(command, raw_output=raw)).output == expected
        assert "".join([chunk.output async for chunk in session.exec_stream(command, raw_output=raw)]) == expected


async def test_a_stream_brings_output_as_it_is_printed_and_then_how_it_ended(daemon: Daemon) -> None:
    async with client_of(daemon) as client, await client.create_session() as session:
        now = datetime.datetime.now().timestamp() * 1000
        # The command goes on only after its first line was read, so the line cannot have waited for the end.
        chunks = []
        async for chunk in session.exec_stream("cd /tmp; echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 5"):
            chunks.append(chunk)
            if chunk.output == "one\n":
                await session.write("/tmp/go", "")
        assert [(chunk.output, chunk.done) for chunk in chunks] == [("one\n", False), ("two\n", False), ("", True)]
        assert all(abs(chunk.timestamp - now) < 60_000 for chunk in chunks[:-1])
        # A shell that exits is replaced and has its state of before.
        assert (chunks[-1].exit_code, chunks[-1].cwd) == (5, "/workspace")
        assert chunks[-1].duration_ms > 0
        *_, last = [chunk async for chunk in session.exec_stream("cd /usr")]
        assert (last.done, last.exit_code, last.cwd) == (True, 0, "/usr")
        late = [chunk async for chunk in session.exec_stream("echo begun; sleep 60", timeout_ms=300)]
        assert [(chunk.output, chunk.exit_code) for chunk in late] == [("begun\n", 0), ("", 124)]
        many = [chunk async for chunk in session.exec_stream("seq 100000")]
        assert "".join(chunk.output for chunk in many) == "".join(f"{n}\n" for n in range(1, 100_001))


async def test_a_stream_that_cannot_go_on_is_an_error(daemon: Daemon) -> None:
    async with client_of(daemon) as client:
        session = await client.create_session()
        with pytest.raises(SandkastenStreamError, match=r"\w+"):
            async for chunk in session.exec_stream("echo begun; sleep 4711", timeout_ms=60_000):
                assert chunk.output == "begun\n"
                await session.destroy()
        with pytest.raises(httpx.HTTPStatusError) as error:
            async for _ in session.exec_stream("true"):
                raise AssertionError("there is no such session")
        assert error.value.response.status_code == 404


async def test_files_are_written_and_read(daemon: Daemon) -> None:
    async with client_of(daemon) as client, await client.create_session() as session:
        await session.write("text.txt", "ä line\n")
        await session.write("/workspace/deep/in/binary", bytes(range(256)))
        await session.write("empty", b"")
        text = await session.read("text.txt")
        assert (text.content, text.path, text.truncated) == ("ä line\n".encode(), "text.txt", False)
        assert (await session.read("deep/in/binary")).content == bytes(range(256))
        assert (await session.read("/workspace/empty", max_bytes=10)).content == b""
        cut = await session.read("text.txt", max_bytes=3)
        assert (cut.content, cut.truncated) == ("ä ".encode(), True)
        assert not (await session.read("text.txt", max_bytes=8)).truncated
        await session.write("text.txt", "new")
        assert (await session.exec("cat text.txt")).output == "new"
        large = bytes(range(256)) * 16384
        await session.write("large", large)
        assert (await session.read("large")).content == large


async def test_files_are_uploaded(daemon: Daemon, tmp_path: Path) -> None:
    local = tmp_path / "ä data.bin"
    local.write_bytes(bytes(range(256)))
    async with client_of(daemon) as client, await client.create_session() as session:
        assert await session.upload(local) == ["/workspace/ä data.bin"]
        assert await session.upload(str(local), dest_path="/workspace/up/there") == ["/workspace/up/there/ä data.bin"]
        assert await session.upload(io.BytesIO(b"memory"), filename="memory.txt") == ["/workspace/memory.txt"]
        with local.open("rb") as file:
            assert await session.upload(file, dest_path="sub") == ["sub/ä data.bin"], "a relative path is answered as it was asked"
        assert (await session.read("up/there/ä data.bin")).content == bytes(range(256))
        assert (await session.read("sub/ä data.bin")).content == bytes(range(256))
        assert (await session.read("memory.txt")).content == b"memory"
        with pytest.raises(ValueError, match="filename required"):
            await session.upload(io.BytesIO(b"nameless"))
        with pytest.raises(FileNotFoundError):
            await session.upload(tmp_path / "missing")


async def test_sessions_are_described_listed_and_found_again(daemon: Daemon) -> None:
    async with client_of(daemon, timeout=60) as client:
        session = await client.create_session(image="python", ttl_seconds=600, workspace_id="described")
        await session.exec("cd /usr; export A=1")
        info = await session.info()
        assert (info.id, info.image, info.status, info.cwd) == (session.id, "python", "running", "/usr")
        assert info.workspace_id == "described"
        created, expires, used = (datetime.datetime.fromisoformat(t) for t in (info.created_at, info.expires_at, info.last_activity))
        assert created <= used < expires <= used + datetime.timedelta(seconds=601)
        assert info in await client.list_sessions()
        again = await client.get_session(session.id)
        assert (await again.exec("echo $A")).output == "1\n"
        plain = await client.create_session(image="base")
        assert ((await plain.info()).image, (await plain.info()).workspace_id) == ("base", None)
        stats = await session.stats()
        assert 0 < stats.memory_bytes < stats.memory_limit
        await session.exec("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
        assert (await session.stats()).cpu_usage_usec > stats.cpu_usage_usec > 0
        await session.destroy()
        await plain.destroy()
        assert not {session.id, plain.id} & {listed.id for listed in await client.list_sessions()}
        await client.delete_workspace("described")
    with pytest.raises(RuntimeError, match="closed"):
        await client.list_sessions()


async def test_workspaces_outlive_sessions(daemon: Daemon) -> None:
    client = client_of(daemon)
    async with await client.create_session(workspace_id="kept-here") as session:
        await session.write("note", "from before")
    async with await client.create_session(workspace_id="kept-here") as session:
        assert (await session.read("note")).content == b"from before"
        with pytest.raises(httpx.HTTPStatusError) as error:
            await client.delete_workspace("kept-here")
        assert error.value.response.status_code == 409
    assert "kept-here" in [workspace.id for workspace in await client.list_workspaces()]
    await client.delete_workspace("kept-here")
    assert "kept-here" not in [workspace.id for workspace in await client.list_workspaces()]
    await client.close()


async def status_of(call: Any) -> tuple[int, str]:
    with pytest.raises(httpx.HTTPStatusError) as error:
        await call
    return error.value.response.status_code, error.value.response.json()["message"]


async def test_what_is_wrong_has_its_status_and_a_sentence(daemon: Daemon) -> None:
    async with client_of(daemon) as client, await client.create_session() as session:
        assert (await status_of(client.get_session("no-such-session")))[0] == 404
        assert (await status_of(client.delete_workspace("no-such-workspace")))[0] == 404
        assert (await status_of(client.create_session(image="no-such-image")))[0] in (400, 404)
        assert (await status_of(client.create_session(ttl_seconds=-1)))[0] == 400
        assert (await status_of(client.create_session(workspace_id="../escape")))[0] == 400
        assert (await status_of(session.exec("true", timeout_ms=-1)))[0] == 400
        status, said = await status_of(session.read("missing"))
        assert (status, "missing" in said) == (404, True)
        assert (await status_of(session.read(".")))[0] == 400
        assert (await status_of(session.write("/proc/nothing", b"")))[0] in (400, 403, 404)
    async with SandboxClient(base_url=daemon.url, api_key="wrong") as stranger:
        assert (await status_of(stranger.list_sessions()))[0] == 401
    assert (await status_of_gone(daemon, lambda gone: gone.exec("true"))) == 404
    assert (await status_of_gone(daemon, lambda gone: gone.destroy())) in (200, 404)


async def status_of_gone(daemon: Daemon, use: Callable[[Session], Any]) -> int:
    async with client_of(daemon) as client:
        session = await client.create_session()
        await session.destroy()
        try:
            await use(session)
        except httpx.HTTPStatusError as error:
            return error.response.status_code
    return 200


async def test_many_at_once_do_not_disturb_each_other(daemon: Daemon) -> None:
    async with client_of(daemon) as client:

        async def one(number: int) -> str:
            async with await client.create_session() as session:
                await session.exec(f"N={number}")
                return str((await session.exec("echo $N")).output)

        assert await asyncio.gather(*(one(number) for number in range(12))) == [f"{number}\n" for number in range(12)]


# Its tools for the OpenAI Agents SDK.

# What the SDK makes of an exception of a tool.
FAILED = "An error occurred while running the tool. Please try again."
TOOLS = ["sandbox_exec", "sandbox_write_file", "sandbox_read_file", "sandbox_list_files", "sandbox_stats"]


async def use_tools(tools: list[Any], context: Any) -> AsyncIterator[str]:
    """Calls each tool as the SDK does, with JSON from the model."""
    from agents.tool_context import ToolContext

    async def call(name: str, **arguments: Any) -> str:
        [tool] = [tool for tool in tools if tool.name == name]
        assert set(arguments) <= set(tool.params_json_schema["properties"])
        text = json.dumps(arguments)
        wrapped = ToolContext(context=context, tool_name=name, tool_call_id="call_1", tool_arguments=text)
        return str(await tool.on_invoke_tool(wrapped, text))

    assert [tool.name for tool in tools] == TOOLS
    assert await call("sandbox_write_file", path="in/a.txt", content="one two three") == "wrote in/a.txt"
    assert await call("sandbox_exec", cmd="cd in; wc -w < a.txt") == "exit_code=0\ncwd=/workspace/in\n---\n3\n"
    assert (await call("sandbox_exec", cmd="sleep 60", timeout_ms=200)).startswith("exit_code=124\n")
    assert await call("sandbox_read_file", path="in/a.txt") == "one two three"
    assert await call("sandbox_read_file", path="in/a.txt", max_bytes=3) == "one\n(truncated)"
    assert "a.txt" in await call("sandbox_list_files")
    assert "in" in (await call("sandbox_list_files", path="/workspace")).split()
    assert (await call("sandbox_stats")).startswith("memory_bytes=")
    yield await call("sandbox_read_file", path="missing")


async def test_its_tools_work_on_a_session_that_they_are_bound_to(daemon: Daemon) -> None:
    pytest.importorskip("agents")
    async with client_of(daemon) as client, await client.create_session() as session:
        async for told in use_tools(sandkasten.create_sandkasten_tools(session), None):
            assert told == FAILED


async def test_its_tools_work_on_the_session_of_a_context(daemon: Daemon) -> None:
    pytest.importorskip("agents")
    import pydantic
    from sandkasten import agents

    async with client_of(daemon) as client, await client.create_session() as session:
        context_class = sandkasten.SandkastenContext
        # In 0.3.0 the class names a type that it does not import. Whoever uses it has to complete it.
        with pytest.raises(pydantic.errors.PydanticUserError, match="not fully defined"):
            context_class(session=session)
        assert agents.SandkastenContext is context_class

        class Context:
            workspace_id = None

        context = Context()
        context.session = session  # type: ignore[attr-defined]
        async for told in use_tools(sandkasten.sandkasten_tools(), context):
            assert told == FAILED


async def test_its_tools_work_on_the_workspace_of_a_user(daemon: Daemon) -> None:
    pytest.importorskip("agents")
    async with client_of(daemon) as client:
        for _ in range(2):
            async with sandkasten.sandbox_tools_for_workspace(client, "of-a-user", image="base", ttl_seconds=300) as (session, tools):
                assert ((await session.info()).image, (await session.info()).workspace_id) == ("base", "of-a-user")
                await session.exec("date >> log")
                async for told in use_tools(tools, None):
                    assert told == FAILED
        async with await client.create_session(workspace_id="of-a-user") as last:
            assert (await last.exec("wc -l < log")).output == "2\n"
        await client.delete_workspace("of-a-user")

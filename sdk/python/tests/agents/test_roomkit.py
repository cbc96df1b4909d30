"""roomkit-sandbox 0.5.0, from PyPI and unmodified, with sessions of our daemon as its containers: its executor with every option, both
of its command builders with every tool, the six methods of a backend, and an agent of RoomKit on top of all.

Its three other backends speak to Docker, Kubernetes and smolBSD; ours takes their place. RTK, which one of the command builders calls,
comes with their container image and not with the package, so a small program of that name stands in for it.
"""

from __future__ import annotations

import contextlib
import datetime
import inspect
import json
import logging
import shlex
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("roomkit_sandbox", reason="roomkit-sandbox needs Python 3.12")

import roomkit_sandbox
from roomkit_sandbox import (
    CommandBuilder,
    ContainerInfo,
    ContainerSandboxExecutor,
    ExecResult,
    NativeCommandBuilder,
    RtkCommandBuilder,
)
from roomkit_sandbox.executor import ContainerBackendProtocol

from cove import AsyncCove
from cove.agents.roomkit import CoveBackend

from .surface import parameters, surface

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ..daemon import Daemon

TOOLS = ["read", "write", "edit", "ls", "grep", "find", "git", "diff", "delete", "bash"]


def test_this_is_all_there_is() -> None:
    from importlib.metadata import version

    assert version("roomkit-sandbox") == "0.5.0"
    assert set(roomkit_sandbox.__all__) == {
        *("CommandBuilder", "ContainerInfo", "ContainerSandboxExecutor", "DEFAULT_IMAGE"),
        *("ExecResult", "NativeCommandBuilder", "RtkCommandBuilder"),
    }
    assert surface(ContainerSandboxExecutor) == {
        "__init__": [
            *("backend", "image", "session_id", "workdir", "timeout", "setup_commands", "labels", "env"),
            "command_builder",
        ],
        "close": [],
        "execute": ["command", "arguments", "env"],
        "tool_definitions": [],
    }
    for builder in (CommandBuilder, NativeCommandBuilder, RtkCommandBuilder):
        assert {name.removeprefix("build_") for name in surface(builder) if name.startswith("build_")} == set(TOOLS)


def test_our_backend_has_the_methods_of_theirs() -> None:
    assert isinstance(CoveBackend(AsyncCove("http://127.0.0.1:1", "key")), ContainerBackendProtocol)
    wanted = {name: parameters(method) for name, method in inspect.getmembers(ContainerBackendProtocol, inspect.isfunction)}
    wanted = {name: names for name, names in wanted.items() if not name.startswith("_")}
    assert len(wanted) == 6
    assert {name: parameters(getattr(CoveBackend, name)) for name in wanted} == wanted


class Place:
    """A backend on the daemon of the tests, which removes what it made."""

    def __init__(self, client: AsyncCove, mark: str) -> None:
        self.mark = mark
        self.backend = CoveBackend(client, memory_mb=512, labels={"place": mark})

    def executor(self, **options: Any) -> ContainerSandboxExecutor:
        given = {"session_id": self.mark, "command_builder": NativeCommandBuilder(), **options}
        return ContainerSandboxExecutor(backend=self.backend, **given)

    async def containers(self) -> list[Any]:
        return await self.backend.list_containers({"place": self.mark})


@contextlib.asynccontextmanager
async def placed(daemon: Daemon, mark: str) -> AsyncIterator[Place]:
    async with AsyncCove(daemon.url, daemon.key) as client:
        place = Place(client, mark)
        try:
            yield place
        finally:
            for info in await place.containers():
                await place.backend.delete_container(info.container_id)
            assert await place.containers() == []


async def test_every_tool_works_with_native_commands(daemon: Daemon) -> None:
    async with placed(daemon, "native") as place:
        executor = place.executor()

        async def ok(tool: str, /, **arguments: Any) -> str:
            result = await executor.execute(tool, arguments)
            assert (result.exit_code, result.error, result.success) == (0, "", True), result
            return str(result.output)

        content = "one 'two' \"three\" $HOME `id` \\ ä€\nsecond\nthird\n"
        assert await ok("write", path="a file.txt", content=content) == ""
        assert await ok("bash", command="cat 'a file.txt'") == content
        await ok("write", path="plain", content="1\n2\n3\n4\n")
        assert [line.split("\t") for line in (await ok("read", path="plain")).splitlines()][3] == ["     4", "4"]
        assert (await ok("read", path="plain", offset=1, limit=2)).split() == ["2", "2", "3", "3"]
        assert (await ok("read", path="plain", offset=3)).split() == ["4", "4"]
        assert (await ok("read", path="plain", limit=1)).split() == ["1", "1"]
        assert "Replaced 1 occurrence" in await ok("edit", path="plain", old_string="2\n3", new_string="two & 'three'")
        assert await ok("bash", command="cat plain") == "1\ntwo & 'three'\n4\n"
        ambiguous = await executor.execute("edit", {"path": "a file.txt", "old_string": "d", "new_string": ""})
        assert (ambiguous.exit_code, ambiguous.error) == (1, "Error: 3 matches, expected 1\n")
        await ok("bash", command="mkdir -p sub/deep && echo needle > sub/deep/x.py")
        assert "plain" in await ok("ls")
        assert "deep" in await ok("ls", path="sub")
        assert await ok("grep", pattern="need.e") == "./sub/deep/x.py:1:needle\n"
        assert await ok("grep", pattern="needle", path="sub", type="py") == "sub/deep/x.py:1:needle\n"
        assert (await executor.execute("grep", {"pattern": "absent"})).exit_code == 1
        assert await ok("find", path="sub", name="*.py") == "sub/deep/x.py\n"
        assert (await ok("find", path="sub", type="d")).splitlines() == ["sub", "sub/deep"]
        assert "./plain" in (await ok("find")).splitlines()
        await ok("git", args="init -q -b main .")
        await ok("git", args="-c user.name=x -c user.email=x@example.com commit -q --allow-empty -m 'two words'")
        assert (await ok("git", args="log --format=%s")).strip() == "two words"
        await ok("write", path="other", content="1\n")
        differing = await executor.execute("diff", {"file_a": "plain", "file_b": "other"})
        assert (differing.exit_code, "-4\n" in differing.output) == (1, True)
        assert await ok("diff", file_a="plain", file_b="plain") == ""
        assert await ok("delete", path="a file.txt") == "Deleted a file.txt\n"
        assert await ok("delete", path="sub") == "Deleted sub\n"
        assert "sub" not in await ok("ls")
        assert await ok("unheard_of") == "Unknown sandbox command: unheard_of\n"
        failed = await executor.execute("bash", {"command": "echo out; echo err >&2; exit 3"})
        assert (failed.exit_code, failed.output, failed.error, failed.success) == (3, "out\n", "err\n", False)


async def test_every_tool_works_with_rtk(daemon: Daemon) -> None:
    """The stand-in prints its arguments, one in a line."""
    stand_in = """mkdir bin && printf '%s\\n' '#!/bin/sh' 'for word; do echo "$word"; done' > bin/rtk && chmod +x bin/rtk"""
    async with placed(daemon, "rtk") as place:
        path = {"PATH": "/workspace/bin:/usr/bin:/bin"}
        executor = place.executor(command_builder=None, setup_commands=[shlex.join(["sh", "-c", stand_in])], env=path)
        calls: list[tuple[str, dict[str, Any], list[str]]] = [
            ("read", {"path": "a b", "offset": 1, "limit": 2}, ["read", "a b", "--offset", "1", "--limit", "2"]),
            ("ls", {"path": "sub"}, ["ls", "sub"]),
            ("grep", {"pattern": "x.*", "path": ".", "type": "py"}, ["grep", "x.*", ".", "--type", "py"]),
            ("find", {"path": ".", "name": "*.py", "type": "f"}, ["find", ".", "-name", "*.py", "-type", "f"]),
            ("git", {"args": "log --format='%h %s'"}, ["git", "log", "--format=%h %s"]),
            ("diff", {"file_a": "a", "file_b": "b"}, ["diff", "a", "b"]),
        ]
        for command, arguments, words in calls:
            result = await executor.execute(command, arguments)
            assert (result.exit_code, result.output.splitlines()) == (0, words), result
        assert (await executor.execute("bash", {"command": "echo plain"})).output == "plain\n"
        assert (await executor.execute("write", {"path": "f", "content": "x"})).exit_code == 0
        assert "Replaced" in (await executor.execute("edit", {"path": "f", "old_string": "x", "new_string": "y"})).output
        assert (await executor.execute("delete", {"path": "f"})).output == "Deleted f\n"


async def test_the_executor_takes_all_of_its_options(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    class Shouting(NativeCommandBuilder):
        """A command builder of one's own, with one more tool."""

        def build_shout(self, args: dict[str, Any]) -> list[str]:
            return ["sh", "-c", 'echo "$0" | tr a-z A-Z', args["text"]]

    async with placed(daemon, "options") as place:
        executor = place.executor(
            workdir="/tmp",
            timeout=1,
            setup_commands=["mkdir -p /tmp/made", "false"],
            labels={"tenant": "acme:eu", "member": "ä b/c"},
            env={"FROM_START": "yes"},
            command_builder=Shouting(),
        )
        with caplog.at_level(logging.INFO, "roomkit_sandbox"):
            assert (await executor.execute("bash", {"command": "pwd; ls -d made; echo $FROM_START"})).output == "/tmp\nmade\nyes\n"
        assert "Setup command failed (exit 1)" in caplog.text
        assert (await executor.execute("shout", {"text": "quiet"})).output == "QUIET\n"
        late = await executor.execute("bash", {"command": "echo begun; sleep 60"})
        assert (late.exit_code, late.error, late.success) == (124, "Command timed out after 1s", False)
        patient = await executor.execute("bash", {"command": "sleep 1.5; echo waited", "timeout": 20})
        assert patient.output == "waited\n"
        for not_a_time in (0, -1, "2", None):
            assert (await executor.execute("bash", {"command": "echo $((1))", "timeout": not_a_time})).output == "1\n"
        [info] = await place.backend.list_containers({"tenant": "acme:eu", "member": "ä b/c"})
        assert await place.backend.list_containers({"tenant": "other"}) == []
        once = await executor.execute("bash", {"command": "echo $ONCE $FROM_START"}, env={"ONCE": "a b"})
        assert once.output == "a b yes\n"
        assert (await executor.execute("bash", {"command": "echo [$ONCE]"})).output == "[]\n"
        names = [f"sandbox_{tool}" for tool in TOOLS]
        assert [schema["name"] for schema in executor.tool_definitions()] == names
        assert info.session_id == "options"


async def test_a_container_is_found_again_and_replaced_if_it_is_gone(daemon: Daemon) -> None:
    async with placed(daemon, "again") as place:
        first = place.executor()
        await first.execute("write", {"path": "note", "content": "kept"})
        await first.close()
        assert (await first.execute("bash", {"command": "cat note"})).output == "kept", "close keeps the container"
        assert (await place.executor().execute("bash", {"command": "cat note"})).output == "kept"
        [info] = await place.containers()
        await place.backend.delete_container(info.container_id)
        assert (await first.execute("bash", {"command": "ls"})).output == "", "a new container"
        [replaced] = await place.containers()
        assert replaced.container_id != info.container_id
        assert len(await place.containers()) == 1


async def test_the_default_session_id_is_theirs(daemon: Daemon) -> None:
    async with placed(daemon, "default id") as place:
        await place.executor(session_id=None).execute("ls")
        [info] = await place.containers()
        assert info.session_id == "roomkit-sandbox"


async def test_the_six_methods_of_the_backend(daemon: Daemon) -> None:
    async with placed(daemon, "six") as place:
        backend = place.backend
        assert await backend.find_container("six") is None
        container = await backend.create_container("six", labels={"room": "1"}, env={"A": "b"})
        assert await backend.container_exists(container)
        assert await backend.find_container("six") == container
        result = await backend.exec_command(container, ["sh", "-c", "pwd; echo $A$C; echo e >&2; exit 4"], env={"C": "d"})
        assert (result.exit_code, result.stdout, result.stderr) == (4, "/workspace\nbd\n", "e\n")
        assert {field: type(value) for field, value in vars(result).items()} == {"exit_code": int, "stdout": str, "stderr": str}
        assert set(ExecResult.__annotations__) == set(vars(result))
        assert (await backend.exec_command(container, ["pwd"], workdir="/tmp")).stdout == "/tmp\n"
        missing = await backend.exec_command(container, ["no-such-program"])
        assert (missing.exit_code, "no-such-program" in missing.stderr) == (127, True)
        assert (await backend.exec_command(container, ["head", "-c", "300000", "/dev/zero"])).stdout == "\0" * 300_000
        with pytest.raises(TimeoutError, match="longer than 1 seconds"):
            await backend.exec_command(container, ["sleep", "60"], timeout=1)
        [info] = await backend.list_containers({"room": "1"})
        assert set(vars(info)) == set(ContainerInfo.__annotations__)
        assert (info.container_id, info.session_id, info.status, info.labels["room"]) == (container, "six", "running", "1")
        assert datetime.datetime.fromisoformat(info.created_at).tzinfo is not None
        await backend.delete_container(container)
        assert not await backend.container_exists(container)
        assert await backend.find_container("six") is None
        assert [one.container_id for one in await place.containers()] == []
        await backend.delete_container(container)
        assert not await backend.container_exists("no-such-container")


async def test_an_error_of_the_backend_is_a_result(daemon: Daemon) -> None:
    async with placed(daemon, "errors") as place:
        executor = place.executor(workdir="/no/such/directory")
        result = await executor.execute("ls")
        assert result.exit_code != 0
        assert "directory" in result.error


async def test_an_agent_of_roomkit_uses_the_sandbox(daemon: Daemon) -> None:
    """The whole way: a message in a room, a scripted model that calls tools, and their results in its next turn."""
    from roomkit import Agent, InboundMessage, RoomKit, TextContent, WebSocketChannel
    from roomkit.models.enums import ChannelCategory
    from roomkit.providers.ai.base import AIResponse, AIToolCall
    from roomkit.providers.ai.mock import MockAIProvider

    async with placed(daemon, "agent") as place:
        turns = [
            AIResponse(content="", tool_calls=[AIToolCall(id="1", name="sandbox_write", arguments={"path": "n", "content": "42"})]),
            AIResponse(content="", tool_calls=[AIToolCall(id="2", name="sandbox_bash", arguments={"command": "cat n; exit 3"})]),
            AIResponse(content="It is 42.", finish_reason="stop"),
        ]
        model = MockAIProvider(ai_responses=turns)
        kit = RoomKit()
        said: list[str] = []
        user = WebSocketChannel("user")

        async def receive(_connection: str, event: Any) -> None:
            if isinstance(getattr(event, "content", None), TextContent):  # others say that a message was typed or read
                said.append(event.content.body)

        kit.register_channel(user)
        kit.register_channel(Agent("agent", provider=model, sandbox=place.executor()))
        room = await kit.create_room()
        user.register_connection("c", receive, room_id=room.id)
        await kit.attach_channel(room.id, "user")
        await kit.attach_channel(room.id, "agent", category=ChannelCategory.INTELLIGENCE)
        await kit.process_inbound(InboundMessage(channel_id="user", sender_id="u", content=TextContent(body="What is it?")))
        assert said[-1] == "It is 42."
        [told] = [part for part in model.calls[2].messages[-1].content if part.type == "tool_result"]
        answer = json.loads(told.result)
        assert (answer["exit_code"], answer["output"]) == (3, "42")
        await kit.close()

"""The official Inspector, by its command line: every call is a client of its own, with all checks that the Inspector has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from clients import inspector, new_session

if TYPE_CHECKING:
    from daemon import Daemon


@pytest.fixture
def session(daemon: Daemon) -> str:
    return new_session(daemon)


def call(daemon: Daemon, transport: str, session: str | None, tool: str, **arguments: object) -> str:
    words = ("--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))
    result = inspector(daemon, transport, session, *words)
    assert not result.get("isError"), result
    assert result["structuredContent"], result
    return str(result["content"][0]["text"])


def test_the_inspector_lists_tools_and_finds_no_fault_in_their_schemas(daemon: Daemon, transport: str) -> None:
    tools = inspector(daemon, transport, None, "--method", "tools/list", "--strict")["tools"]
    assert len(tools) == 18
    assert all(tool["inputSchema"]["type"] == "object" for tool in tools)


def test_the_inspector_calls_tools(daemon: Daemon, transport: str, session: str) -> None:
    written = call(daemon, transport, session, "bash", command="printf 'one\\ntwo\\n' > list; cd /tmp; echo $((6 * 7))")
    assert written.startswith("42\n[exit code 0, in /tmp")
    call(daemon, transport, session, "edit", path="list", old_string="two", new_string="2")
    assert call(daemon, transport, session, "read", path="list").splitlines()[1].split() == ["2", "2"]
    resources = inspector(daemon, transport, session, "--method", "resources/list")["resources"]
    assert "cove://files/list" in {resource["uri"] for resource in resources}


def test_the_inspector_calls_a_tool_in_a_sandbox_of_its_own(daemon: Daemon, transport: str) -> None:
    assert call(daemon, transport, None, "bash", command="ls -A; echo hello").startswith("hello\n")


def test_the_inspector_lists_prompts_and_resources(daemon: Daemon, transport: str) -> None:
    prompts = inspector(daemon, transport, None, "--method", "prompts/list")["prompts"]
    assert "fix-failing-test" in {prompt["name"] for prompt in prompts}
    assert inspector(daemon, transport, None, "--method", "resources/list")["resources"] == []


def test_the_inspector_speaks_the_version_without_sessions(daemon: Daemon, transport: str, session: str) -> None:
    words = ("--method", "tools/list", "--strict", "--protocol-era", "modern")
    assert len(inspector(daemon, transport, session, *words)["tools"]) == 18

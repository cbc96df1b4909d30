"""The clients of these tests, none of which is ours: the Python reference client, the Inspector, and programs that Node runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from daemon import Daemon
    from mcp_types import CallToolResult

PROGRAM_SECONDS = 30.0
HERE = Path(__file__).resolve().parent


def environment(daemon: Daemon) -> dict[str, str]:
    """The variables by which a command finds this daemon, and nothing of the tester's own."""
    return {"PATH": os.environ["PATH"], "HOME": str(daemon.home), "LANG": "C.UTF-8", "COVE_DATA_DIR": str(daemon.data_dir)}


@contextlib.asynccontextmanager
async def connected(
    daemon: Daemon,
    transport: str,
    *,
    mode: str = "auto",
    query: str = "",
    url: str | None = None,
    key: str | None = None,
    options: tuple[str, ...] = (),
) -> AsyncIterator[Client]:
    """The Python reference client. `query`, `url` and `key` are for HTTP, and `options` are those of `cove mcp`."""
    async with contextlib.AsyncExitStack() as stack:
        if transport == "stdio":
            log = stack.enter_context((daemon.home / "cove-mcp.log").open("a"))
            command = StdioServerParameters(command=os.environ["COVE_BIN"], args=["mcp", *options], env=environment(daemon))
            streams = stdio_client(command, errlog=log)
        else:
            headers = {"Authorization": f"Bearer {key or daemon.key}"}
            http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(PROGRAM_SECONDS))
            await stack.enter_async_context(http)
            streams = streamable_http_client(f"{url or daemon.url}/mcp{query}", http_client=http)
        yield await stack.enter_async_context(Client(streams, mode=mode))


def text(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


async def done(client: Client, tool: str, /, **arguments: Any) -> str:
    """The text of a call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, f"{tool} {arguments}: {text(result)}"
    return text(result)


class Notes:
    """The progress of a call, and a way to wait for what it says."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, str]] = []
        self._changed = asyncio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.heard.append((progress, message or ""))
        self._changed.set()

    async def until(self, word: str) -> None:
        while not any(word in message for _, message in self.heard):
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), PROGRAM_SECONDS)


def node(*words: str, env: dict[str, str], given: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {**env, "COVE_MCP_PACKAGES": os.environ["COVE_MCP_PACKAGES"]}
    return subprocess.run(["node", *words], env=env, input=given or "", capture_output=True, text=True, timeout=PROGRAM_SECONDS)


def inspector(daemon: Daemon, transport: str, session: str | None, *words: str) -> Any:
    """What the Inspector prints. It must find no fault: its own checks end it with a status."""
    program = Path(os.environ["COVE_MCP_PACKAGES"]) / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    if transport == "http":
        query = "" if session is None else f"?session={session}"
        target = [f"{daemon.url}/mcp{query}", "--transport", "http", "--header", f"Authorization: Bearer {daemon.key}"]
    else:
        # The Inspector passes only variables on that it is given.
        variables = [word for name, value in environment(daemon).items() for word in ("-e", f"{name}={value}")]
        options = [] if session is None else ["--session", session]
        target = [*variables, "--", os.environ["COVE_BIN"], "mcp", *options]
    before, after = (words, target) if transport == "stdio" else ((), (*target, *words))
    ended = node(str(program), "--cli", *before, *after, env=environment(daemon))
    assert ended.returncode == 0, f"{words}: status {ended.returncode}: {ended.stderr}{ended.stdout}"
    return json.loads(ended.stdout)


def new_session(daemon: Daemon) -> str:
    """A session that outlives every client."""
    answer = httpx2.post(f"{daemon.url}/v1/sessions", headers={"Authorization": f"Bearer {daemon.key}"}, json={}, timeout=30)
    return str(answer.raise_for_status().json()["id"])


def sessions(daemon: Daemon) -> list[str]:
    """The sandboxes that were made for clients of MCP."""
    headers = {"Authorization": f"Bearer {daemon.key}"}
    answer = httpx2.get(f"{daemon.url}/v1/sessions", params={"label": "mcp=1"}, headers=headers, timeout=30)
    return [session["id"] for session in answer.raise_for_status().json()]

"""What goes wrong between a client and the daemon: cut connections, a killed daemon, strangers."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any

import httpx2
import mcp
import pytest
from clients import Notes, connected, done, text

if TYPE_CHECKING:
    from daemon import Daemon

HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


class Proxy:
    """Passes bytes between clients and a daemon, notes the heads of requests, and cuts all connections when it is told to."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self.heads: list[str] = []

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        daemon, to_daemon = await asyncio.open_connection("127.0.0.1", self._target)
        both = {to_client, to_daemon}
        self._writers |= both
        try:
            await asyncio.gather(self._pass_on(client, to_daemon, is_request=True), self._pass_on(daemon, to_client))
        finally:
            self._writers -= both
            for writer in both:
                writer.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_request: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if is_request:
                    self.heads += re.findall(r"^(?:GET|POST|DELETE) .*?\r\n\r\n", data.decode(errors="replace"), re.S)
                target.write(data)
                await target.drain()
            target.write_eof()


async def test_a_client_that_was_cut_off_gets_the_rest(daemon: Daemon) -> None:
    async with Proxy(daemon.port) as proxy, connected(daemon, "http", url=proxy.url) as client:
        await done(client, "bash", command="mkfifo gate; echo 0 > runs")
        notes = Notes()
        command = {"command": "echo $(($(cat runs) + 1)) > runs; echo begun; cat gate; echo over"}
        call = asyncio.create_task(client.call_tool("bash", command, progress_callback=notes))
        await notes.until("begun")
        proxy.cut()
        await done(client, "run_background", command="echo opened > gate")
        answer = text(await call)
        assert answer.startswith("begun\nopened\nover\n"), answer
        resumed = [head for head in proxy.heads if head.startswith("GET ") and "last-event-id:" in head.lower()]
        assert resumed, "the client asked for what it missed"
        assert (await done(client, "bash", command="cat runs")).startswith("1\n"), "the command ran once"


async def test_a_client_over_stdio_goes_on_when_the_daemon_was_killed(own_daemon: Daemon) -> None:
    async with connected(own_daemon, "stdio") as client:
        await done(client, "bash", command="cd /tmp; COLOUR=blue; mkfifo /workspace/gate")
        notes = Notes()
        call = asyncio.create_task(client.call_tool("bash", {"command": "echo begun; cat /workspace/gate"}, progress_callback=notes))
        await notes.until("begun")
        own_daemon.kill()
        own_daemon.start()
        lost = await call
        assert (lost.is_error, "may have run" in text(lost)) == (True, True), lost
        await done(client, "run_background", command="echo > /workspace/gate")
        assert "blue in /tmp" in await done(client, "bash", command="echo $COLOUR in $PWD"), "the shell is the same"


async def test_a_client_over_http_is_told_that_its_session_is_gone_when_the_daemon_was_killed(own_daemon: Daemon) -> None:
    async with connected(own_daemon, "http") as client:
        await done(client, "bash", command="echo hello")
        own_daemon.kill()
        own_daemon.start()
        with pytest.raises(mcp.MCPError):
            await client.call_tool("bash", {"command": "echo hello"})
    async with connected(own_daemon, "http") as client:
        assert "hello" in await done(client, "bash", command="echo hello")


def ask(daemon: Daemon, **headers: str) -> httpx2.Response:
    """Opens an MCP session, with these headers in addition."""
    given: dict[str, Any] = {"Authorization": f"Bearer {daemon.key}", "Accept": "application/json, text/event-stream"}
    return httpx2.post(f"{daemon.url}/mcp", json=HELLO, headers={**given, **headers}, timeout=30)


async def test_only_those_with_a_key_get_in(daemon: Daemon) -> None:
    assert ask(daemon).status_code == 200, "a control"
    for wrong in ("Bearer wrong", f"Basic {daemon.key}", "Bearer", ""):
        answer = ask(daemon, Authorization=wrong)
        assert (answer.status_code, "mcp-session-id" in answer.headers) == (401, False), wrong
        assert "www-authenticate" in answer.headers
    # The client's tasks are in groups, and so are their exceptions.
    with pytest.RaisesGroup(mcp.MCPError, flatten_subgroups=True):
        async with connected(daemon, "http", key="wrong"):
            pass


async def test_pages_of_other_sites_are_refused(daemon: Daemon) -> None:
    assert ask(daemon, Origin=daemon.url).status_code == 200, "a control"
    for origin in ("https://example.com", "http://127.0.0.1.example.com", "null"):
        answer = ask(daemon, Origin=origin)
        assert (answer.status_code, "mcp-session-id" in answer.headers) == (403, False), origin
    assert ask(daemon, Host="example.com").status_code in (403, 421), "a name that an attacker points at this machine"


async def test_a_client_cannot_use_the_session_of_another_key(daemon: Daemon) -> None:
    session = ask(daemon).headers["mcp-session-id"]
    made = httpx2.post(
        f"{daemon.url}/v1/keys", json={"name": "other", "role": "user"}, headers={"Authorization": f"Bearer {daemon.key}"}, timeout=30
    )
    key = made.raise_for_status().json()["secret"]
    given = {"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25", "Accept": "application/json, text/event-stream"}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for owner, status in [(key, 404), (daemon.key, 200)]:
        answer = httpx2.post(f"{daemon.url}/mcp", json=listing, headers={**given, "Authorization": f"Bearer {owner}"}, timeout=30)
        assert answer.status_code == status, answer.text

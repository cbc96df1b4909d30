"""The smaller parts of a session: its network, its ports, its named shells."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .._errors import PortClosed, WaitTimedOut
from .._http import given, query, segment
from .._models import (
    Injection,
    NetworkDecision,
    NetworkInfo,
    NetworkSpec,
    PortInfo,
    PortLink,
    PortResponse,
    ShellInfo,
    read,
    read_list,
)
from .._settings import BACKOFF_MAX_SECONDS, BACKOFF_SECONDS, Backoff
from . import _io

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from .._models import ExecResult
    from ._process import AsyncProcess
    from ._session import AsyncSession
    from ._stream import AsyncExecStream
    from ._transport import AsyncTransport


class AsyncNetwork:
    """What a session may reach: `session.network`."""

    def __init__(self, transport: AsyncTransport, session: str) -> None:
        self._transport = transport
        self._path = f"/v1/sessions/{segment(session)}/network"

    async def get(self) -> NetworkInfo:
        """The rules now, and what was reached."""
        return read(NetworkInfo, await self._transport.json("GET", self._path))

    async def set(self, network: NetworkSpec, *, inject: Sequence[Injection] | None = None) -> NetworkInfo:
        """Changes what the session may reach, at once. Without `inject` it keeps the headers that the daemon adds."""
        body = given(network=network, inject=None if inject is None else [one.as_json() for one in inject])
        return read(NetworkInfo, await self._transport.json("PUT", self._path, body=body, repeat="always"))

    async def log(self, *, after: int | None = None) -> list[NetworkDecision]:
        """The last decisions, the oldest first; with `after`, those with a higher `sequence`."""
        answer = await self._transport.json("GET", f"{self._path}/log{query({'after': after})}")
        return read_list(NetworkDecision, answer["decisions"])

    async def follow(self, *, after: int | None = None) -> AsyncIterator[NetworkDecision]:
        """The decisions as they are made, until the session ends. A lost connection is continued."""
        import httpx

        backoff = Backoff(self._transport.reconnect_seconds)
        while True:
            try:
                path = f"{self._path}/log{query({'after': after, 'follow': True})}"
                async for name, body in self._transport.events("GET", path):
                    if name == "decision":
                        backoff.progress()
                        decision = read(NetworkDecision, body)
                        after = decision.sequence
                        yield decision
                return
            except httpx.TransportError as error:
                wait = backoff.failed()
                if wait is None:
                    raise await self._transport.unreachable(error) from error
                await _io.sleep(wait)


class AsyncPorts:
    """Servers in a session: `session.ports`."""

    def __init__(self, transport: AsyncTransport, session: str) -> None:
        self._transport = transport
        self._path = f"/v1/sessions/{segment(session)}/ports"

    async def list(self) -> list[PortInfo]:
        """The TCP sockets that listen in the sandbox."""
        return read_list(PortInfo, (await self._transport.json("GET", self._path))["ports"])

    async def wait(self, port: int, timeout: float = 30.0) -> PortInfo:
        """Waits until something listens on a port."""
        deadline, pause = time.monotonic() + timeout, BACKOFF_SECONDS
        while True:
            for info in await self.list():
                if info.port == port and info.reachable:
                    return info
            if time.monotonic() + pause > deadline:
                raise WaitTimedOut(
                    f"nothing listens on port {port} after {timeout} seconds",
                    hint="Look at the server's output",
                )
            await _io.sleep(pause)
            pause = min(BACKOFF_MAX_SECONDS / 4, pause * 1.5)

    async def url(self, port: int, *, ttl_seconds: int | None = None) -> PortLink:
        """Makes a link to a port for a browser. Whoever has it can use that port until it expires (3600 seconds)."""
        answer = await self._transport.json("POST", f"{self._path}/{port}/url", body=given(ttl_seconds=ttl_seconds))
        return read(PortLink, answer)

    async def revoke(self, port: int) -> None:
        """Takes back all links to a port."""
        await self._transport.json("DELETE", f"{self._path}/{port}/url", repeat="always")

    async def request(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        content: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> PortResponse:
        """Sends an HTTP request to a server in the sandbox. Its answer is returned whatever its status is."""
        import httpx

        if not path.startswith("/"):
            raise ValueError(f"a path begins with a slash, {path!r} does not")
        client, base = await self._transport.client()
        data = content.encode() if isinstance(content, str) else content
        try:
            response = await client.request(method, f"{base}{self._path}/{port}{path}", content=data, headers=dict(headers or {}))
        except httpx.TransportError as error:
            raise await self._transport.unreachable(error) from error
        if response.status_code == 502 and b'"PORT_CLOSED"' in response.content[:200]:
            raise PortClosed(f"nothing answers on port {port}", code="PORT_CLOSED", status=502)
        return PortResponse(response.status_code, dict(response.headers), response.content)


class AsyncShell:
    """A named shell of a session. It keeps its directory, variables and functions, and runs one command at a time."""

    def __init__(self, session: AsyncSession, name: str) -> None:
        self._session = session
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of session {self._session.id}>"

    async def exec(self, cmd: str, **options: Any) -> ExecResult:
        """As `session.exec`, in this shell."""
        return await self._session.exec(cmd, shell=self.name, **options)

    def stream(self, cmd: str, **options: Any) -> AsyncExecStream:
        """As `session.stream`, in this shell."""
        return self._session.stream(cmd, shell=self.name, **options)

    async def spawn(self, cmd: str, **options: Any) -> AsyncProcess:
        """As `session.spawn`, in this shell, which takes no other command meanwhile."""
        return await self._session.spawn(cmd, shell=self.name, **options)

    async def input(self, data: str | bytes) -> None:
        """Types at the shell's terminal."""
        await self._session.input(data, shell=self.name)

    async def signal(self, signal: str | int) -> None:
        """Sends a signal to the command that runs in the shell."""
        await self._session.signal(signal, shell=self.name)

    async def resize(self, cols: int, rows: int) -> None:
        """Changes the size of the shell's terminal."""
        await self._session.resize(cols, rows, shell=self.name)

    async def reset(self) -> ShellInfo:
        """Puts a new shell in its place; the command that runs is lost."""
        return read(ShellInfo, await self._session._json("POST", f"/shells/{segment(self.name)}/reset"))

    async def close(self) -> None:
        """Closes the shell."""
        await self._session._json("DELETE", f"/shells/{segment(self.name)}")

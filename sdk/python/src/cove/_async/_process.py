"""A command or program that was started and not waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._errors import Conflict, ExecNotFound, NotFound, WaitTimedOut
from .._http import query, segment
from .._output import Collector
from .._settings import CANCEL_SECONDS
from ._stream import AsyncExecStream, has_ended, send_signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from .._models import ExecResult, RunResult
    from ._transport import AsyncTransport

_OWN_SHELL = "spawn-"
_MAX_NAME = 64


def own_shell(exec_id: str) -> str:
    """The name of the shell that `spawn` opens for a command."""
    return (_OWN_SHELL + exec_id)[:_MAX_NAME]


def is_own_shell(name: str) -> bool:
    return name.startswith(_OWN_SHELL)


async def close_own_shell(transport: AsyncTransport, session: str, exec_id: str) -> bool:
    """Closes the shell that `spawn` opened for a command. False if there is none."""
    try:
        await transport.json("DELETE", f"/v1/sessions/{segment(session)}/shells/{segment(own_shell(exec_id))}")
    except NotFound:
        return False
    return True


class AsyncProcess:
    """What `spawn` started. It goes on if this object, this program or the daemon ends."""

    def __init__(
        self,
        transport: AsyncTransport,
        session: str,
        exec_id: str,
        *,
        command: str,
        own_shell: str | None = None,
    ) -> None:
        self._transport = transport
        self._session = session
        self._command = command
        self.exec_id = exec_id
        """Its id. `session.process(exec_id)` finds it again."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.exec_id} of session {self._session}>"

    @property
    def _path(self) -> str:
        return f"/v1/sessions/{segment(self._session)}"

    async def wait(
        self, timeout: float | None = None, *, check: bool = False, max_output_bytes: int | None = None
    ) -> ExecResult | RunResult:
        """Waits for its end and returns its output. After `timeout` seconds it raises `WaitTimedOut`; the command goes on."""
        if timeout is not None and not await has_ended(self._transport, self._session, self.exec_id, timeout):
            raise WaitTimedOut(f"{self.exec_id} still runs after {timeout} seconds", hint="Wait again, or end it with kill()")
        stream = self._stream(Collector.of_reply(max_output_bytes))
        result = await stream.wait()
        await self._close_own_shell()
        return result.check(self._command) if check else result

    def _stream(self, collector: Collector | None = None, offset: int = 0, follow: bool = True) -> AsyncExecStream:
        return AsyncExecStream(
            self._transport,
            self._session,
            self.exec_id,
            offset=offset,
            collector=collector,
            follow=follow,
            on_cancel="detach",
            was_sent=True,
            command=self._command,
        )

    def logs(self, *, follow: bool = False, offset: int = 0) -> AsyncExecStream:
        """What it has printed, as an iterator of `Chunk`; with `follow`, until it ends. `offset` is the first byte to read."""
        return self._stream(offset=offset, follow=follow)

    async def signal(self, signal: str | int) -> None:
        """Sends a signal, such as `INT` or 15. It is a `Conflict` if the command has ended."""
        await send_signal(self._transport, self._session, self.exec_id, signal)

    async def kill(self) -> None:
        """Ends it by force, if it has not ended, and waits for that, at most 5 seconds."""
        if await self._close_own_shell():
            return  # everything in the shell ended with it
        try:
            await self.signal("KILL")
            if not await has_ended(self._transport, self._session, self.exec_id, CANCEL_SECONDS):
                # A script goes on after its current program was killed. This ends the script.
                await self.signal("INT")
        except (Conflict, ExecNotFound):
            pass  # it has ended

    async def write(self, data: str | bytes | AsyncIterable[bytes], *, close: bool = False) -> int:
        """Writes to its standard input, which `spawn(argv, stdin_open=True)` left open. Returns when the program has taken it."""
        content = data.encode() if isinstance(data, str) else data
        path = f"{self._path}/runs/{segment(self.exec_id)}/stdin{query({'close': close or None})}"
        headers = {"Content-Type": "application/octet-stream"}
        answer: Any = await self._transport.json("POST", path, content=content, headers=headers)
        return int(answer["bytes"])

    async def close_stdin(self) -> None:
        """Ends its standard input."""
        await self._transport.json("POST", f"{self._path}/runs/{segment(self.exec_id)}/stdin/close")

    async def _close_own_shell(self) -> bool:
        return await close_own_shell(self._transport, self._session, self.exec_id)

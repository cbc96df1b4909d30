"""Tells what changes below a directory, for as long as the caller wants to know.

    opened ──ready──► changes ──ended──► over
      ▲                  │ the connection is lost, or the daemon is restarted
      └──────────────────┘ then the first thing that is told is `overflow`: nobody knows what changed meanwhile

A watch belongs to one task or thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _events
from .._errors import DaemonUnreachable, api_error
from .._models import FileChange, read
from .._settings import CANCEL_SECONDS, STREAM_SILENCE_SECONDS, Backoff
from . import _io
from ._stream import anext_or_none

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from ._transport import AsyncTransport


class AsyncWatch:
    """What changes below a directory: an iterator of `FileChange`, and a context manager.

    When `with` has begun, or the first change is waited for, everything is watched. The iterator ends when the directory is gone.
    """

    def __init__(self, transport: AsyncTransport, address: str, path: str) -> None:
        self._transport = transport
        self._address = address
        self._path = path
        self._backoff = Backoff(transport.reconnect_seconds)
        self._response: httpx.Response | None = None
        self._body: Any = None
        self._reader = _events.EventReader()
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._was_ready = False
        self._is_over = False
        self.truncated = False
        """Whether a directory is not watched, because it is too deep or the sandbox user may not read it."""
        self.ended: str | None = None
        """What became of the directory, once the iterator has ended by itself: `deleted`, `moved` or `unmounted`."""
        self.reconnects = 0
        """How often the connection was lost and made again."""

    def __del__(self) -> None:
        # A loop that was left early: the connection would stay taken until the process ends.
        response = getattr(self, "_response", None)
        if response is not None:
            _io.abandon(response)

    async def __aenter__(self) -> AsyncWatch:
        await self.ready()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> FileChange:
        change = await self._next()
        if change is None:
            raise StopAsyncIteration
        return change

    async def ready(self) -> None:
        """Waits until everything is watched: what changes after this is told."""
        while not self._was_ready and not self._is_over:
            await self._take()

    async def close(self) -> None:
        """Stops watching."""
        self._is_over = True
        await self._hang_up()

    async def _next(self) -> FileChange | None:
        while not self._is_over:
            change = await self._take()
            if change is not None:
                return change
        return None

    async def _take(self) -> FileChange | None:
        """Waits for the next event. Returns the change in it, if it is one."""
        try:
            while not self._waiting:
                await self._fill()
            name, body = self._waiting.pop(0)
            return await self._understood(name, body)
        except _io.Cancelled:
            # Who waits only for a while may wait again, on a new connection.
            await _io.finish(self._hang_up, CANCEL_SECONDS)
            raise
        except BaseException:
            await self.close()
            raise

    async def _understood(self, name: str, body: dict[str, Any]) -> FileChange | None:
        if name == "change":
            self._backoff.progress()
            return read(FileChange, {**body, "from_path": body.get("from")})
        if name == "ready":
            self.truncated = bool(body.get("truncated"))
            was_ready, self._was_ready = self._was_ready, True
            return self._overflow() if was_ready else None
        if name == "overflow":
            return self._overflow()
        if name == "ended":
            self.ended = str(body.get("reason"))
            await self.close()
        elif name == "error":
            raise api_error(body, status=0)
        return None

    def _overflow(self) -> FileChange:
        return FileChange("overflow", self._path, is_dir=True)

    async def _fill(self) -> None:
        import httpx

        try:
            if self._response is None:
                self._reader = _events.EventReader()
                headers = {"Accept": "text/event-stream"}
                self._response = await self._transport.open("GET", self._address, headers=headers, silence=STREAM_SILENCE_SECONDS)
                self._body = self._response.aiter_raw()
                self._backoff.reached()
            data = await anext_or_none(self._body)
        except httpx.TransportError as error:
            await self._lost(error)
            return
        if data is None:
            await self._lost(None)
        else:
            self._waiting = self._reader.feed(data)

    async def _lost(self, error: Exception | None) -> None:
        """The connection is gone. Waits until it is time for the next attempt, or gives up."""
        await self._hang_up()
        wait = self._backoff.failed() if self._transport.has_answered else None
        if wait is None:
            if error is None:
                raise DaemonUnreachable(f"the watch of {self._path} was lost and could not be continued")
            raise await self._transport.unreachable(error) from error
        self.reconnects += 1
        await _io.sleep(wait)

    async def _hang_up(self) -> None:
        response, self._response, self._body = self._response, None, None
        if response is not None:
            await response.aclose()

# Generated from _async/_watch.py by tools/generate_sync.py: change that file instead.
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
from ._stream import next_or_none

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from ._transport import Transport


class Watch:
    """What changes below a directory: an iterator of `FileChange`, and a context manager.

    When `with` has begun, or the first change is waited for, everything is watched. The iterator ends when the directory is gone.
    """

    def __init__(self, transport: Transport, address: str, path: str) -> None:
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

    def __enter__(self) -> Watch:
        self.ready()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> FileChange:
        change = self._next()
        if change is None:
            raise StopIteration
        return change

    def ready(self) -> None:
        """Waits until everything is watched: what changes after this is told."""
        while not self._was_ready and not self._is_over:
            self._take()

    def close(self) -> None:
        """Stops watching."""
        self._is_over = True
        self._hang_up()

    def _next(self) -> FileChange | None:
        while not self._is_over:
            change = self._take()
            if change is not None:
                return change
        return None

    def _take(self) -> FileChange | None:
        """Waits for the next event. Returns the change in it, if it is one."""
        try:
            while not self._waiting:
                self._fill()
            name, body = self._waiting.pop(0)
            return self._understood(name, body)
        except _io.Cancelled:
            # Who waits only for a while may wait again, on a new connection.
            _io.finish(self._hang_up, CANCEL_SECONDS)
            raise
        except BaseException:
            self.close()
            raise

    def _understood(self, name: str, body: dict[str, Any]) -> FileChange | None:
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
            self.close()
        elif name == "error":
            raise api_error(body, status=0)
        return None

    def _overflow(self) -> FileChange:
        return FileChange("overflow", self._path, is_dir=True)

    def _fill(self) -> None:
        import httpx

        try:
            if self._response is None:
                self._reader = _events.EventReader()
                headers = {"Accept": "text/event-stream"}
                self._response = self._transport.open("GET", self._address, headers=headers, silence=STREAM_SILENCE_SECONDS)
                self._body = self._response.iter_raw()
                self._backoff.reached()
            data = next_or_none(self._body)
        except httpx.TransportError as error:
            self._lost(error)
            return
        if data is None:
            self._lost(None)
        else:
            self._waiting = self._reader.feed(data)

    def _lost(self, error: Exception | None) -> None:
        """The connection is gone. Waits until it is time for the next attempt, or gives up."""
        self._hang_up()
        wait = self._backoff.failed() if self._transport.has_answered else None
        if wait is None:
            if error is None:
                raise DaemonUnreachable(f"the watch of {self._path} was lost and could not be continued")
            raise self._transport.unreachable(error) from error
        self.reconnects += 1
        _io.sleep(wait)

    def _hang_up(self) -> None:
        response, self._response, self._body = self._response, None, None
        if response is not None:
            response.close()

"""Follows a command and hands out every byte of its output once, also if connections are lost or the daemon is restarted.

The command has an id that we choose, and `offset` is the first byte that was not handed out. After a lost connection:

    never attached ──► send the same request again. If the daemon knows the id already, the first one did arrive: attach
    attached       ──► follow the command from `offset` on

`done` or `error` ends the stream; an answer that ends without either was cut. A stream belongs to one task or thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

from .. import _events
from .._errors import ApiError, Conflict, ExecNotFound, InternalError, StreamLost, WaitTimedOut, api_error
from .._http import query, segment
from .._models import Chunk, Done, Event, ExecResult, Gap, RunResult
from .._output import Collector
from .._settings import BACKOFF_SECONDS, CANCEL_SECONDS, CANCEL_STEPS, STREAM_SILENCE_SECONDS, Backoff
from . import _io

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from ._transport import AsyncTransport

OnCancel = Literal["kill", "detach"]


class AsyncExecStream:
    """The output of a command as it is printed: an iterator of `Chunk`. After it, `result` says how the command ended."""

    def __init__(
        self,
        transport: AsyncTransport,
        session: str,
        exec_id: str,
        *,
        request: tuple[str, dict[str, Any]] | None = None,
        offset: int = 0,
        is_run: bool = False,
        command: str = "the command",
        check: bool = False,
        on_cancel: OnCancel = "kill",
        collector: Collector | None = None,
        follow: bool = True,
        was_sent: bool = False,
    ) -> None:
        self._transport = transport
        self._session = session
        self._request = request
        self._is_run = is_run
        self._command = command
        self._check = check
        self._on_cancel = on_cancel
        self._collector = collector or Collector.of_stream()
        self._follow = follow
        self._backoff = Backoff(transport.reconnect_seconds)
        self._response: httpx.Response | None = None
        self._body: Any = None
        self._reader = _events.EventReader()
        self._ready: list[tuple[str, dict[str, Any]]] = []
        self._missing = 0
        self._was_sent = was_sent
        self._is_over = False
        self.exec_id = exec_id
        """The id of the command. `session.attach(exec_id)` finds it again."""
        self.offset = offset
        """The first byte of the output that was not handed out yet."""
        self.result: ExecResult | RunResult | None = None
        """How the command ended, once it has. Its `output` has the last 8 KiB."""
        self.reconnects = 0
        """How often the stream was lost and continued."""

    def __del__(self) -> None:
        # A loop that was left early: the connection would stay taken until the process ends.
        response = getattr(self, "_response", None)
        if response is not None:
            _io.abandon(response)

    async def __aenter__(self) -> AsyncExecStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __aiter__(self) -> AsyncExecStream:
        return self

    async def __anext__(self) -> Chunk:
        while (event := await self.next_event()) is not None:
            if isinstance(event, Gap):
                self._missing += event.bytes
            elif isinstance(event, Chunk):
                missing, self._missing = self._missing, 0
                if missing:
                    return Chunk(event.data, event.stream, event.offset, event.timestamp, missing)
                return event
        if self._check and self.result is not None:
            self.result.check(self._command)
        raise StopAsyncIteration

    async def next_event(self) -> Event | None:
        """The next event of any kind, for those who want to know more than the output. None after `Done`."""
        try:
            return await self._next_event()
        except _io.Cancelled:
            self._is_over = True
            await _io.finish(self._hang_up, CANCEL_SECONDS)
            if self._on_cancel == "kill" and self._was_sent:
                await self._transport.finish(lambda apart: stop_command(apart, self._session, self.exec_id), CANCEL_SECONDS * 3)
            raise
        except BaseException:
            self._is_over = True
            await self._hang_up()
            raise

    async def wait(self) -> ExecResult | RunResult:
        """Reads to the end. Returns how the command ended, with the last 8 KiB of its output."""
        async for _ in self:
            pass
        if self.result is None:
            raise WaitTimedOut(f"{self.exec_id} has not ended", hint="This stream was closed before its end")
        return self.result

    async def close(self) -> None:
        """Stops following. The command keeps running."""
        self._is_over = True
        await self._hang_up()

    async def signal(self, signal: str | int) -> None:
        """Sends a signal to the command, such as `INT`."""
        await send_signal(self._transport, self._session, self.exec_id, signal)

    async def _next_event(self) -> Event | None:
        while not self._is_over:
            if not self._ready and not await self._fill():
                return None
            name, body = self._ready.pop(0)
            event = await self._understood(name, body)
            if event is not None:
                return event
        return None

    async def _understood(self, name: str, body: dict[str, Any]) -> Event | None:
        """What an event means. None for one that was seen before a reconnect, or that this version does not know."""
        if name == "chunk":
            piece = _events.after(self.offset, _events.chunk(body))
            if piece is None:
                return None
            self._backoff.progress()
            self.offset = piece.offset + len(piece.data)
            self._collector.push(piece)
            return piece
        if name == "done":
            self._is_over = True
            await self._hang_up()
            self.result = self._collector.result(body, is_run="cwd" not in body)
            return Done(self.result)
        if name == "error":
            error = api_error(body, status=0)
            if not isinstance(error, InternalError):
                raise error
            # The daemon could not go on with this stream. The command may still run, so it is asked for again.
            await self._lost(error)
            return None
        event = _events.simple(name, body)
        if isinstance(event, Gap):
            end = event.offset + event.bytes
            event = Gap(self.offset, end - self.offset) if end > self.offset else None
            if event is not None:
                self._backoff.progress()
                self.offset = end
                self._collector.skip(event.bytes)
        return event

    async def _fill(self) -> bool:
        """Waits for events. False if there are none left and the stream was not asked to follow."""
        import httpx

        while not self._ready:
            try:
                if self._response is None:
                    await self._connect()
                data = await anext_or_none(self._body)
            except httpx.TransportError as error:
                await self._lost(error)
                continue
            if data is not None:
                self._ready = self._reader.feed(data)
            elif self._follow:
                await self._lost(None)
            else:
                self._is_over = True
                await self._hang_up()
                return False
        return True

    async def _connect(self) -> None:
        is_repeated, self._was_sent = self._was_sent, True
        headers = {"Accept": "text/event-stream"}
        self._reader = _events.EventReader()
        if self._request is not None:
            path, body = self._request
            try:
                response = await self._transport.open("POST", path, body=body, headers=headers, silence=STREAM_SILENCE_SECONDS)
            except Conflict as error:
                if not is_repeated or error.code != "CONFLICT":
                    raise
                # The lost request did arrive. A conflict of another kind shows when the command is not found.
                self._request = None
                try:
                    response = await self._reattach(headers)
                except ExecNotFound:
                    raise error from None
            self._request = None
        else:
            response = await self._reattach(headers)
        self._response, self._body = response, response.aiter_raw()
        self._backoff.reached()

    async def _reattach(self, headers: dict[str, str]) -> httpx.Response:
        path = f"/v1/sessions/{segment(self._session)}/execs/{segment(self.exec_id)}"
        options = query({"from": self.offset, "follow": self._follow})
        return await self._transport.open("GET", path + options, headers=headers, silence=STREAM_SILENCE_SECONDS)

    async def _lost(self, error: Exception | None) -> None:
        """The connection is gone. Waits until it is time for the next attempt, or gives up."""
        await self._hang_up()
        self._ready = []
        if not self._transport.has_answered and error is not None:
            raise await self._transport.unreachable(error) from error
        wait = self._backoff.failed()
        if wait is None:
            reason = f"{error or 'it ended too early'}" if not isinstance(error, ApiError) else error.message
            text = f"the stream of {self.exec_id} was lost at byte {self.offset} and could not be continued: {reason}"
            raise StreamLost(text, exec_id=self.exec_id, offset=self.offset) from error
        self.reconnects += 1
        await _io.sleep(wait)

    async def _hang_up(self) -> None:
        response, self._response, self._body = self._response, None, None
        if response is not None:
            await response.aclose()


async def anext_or_none(body: Any) -> bytes | None:
    try:
        data: bytes = await body.__anext__()
    except StopAsyncIteration:
        return None
    return data


async def send_signal(transport: AsyncTransport, session: str, exec_id: str, signal: str | int) -> None:
    body = {"signal": signal, "exec_id": exec_id}
    await transport.json("POST", f"/v1/sessions/{segment(session)}/signal", body=body)


async def stop_command(transport: AsyncTransport, session: str, exec_id: str) -> bool:
    """Ends a command as Ctrl-C would, and by force if that is not enough. Returns whether it has ended."""
    for signal, seconds in CANCEL_STEPS:
        try:
            await send_signal(transport, session, exec_id, signal)
        except (Conflict, ExecNotFound):
            return True  # it has ended, or never began
        if await has_ended(transport, session, exec_id, seconds):
            return True
    return False


async def has_ended(transport: AsyncTransport, session: str, exec_id: str, seconds: float) -> bool:
    """Waits for the end of a command, at most this long."""
    import httpx

    # Far behind all output, so that only the end is told, and keep-alives.
    path = f"/v1/sessions/{segment(session)}/execs/{segment(exec_id)}{query({'from': 2**62, 'follow': True})}"
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        try:
            response = await transport.open("GET", path, headers={"Accept": "text/event-stream"}, silence=left)
            reader = _events.EventReader()
            try:
                async for data in response.aiter_raw():
                    if any(name in ("done", "error") for name, _ in reader.feed(data)):
                        return True
                    if time.monotonic() >= deadline:
                        return False
            finally:
                await response.aclose()
        except httpx.TransportError:
            await _io.sleep(min(left, BACKOFF_SECONDS * 5))
    return False

"""What differs between the asynchronous and the synchronous client: waiting, cancellation, blocking work, connections.

`cove/_sync/_io.py` has the same names and is written by hand; everything else in these folders is one source.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    import httpx

    from .._find import Endpoint

T = TypeVar("T")

Cancelled = asyncio.CancelledError
"""What is raised in a caller that is told to stop: the cancellation of its task, or Ctrl-C in the synchronous client."""

sleep = asyncio.sleep


async def blocking(work: Callable[[], T]) -> T:
    """Does work that blocks, such as reading files, without holding up the event loop."""
    return await asyncio.to_thread(work)


async def from_blocking(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Passes on what a blocking iterator makes."""
    end = object()
    while (piece := await asyncio.to_thread(next, pieces, end)) is not end:
        yield piece  # type: ignore[misc]


_abandoned: set[asyncio.Task[None]] = set()


def abandon(response: httpx.Response) -> None:
    """Closes an answer that nobody reads any more, when there is time for it."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return  # its event loop has ended, and its connection with it
    task = loop.create_task(response.aclose())
    _abandoned.add(task)
    task.add_done_callback(_abandoned.discard)


async def finish(work: Callable[[], Coroutine[Any, Any, Any]], seconds: float) -> None:
    """Does the last work of a caller that is being cancelled: to its end, though not for ever, and without raising."""
    task = asyncio.ensure_future(work())
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), seconds)
    if not task.done():
        task.cancel()


async def finish_apart(work: Callable[[], Coroutine[Any, Any, Any]], seconds: float) -> None:
    """Does the last work of a caller that is being cancelled, in a thread with an event loop of its own, and without raising.

    Ctrl-C cancels a task twice: once by whoever waits for it, and again when `asyncio.run` cancels what is left. The second time the
    caller goes on at once. The work still comes to its end, because `asyncio.run` waits for its threads. `work` must use nothing that
    belongs to the event loop of the caller.
    """

    async def bounded() -> None:
        await asyncio.wait_for(work(), seconds)

    def run() -> None:
        with contextlib.suppress(Exception, asyncio.CancelledError):
            asyncio.run(bounded())

    done = asyncio.get_running_loop().run_in_executor(None, run)
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(done), seconds)


class Connections:
    """The connections to one daemon. Each event loop has its own, because a connection belongs to the loop that opened it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[int, httpx.AsyncClient]] = (
            weakref.WeakKeyDictionary()
        )

    def client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._clients.get(loop)
            # After a fork the sockets would be shared with the parent process.
            if found is None or found[0] != _http.pid():
                found = self._clients[loop] = (_http.pid(), _http.async_client(self._endpoint))
            return found[1]

    async def close(self) -> None:
        """Closes the connections of this event loop. Those of other loops are closed with their loops."""
        with self._lock:
            found = self._clients.pop(asyncio.get_running_loop(), None)
        if found is not None and found[0] == _http.pid():
            await found[1].aclose()


async def websocket(url: str, socket: str | None, headers: dict[str, str], max_size: int, seconds: float) -> Any:
    """Opens a WebSocket."""
    from websockets.asyncio.client import connect, unix_connect

    options: dict[str, Any] = {
        "additional_headers": headers,
        "max_size": max_size,
        "open_timeout": seconds,
        "compression": None,
    }
    if socket is not None:
        return await unix_connect(socket, uri=url, **options)
    return await connect(url, proxy=None, **options)


async def receive(socket: Any, seconds: float | None) -> Any:
    """The next message of a WebSocket, or a TimeoutError."""
    if seconds is None:
        return await socket.recv()
    try:
        return await asyncio.wait_for(socket.recv(), seconds)
    except asyncio.TimeoutError as error:  # another class than TimeoutError before Python 3.11
        raise TimeoutError(f"no message in {seconds} seconds") from error

"""What differs between the asynchronous and the synchronous client: waiting, cancellation, blocking work, connections.

`cove/_async/_io.py` has the same names and is written by hand, too; everything else in these folders is one source.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _http

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from .._find import Endpoint

T = TypeVar("T")

Cancelled = KeyboardInterrupt
"""What is raised in a caller that is told to stop: Ctrl-C here, the cancellation of a task in the asynchronous client."""

sleep = time.sleep


def blocking(work: Callable[[], T]) -> T:
    """Does work that blocks. Here nothing has to be done for that."""
    return work()


def from_blocking(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Passes on what a blocking iterator makes."""
    yield from pieces


def abandon(response: httpx.Response) -> None:
    """Closes an answer that nobody reads any more."""
    with contextlib.suppress(Exception):
        response.close()


def finish(work: Callable[[], Any], seconds: float) -> None:
    """Does the last work of a caller that is being cancelled, without raising. Its requests have their own time limits."""
    with contextlib.suppress(Exception):
        work()


finish_apart = finish
"""In the asynchronous client this is done apart from the event loop. Here there is none."""


class Connections:
    """The connections to one daemon, for all threads of this process."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._client: tuple[int, httpx.Client] | None = None

    def client(self) -> httpx.Client:
        with self._lock:
            # After a fork the sockets would be shared with the parent process.
            if self._client is None or self._client[0] != _http.pid():
                self._client = (_http.pid(), _http.sync_client(self._endpoint))
            return self._client[1]

    def close(self) -> None:
        with self._lock:
            found, self._client = self._client, None
        if found is not None and found[0] == _http.pid():
            found[1].close()


def websocket(url: str, socket: str | None, headers: dict[str, str], max_size: int, seconds: float) -> Any:
    """Opens a WebSocket."""
    from websockets.sync.client import connect, unix_connect

    options: dict[str, Any] = {
        "additional_headers": headers,
        "max_size": max_size,
        "open_timeout": seconds,
        "compression": None,
    }
    if socket is not None:
        return unix_connect(socket, uri=url, **options)
    return connect(url, proxy=None, **options)


def receive(socket: Any, seconds: float | None) -> Any:
    """The next message of a WebSocket, or a TimeoutError."""
    return socket.recv(timeout=seconds)

# Generated from _async/_transport.py by tools/generate_sync.py: change that file instead.
"""Sends requests to one daemon and turns what goes wrong into exceptions of this package.

A request is repeated only if that is safe: if it never left this machine, or if the daemon would take a second one for the first.
Whoever sends a request says so with `repeat`.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Literal

from .._errors import CoveError, DaemonUnreachable, ProtocolError, api_error
from .._events import EventReader
from .._settings import MAX_ERROR_BYTES, RETRY_ATTEMPTS, STREAM_SILENCE_SECONDS, Backoff
from . import _io

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import httpx

    from .._embedded import EmbeddedDaemon
    from .._find import Endpoint

Repeat = Literal["never", "if unsent", "always"]


class Transport:
    """The connection of one client. A daemon of its own (`embedded`) is started by the first request."""

    def __init__(self, endpoint: Endpoint | None, embedded: EmbeddedDaemon | None, reconnect_seconds: float) -> None:
        self._endpoint = endpoint
        self._embedded = embedded
        self._connections: _io.Connections | None = None
        self.has_answered = False
        """Whether the daemon has ever answered this client. Until then a failure is told at once."""
        self._is_closed = False
        self._lock = threading.Lock()
        self.reconnect_seconds = reconnect_seconds

    def endpoint(self) -> Endpoint:
        """The daemon's address and key."""
        if self._is_closed:
            raise CoveError("this client is closed", hint="Make a new one with Cove()")
        if self._endpoint is None:
            assert self._embedded is not None
            self._endpoint = _io.blocking(self._embedded.start)
        return self._endpoint

    def close(self) -> None:
        """Closes the connections, and ends the daemon if it is this client's own."""
        self._is_closed = True
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()
        if self._embedded is not None:
            _io.blocking(self._embedded.stop)

    def finish(self, work: Callable[[Transport], Any], seconds: float) -> None:
        """Does the last work of a caller that is being cancelled, with connections of its own.

        Other tasks are often cancelled at the same time, and one of them may close this client before all have cleaned up.
        """

        def apart() -> None:
            other = Transport(self._endpoint, None, self.reconnect_seconds)
            # If this client is closed, its daemon may be gone for good, so that a failure counts at once.
            other.has_answered = self.has_answered and not self._is_closed
            try:
                work(other)
            finally:
                other.close()

        if self._endpoint is not None:  # otherwise nothing was ever sent
            _io.finish_apart(apart, seconds)

    def client(self) -> tuple[httpx.Client, str]:
        """The HTTP client of this thread or event loop, and the daemon's address."""
        endpoint = self.endpoint()
        with self._lock:
            if self._connections is None:
                self._connections = _io.Connections(endpoint)
            connections = self._connections
        return connections.client(), endpoint.base

    def open(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        silence: float | None = None,
    ) -> httpx.Response:
        """Sends one request once. Returns the answer, whose body the caller reads and closes; a refusal is an `ApiError`.

        Raises httpx's own exception if the connection fails.
        """
        import httpx

        client, base = self.client()
        sent = {"Accept": "application/json", **(headers or {})}
        if body is not None:
            content = json.dumps(body, separators=(",", ":")).encode()
            sent["Content-Type"] = "application/json"
        timeout = client.timeout
        if silence is not None:
            timeout = httpx.Timeout(silence, connect=timeout.connect, pool=timeout.pool)
        request = client.build_request(method, base + path, content=content, headers=sent, timeout=timeout)
        response = client.send(request, stream=True)
        self.has_answered = True
        if response.status_code >= 400:
            raise self._refusal(response)
        return response

    def _refusal(self, response: httpx.Response) -> Exception:
        try:
            text = b""
            for piece in response.iter_raw():
                text += piece
                if len(text) > MAX_ERROR_BYTES:
                    break
        finally:
            response.close()
        try:
            body = json.loads(text)
        except ValueError:
            body = None
        return api_error(body, status=response.status_code, headers=response.headers)

    def read(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: Repeat | None = None,
        silence: float | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        """Sends a request and reads the whole answer. By default what only reads is repeated, and the rest if it was never sent."""
        import httpx

        if repeat is None:
            repeat = "always" if method in ("GET", "HEAD") else "if unsent"
        backoff = Backoff(self.reconnect_seconds, None if self.has_answered else RETRY_ATTEMPTS)
        while True:
            try:
                response = self.open(method, path, body=body, content=content, headers=headers, silence=silence)
                try:
                    return response.read(), response.headers
                finally:
                    response.close()
            except httpx.TransportError as error:
                # A daemon that never answered is probably not there, so its user is told at once.
                unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
                may = self.has_answered and (repeat == "always" or (repeat == "if unsent" and unsent))
                wait = backoff.failed() if may else None
                if wait is None:
                    raise self.unreachable(error) from error
                _io.sleep(wait)

    def unreachable(self, error: Exception) -> DaemonUnreachable:
        """The exception for a connection that failed for good."""
        import httpx

        base = (self.endpoint()).base if self._endpoint else "the daemon"
        if isinstance(error, httpx.ConnectError):
            return DaemonUnreachable(f"cannot connect to {base}: {error}")
        if isinstance(error, httpx.TimeoutException):
            return DaemonUnreachable(f"{base} did not answer in time ({type(error).__name__})")
        return DaemonUnreachable(f"the connection to {base} was lost ({error or type(error).__name__})")

    def json(self, method: str, path: str, **options: Any) -> Any:
        """Sends a request and reads the JSON of its answer."""
        text, _ = self.read(method, path, **options)
        return decoded(text)

    def events(self, method: str, path: str, **options: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """Sends one request once and passes on the events of its answer, until it ends. Connection errors are httpx's."""
        headers = {"Accept": "text/event-stream", **options.pop("headers", {})}
        response = self.open(method, path, headers=headers, silence=STREAM_SILENCE_SECONDS, **options)
        reader = EventReader()
        try:
            for data in response.iter_raw():
                for event in reader.feed(data):
                    yield event
        finally:
            response.close()


def decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ProtocolError("the answer is no JSON") from error

# Generated from _async/_terminal.py by tools/generate_sync.py: change that file instead.
"""A terminal in a sandbox, over a WebSocket. It needs the package `websockets`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .._errors import DaemonUnreachable, MissingExtra, ProtocolError, api_error
from .._http import query, segment
from .._settings import CONNECT_SECONDS
from . import _io

if TYPE_CHECKING:
    from types import TracebackType

    from ._transport import Transport

_MAX_MESSAGE_BYTES = 2 << 20
_MAX_SENT_BYTES = 1 << 20


class Terminal:
    """An open terminal: an iterator of what it shows, as bytes, and `write` for what is typed."""

    def __init__(self, socket: Any, shell: str) -> None:
        self._socket = socket
        self.shell = shell
        """The name of its shell."""
        self.exit_code: int | None = None
        self.reason: str | None = None
        """Why it ended, if the daemon says so."""

    @classmethod
    def open(cls, transport: Transport, session: str, shell: str | None, cols: int, rows: int) -> Terminal:
        try:
            import websockets
        except ImportError as error:
            reason = "terminals need the package websockets"
            raise MissingExtra(reason, hint="pip install 'cove-sandbox[terminal]'") from error
        endpoint = transport.endpoint()
        options = query({"shell": shell, "cols": cols, "rows": rows})
        url = f"ws{endpoint.base.removeprefix('http')}/v1/sessions/{segment(session)}/terminal{options}"
        headers = {"Authorization": f"Bearer {endpoint.key}"}
        try:
            socket = _io.websocket(url, endpoint.socket, headers, _MAX_MESSAGE_BYTES, CONNECT_SECONDS)
        except websockets.exceptions.InvalidStatus as error:
            try:
                body = json.loads(error.response.body or b"null")
            except ValueError:
                body = None
            raise api_error(body, status=error.response.status_code) from error
        except (OSError, TimeoutError, websockets.exceptions.WebSocketException) as error:
            raise DaemonUnreachable(f"cannot open a terminal at {endpoint.base}: {error}") from error
        first = socket.recv()
        ready = json.loads(first) if isinstance(first, str) else {}
        if ready.get("type") != "ready":
            socket.close()
            raise ProtocolError("the terminal did not begin with `ready`")
        return cls(socket, str(ready["shell"]))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Terminal:
        return self

    def __next__(self) -> bytes:
        data = self.read()
        if data is None:
            raise StopIteration
        return data

    def read(self, timeout: float | None = None) -> bytes | None:
        """What the terminal shows next; None when it has ended. After `timeout` seconds of silence it is a TimeoutError."""
        import websockets

        while True:
            try:
                message = _io.receive(self._socket, timeout)
            except websockets.exceptions.ConnectionClosed:
                return None
            if isinstance(message, bytes):
                return message
            told = json.loads(message)
            if told.get("type") == "exit":
                self.exit_code, self.reason = told.get("exit_code"), told.get("reason")
                return None

    def write(self, data: str | bytes) -> None:
        """Types at the terminal."""
        raw = data.encode() if isinstance(data, str) else data
        for start in range(0, len(raw), _MAX_SENT_BYTES):
            self._socket.send(raw[start : start + _MAX_SENT_BYTES])

    def resize(self, cols: int, rows: int) -> None:
        """Changes the size of the terminal."""
        self._socket.send(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    def close(self) -> None:
        """Closes the connection. A terminal without a shell of its own name ends with it."""
        self._socket.close()

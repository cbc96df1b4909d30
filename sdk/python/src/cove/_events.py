"""Reads server-sent events from bytes as they arrive, in whatever pieces. Pure: it never waits."""

from __future__ import annotations

import base64
import json
from typing import Any

from ._errors import ProtocolError
from ._models import AwaitingInput, Chunk, Gap, Queued, Running, Started, read
from ._settings import MAX_EVENT_BYTES


class EventReader:
    """Takes bytes and returns the events that are complete, as pairs of a name and its JSON data."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[str, dict[str, Any]]]:
        # Only what is new can complete an event, so the search starts just before it.
        start = max(0, len(self._rest) - 1)
        self._rest += data
        events = []
        begin = 0
        while (end := self._rest.find(b"\n\n", max(start, begin))) >= 0:
            event = _parsed(bytes(self._rest[begin:end]))
            if event is not None:
                events.append(event)
            begin = end + 2
        del self._rest[:begin]
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ProtocolError(f"an event has more than {MAX_EVENT_BYTES} bytes")
        return events


def _parsed(block: bytes) -> tuple[str, dict[str, Any]] | None:
    name, data = "message", []
    for line in block.split(b"\n"):
        if line.startswith(b"event:"):
            name = line[6:].strip().decode()
        elif line.startswith(b"data:"):
            data.append(line[5:].strip())
    if not data:
        return None  # a keep-alive
    try:
        body = json.loads(b"\n".join(data))
    except ValueError as error:
        raise ProtocolError(f"the event {name!r} is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise ProtocolError(f"the event {name!r} is no JSON object")
    return name, body


def chunk(body: dict[str, Any]) -> Chunk:
    """The event `chunk` of a command's stream."""
    exact = body.get("chunk_base64")
    try:
        data = base64.b64decode(exact) if exact else body["chunk"].encode()
        return Chunk(data, body["stream"], body["offset"], body["timestamp"])
    except (KeyError, ValueError, AttributeError) as error:
        raise ProtocolError(f"a chunk cannot be read: {error!r}") from error


def after(offset: int, piece: Chunk) -> Chunk | None:
    """What of a chunk is behind `offset`: all of it, its end, or nothing. So nothing is handed out twice."""
    seen = offset - piece.offset
    if seen <= 0:
        return piece
    if seen >= len(piece.data):
        return None
    return Chunk(piece.data[seen:], piece.stream, offset, piece.timestamp)


SIMPLE: dict[str, Any] = {"started": Started, "queued": Queued, "running": Running, "gap": Gap}
"""Events that are read field by field."""


def simple(name: str, body: dict[str, Any]) -> Started | Queued | Running | Gap | AwaitingInput | None:
    """An event without output, or None for one that this version does not know."""
    if name == "awaiting_input":
        return AwaitingInput()
    cls = SIMPLE.get(name)
    return None if cls is None else read(cls, body)

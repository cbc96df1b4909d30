"""Puts a reply together from the pieces of a stream, as the daemon does: the first half and the last half of a limit."""

from __future__ import annotations

import base64
import re
from collections import deque
from typing import TYPE_CHECKING, Any

from ._models import ExecResult, RunResult, read
from ._settings import REPLY_OUTPUT_BYTES, TAIL_BYTES

if TYPE_CHECKING:
    from ._models import Chunk

# What a terminal does not show: CSI and OSC sequences, and the short escapes.
_SEQUENCES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")


class Ends:
    """Keeps the first and the last bytes of an output of any length."""

    def __init__(self, head: int, tail: int) -> None:
        self._head_limit, self._tail_limit = head, tail
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._omitted = 0

    def push(self, data: bytes) -> None:
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail and self._tail_bytes - len(self._tail[0]) >= self._tail_limit:
            gone = self._tail.popleft()
            self._tail_bytes -= len(gone)
            self._omitted += len(gone)

    def skip(self, count: int) -> None:
        """These bytes are not known. What comes next does not continue the head."""
        self._omitted += count + self._tail_bytes
        self._tail.clear()
        self._tail_bytes = 0
        self._head_limit = len(self._head)

    def render(self) -> tuple[bytes, int]:
        """All that is kept, and how many bytes are missing; a line in their place says so."""
        tail = b"".join(self._tail)
        omitted = self._omitted
        if len(tail) > self._tail_limit:
            cut = len(tail) - self._tail_limit
            tail, omitted = tail[cut:], omitted + cut
        head = bytes(self._head)
        if not omitted:
            return head + tail, 0
        # A character that the limit cuts in two is left out as a whole.
        whole = _whole_end(head)
        while tail and tail[0] & 0xC0 == 0x80:
            tail, omitted = tail[1:], omitted + 1
        omitted += len(head) - len(whole)
        line = f"\n[{omitted} bytes left out]\n" if whole else f"[{omitted} bytes left out]\n"
        return whole + line.encode() + tail, omitted


def _whole_end(data: bytes) -> bytes:
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the first byte of a character
            length = 1 if byte < 0x80 else 2 if byte >> 5 == 6 else 3 if byte >> 4 == 14 else 4
            return data if back >= length else data[:-back]
    return data


class Collector:
    """The output of one command, whole or its ends, for its result."""

    def __init__(self, head: int, tail: int, *, tidy: bool = False) -> None:
        self._tidy = tidy
        self._all = Ends(head, tail)
        self._parts = {"stdout": Ends(head, tail), "stderr": Ends(head, tail)}
        self._is_split = False

    @classmethod
    def of_reply(cls, max_output_bytes: int | None, *, tidy: bool = False) -> Collector:
        """For a whole reply. `tidy` is for a terminal's output, which loses its escape sequences."""
        limit = REPLY_OUTPUT_BYTES if max_output_bytes is None else max_output_bytes
        return cls(limit // 2, limit - limit // 2, tidy=tidy)

    @classmethod
    def of_stream(cls) -> Collector:
        return cls(0, TAIL_BYTES)

    def push(self, piece: Chunk) -> None:
        self._all.push(piece.data)
        part = self._parts.get(piece.stream)
        if part is not None:
            self._is_split = True
            part.push(piece.data)

    def skip(self, count: int) -> None:
        self._all.skip(count)

    def result(self, done: dict[str, Any], *, is_run: bool) -> ExecResult | RunResult:
        """The result of a command that ended with the event `done`."""
        data, omitted = self._all.render()
        if self._tidy:
            data = _SEQUENCES.sub(b"", data).replace(b"\r\n", b"\n")
        fields = {**done, "omitted_bytes": omitted, "truncated": bool(done.get("truncated")) or omitted > 0}
        if is_run or self._is_split:
            for name, part in self._parts.items():
                fields |= _both(name, part.render()[0])
        if is_run:
            return read(RunResult, fields)
        return read(ExecResult, {**fields, **_both("output", data)})


def _both(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: data.decode(errors="replace"), f"{name}_base64": base64.b64encode(data).decode()}

"""What a stream tells while a command runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Union

from .command import ExecResult, RunResult

StreamName = Literal["merged", "stdout", "stderr", "tty"]


@dataclass(frozen=True)
class Started:
    """The command has its id and its place in the queue of its shell."""

    exec_id: str
    pid: int | None = None


@dataclass(frozen=True)
class Queued:
    """The command waits behind another one."""

    exec_id: str
    running_exec_id: str


@dataclass(frozen=True)
class Running:
    """A command that waited has begun."""

    exec_id: str


@dataclass(frozen=True)
class Chunk:
    """A piece of output."""

    data: bytes
    """The exact bytes."""
    stream: StreamName
    offset: int
    """The number of bytes that the command had printed before these."""
    timestamp: int
    """When it was printed: milliseconds since 1970."""
    missing: int = 0
    """How many bytes before these the daemon no longer had."""

    @property
    def text(self) -> str:
        """The bytes as text. A chunk ends between characters; what is not UTF-8 is U+FFFD here."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class Gap:
    """Bytes that the daemon no longer keeps, because the command printed a lot while nobody was reading."""

    offset: int
    bytes: int


@dataclass(frozen=True)
class AwaitingInput:
    """The program waits for input at its terminal (only with `streams="tty"`)."""


@dataclass(frozen=True)
class Done:
    """The command has ended."""

    result: ExecResult | RunResult


Event = Union[Started, Queued, Running, Chunk, Gap, AwaitingInput, Done]

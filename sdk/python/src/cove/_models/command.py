"""How commands and programs ended, and what they printed."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Literal

from .._errors import CommandFailed, CommandTimedOut

Kind = Literal["exited", "signaled", "timed_out", "never_ran", "lost"]


Streams = Literal["merged", "split", "tty"]

OutputView = Literal["full", "compact"]
"""What a result shows of the output. `compact` is text for a model: failures first, successes as counts, no progress bars."""


@dataclass(frozen=True)
class CompactFacts:
    """What a compact view left out, and where the whole output is."""

    original_bytes: int
    """How many bytes the command printed."""
    original_tokens: int
    """How many tokens that is, by estimate."""
    tokens: int
    """How many tokens `output` has, by estimate."""
    is_cut: bool
    """Whether `max_tokens` or `max_output_bytes` left out lines that the view would have kept."""
    whole_output: str
    """The path of the whole output. `session.attach(exec_id)` reads it."""


@dataclass(frozen=True)
class _Ended:
    exec_id: str
    kind: Kind
    """How it ended: `exited`, `signaled`, `timed_out`, `never_ran` or `lost`."""
    exit_code: int
    """Its status; 124 after a timeout, 128+n after signal n."""
    output_bytes: int = 0
    """How many bytes it printed."""
    truncated: bool = False
    timed_out: bool = False
    oom_killed: bool = False
    duration_ms: int = 0
    signal: int | None = None
    reason: str | None = None
    network_denied: list[str] = field(default_factory=list)
    """What its programs were not allowed to reach, as rules that would allow it."""
    omitted_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether it ran to its end and exited with 0."""
        return self.kind == "exited" and self.exit_code == 0


@dataclass(frozen=True)
class ExecResult(_Ended):
    """How a command in a shell ended, and what it printed."""

    cwd: str = ""
    """The directory of the shell after the command."""
    output: str = ""
    stdout: str | None = None
    """Standard output alone, with `streams="split"`."""
    stderr: str | None = None
    shell_restarted: bool = False
    """Whether the command ended its shell, which was then replaced with the state from before the command."""
    awaiting_input: bool = False
    output_base64: str | None = None
    compact: CompactFacts | None = None
    """What the view left out, with `view="compact"`."""

    @property
    def output_raw(self) -> bytes:
        """The output as exact bytes, also where it is not UTF-8."""
        return self.output.encode() if self.output_base64 is None else base64.b64decode(self.output_base64)

    def check(self, command: str = "the command") -> ExecResult:
        """Returns itself, or raises `CommandFailed`."""
        return self if self.ok else _raise(self, command)


@dataclass(frozen=True)
class RunResult(_Ended):
    """How a program ended that ran beside the shells, and what it printed."""

    stdout: str = ""
    stderr: str = ""
    stdout_base64: str | None = None
    stderr_base64: str | None = None

    @property
    def output(self) -> str:
        """Standard output, then standard error. Their order in time is not known: use `exec` for that."""
        return self.stdout + self.stderr

    @property
    def stdout_raw(self) -> bytes:
        """Standard output as exact bytes."""
        return self.stdout.encode() if self.stdout_base64 is None else base64.b64decode(self.stdout_base64)

    @property
    def stderr_raw(self) -> bytes:
        """Standard error as exact bytes."""
        return self.stderr.encode() if self.stderr_base64 is None else base64.b64decode(self.stderr_base64)

    def check(self, command: str = "the program") -> RunResult:
        """Returns itself, or raises `CommandFailed`."""
        return self if self.ok else _raise(self, command)


def _raise(result: Any, command: str) -> Any:
    raise (CommandTimedOut if result.kind == "timed_out" else CommandFailed)(result, command)


@dataclass(frozen=True)
class ExecInfo:
    """A recent command or run of a session."""

    exec_id: str
    state: Literal["queued", "running", "ended"]
    output_bytes: int
    first_offset: int
    shell: str | None = None
    pid: int | None = None
    done: dict[str, Any] | None = None

    @property
    def exit_code(self) -> int | None:
        """Its status, if it has ended."""
        return None if self.done is None else int(self.done["exit_code"])

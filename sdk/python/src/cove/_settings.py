"""The bounds of this package, and the little decisions about retries. All of it is pure, and tested without a daemon."""

from __future__ import annotations

import enum
import random
import time
from dataclasses import dataclass
from typing import Final, Literal, Union

CONNECT_SECONDS: Final = 10.0
"""The longest wait for a connection."""

REQUEST_SECONDS: Final = 120.0
"""The longest silence of an ordinary request. A create may have to wait for a cold sandbox, a snapshot for a disk."""

EXEC_REPLY_SECONDS: Final = 60.0
"""How long `exec` waits for a plain reply. After that it follows the command's stream, which is never silent for long."""

WHOLE_REPLY_SECONDS: Final = 3600.0
"""How long a reply may take that only the end of a command makes: a tool's answer, or a compact view. The time limit of the call
itself comes on top. TCP's keep-alive notices a host that vanished meanwhile."""

STREAM_SILENCE_SECONDS: Final = 60.0
"""After this silence a stream counts as lost. The daemon sends a keep-alive every 15 seconds."""

RECONNECT_SECONDS: Final = 60.0
"""How long a lost connection is tried again before the caller is told. Progress starts the time anew.

A daemon that ends closes its connections, so the time begins at once. If its host vanishes without a word, the time begins when that
is noticed: by TCP's keep-alive after 40 seconds (`KEEPALIVE_…`), at the latest after `STREAM_SILENCE_SECONDS`. The last attempt may
take `CONNECT_SECONDS` more. So the caller of a stream waits 60 seconds in the first case, and 130 at most."""

RETRY_ATTEMPTS: Final = 5
"""How often an ordinary request that is safe to repeat is sent at most."""

BACKOFF_SECONDS: Final = 0.02
BACKOFF_MAX_SECONDS: Final = 2.0

MAX_CONNECTIONS: Final = 1024
MAX_IDLE_CONNECTIONS: Final = 32
IDLE_CONNECTION_SECONDS: Final = 15.0

KEEPALIVE_IDLE_SECONDS: Final = 20
KEEPALIVE_INTERVAL_SECONDS: Final = 5
KEEPALIVE_PROBES: Final = 4

CANCEL_SECONDS: Final = 5.0
"""How long a process that was told to end is waited for."""

CANCEL_STEPS: Final = (("INT", 1.0), ("INT", CANCEL_SECONDS), ("KILL", 2.0), ("KILL", 2.0))
"""How a command is ended when its caller is cancelled: signals, and the seconds that each is given. The first one is lost on a command
that is just about to start its program; KILL ends one program of a script at a time."""

CLEANUP_SECONDS: Final = 15.0
"""How long the destruction of a session is waited for when its caller is being cancelled."""

MAX_EVENT_BYTES: Final = 16 << 20
TAIL_BYTES: Final = 8 << 10
"""How much of a stream's output its result keeps."""

REPLY_OUTPUT_BYTES: Final = 1 << 20
"""The daemon's default for `max_output_bytes`, for a reply that is put together here."""

COPY_BYTES: Final = 256 << 10
MAX_ERROR_BYTES: Final = 64 << 10


class Default(enum.Enum):
    """The value of a parameter that was not given, where `None` means something else."""

    DEFAULT = "default"


DEFAULT: Final = Default.DEFAULT
Timeout = Union[float, None, Literal[Default.DEFAULT]]
"""Seconds; None for no limit; DEFAULT for the daemon's own limit."""


def milliseconds(seconds: float) -> int:
    """A time limit for the wire. 0 would mean the daemon's default there, so the least is one millisecond."""
    if not seconds > 0:
        raise ValueError(f"a timeout must be more than 0 seconds, not {seconds!r}; None means no limit")
    return max(1, round(seconds * 1000))


@dataclass
class Backoff:
    """Waits between attempts: each is a random part of a bound that doubles. `seconds` and `attempts` bound the whole."""

    seconds: float = RECONNECT_SECONDS
    attempts: int | None = None
    _failures: int = 0
    _since: float | None = None

    def progress(self) -> None:
        """Something worked: the next failure is the first one."""
        self._failures, self._since = 0, None

    def reached(self) -> None:
        """The daemon answered, so the next wait is short. Without progress the whole time still runs."""
        self._failures = 0

    def failed(self) -> float | None:
        """Counts a failure. Returns how long to wait before the next attempt, or None if there should be none."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        self._failures += 1
        if self.attempts is not None and self._failures >= self.attempts:
            return None
        if now - self._since >= self.seconds:
            return None
        bound: float = min(BACKOFF_MAX_SECONDS, BACKOFF_SECONDS * 2 ** min(self._failures - 1, 10))
        return bound * random.uniform(0.5, 1.0)

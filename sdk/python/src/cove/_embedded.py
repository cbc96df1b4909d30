"""A private daemon, which ends with this process, whatever ends the process.

The daemon reads its standard input and stops at its end. This process holds the only other end of that pipe, and the kernel closes it
when the process is gone, also by SIGKILL. A child that is forked without exec would inherit it, so it is closed there.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING

from ._errors import EmbeddedFailed
from ._find import Endpoint, find_binary, parse_url

if TYPE_CHECKING:
    from typing import IO

START_SECONDS = 30.0
STOP_SECONDS = 30.0
_LOG_LINES = 50
_MAX_LINE_BYTES = 64 << 10

_pipes: weakref.WeakSet[EmbeddedDaemon] = weakref.WeakSet()


def _close_in_child() -> None:
    for daemon in list(_pipes):
        daemon._forget_in_child()


os.register_at_fork(after_in_child=_close_in_child)


class EmbeddedDaemon:
    """Starts `cove serve --embedded` once and ends it. Safe to call from several threads."""

    def __init__(self, data_dir: str | os.PathLike[str] | None = None) -> None:
        self._data_dir = data_dir
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoint: Endpoint | None = None
        self._log: deque[str] = deque(maxlen=_LOG_LINES)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> Endpoint:
        """Starts the daemon, if it was not started, and waits until it answers."""
        with self._lock:
            if self._endpoint is None:
                self._endpoint = self._started()
            return self._endpoint

    def _started(self) -> Endpoint:
        command = [str(find_binary()), "serve", "--embedded"]
        if self._data_dir is not None:
            command += ["--data-dir", os.fspath(self._data_dir)]
        # Its own session, so that Ctrl-C at the terminal reaches this process first, which then ends the daemon in good order.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=_environment(),
        )
        self._process = process
        _pipes.add(self)
        assert process.stderr is not None
        threading.Thread(target=self._drain, args=(process.stderr,), daemon=True, name="cove-log").start()
        line = self._first_line(process)
        try:
            ready = json.loads(line)
            base, socket = parse_url(ready["url"])
            return Endpoint(base, ready["api_key"], socket)
        except (ValueError, KeyError, TypeError):
            self._end(process)
            reason = "\n".join(self._log) or "it printed nothing"
            raise EmbeddedFailed(f"the private daemon {command[0]} did not start: {reason}") from None

    def _first_line(self, process: subprocess.Popen[bytes]) -> bytes:
        """Waits for the line that says where the daemon listens. Empty if it ended or did not come in time."""
        assert process.stdout is not None
        stdout, found = process.stdout, list[bytes]()
        reader = threading.Thread(target=lambda: found.append(stdout.readline(_MAX_LINE_BYTES)), daemon=True)
        reader.start()
        reader.join(START_SECONDS)
        return found[0] if found else b""

    def _drain(self, stderr: IO[bytes]) -> None:
        for line in iter(lambda: stderr.readline(_MAX_LINE_BYTES), b""):
            self._log.append(line.decode(errors="replace").rstrip())

    def stop(self) -> None:
        """Ends the daemon and its sessions, and waits for that."""
        with self._lock:
            process, self._process, self._endpoint = self._process, None, None
            _pipes.discard(self)
        if process is not None:
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _forget_in_child(self) -> None:
        process, self._process, self._endpoint = self._process, None, None
        if process is not None:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    os.close(pipe.fileno())
            # The destructor must not wait for a process that is not the child's own.
            process.returncode = 0


def _environment() -> dict[str, str]:
    """The variables of this process, without those that would configure another daemon."""
    kept = {"COVE_RUNNER_BIN"}
    return {k: v for k, v in os.environ.items() if not k.startswith("COVE_") or k in kept}

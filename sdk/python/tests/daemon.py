"""A real daemon for tests, and a proxy that cuts connections."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

START_SECONDS = 30.0
STOP_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def runtime() -> str:
    """The runtime of the daemons: `COVE_SDK_RUNTIME`, which is `local` unless it is set, or `docker`."""
    name = os.environ.get("COVE_SDK_RUNTIME") or "local"
    if name not in ("local", "docker"):
        raise ValueError(f"COVE_SDK_RUNTIME is local or docker, not {name!r}")
    return name


def runtime_variables() -> dict[str, str]:
    """The variables for a daemon on that runtime. The engine and the image are those that scripts/docker/test sets."""
    if runtime() == "local":
        return {}
    image = os.environ.get("COVE_E2E_IMAGE", "cove-python")
    return {
        "COVE_RUNTIME": "docker",
        "COVE_DOCKER_SOCKET": os.environ.get("COVE_E2E_DOCKER_SOCKET", "/var/run/docker.sock"),
        "COVE_DOCKER_OCI_RUNTIME": os.environ.get("COVE_E2E_OCI_RUNTIME", "runc"),
        "COVE_DOCKER_IMAGES": ",".join(f"{name}={image}" for name in ("base", "python", "node")),
        "COVE_DOCKER_PULL": "never",
    }


class Daemon:
    """`cove serve` on a free port with a data directory of its own. It keeps the port when it is started again."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="cove-sdk-")
        self.home = Path(self._directory.name)
        self.data_dir = self.home / ".local/share/cove"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Daemon:
        # The variables of the tester's own shell must not configure this daemon.
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "COVE_SESSIONS_ON_STOP": "destroy"}
        environment |= runtime_variables()
        command = [os.environ["COVE_BIN"], "serve", "--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data_dir)]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(b"listening on "):
            raise RuntimeError(f"the daemon did not start: {(self.home / 'log').read_text()[-2000:]}")
        threading.Thread(target=self._process.stdout.read, daemon=True).start()
        return self

    @property
    def key(self) -> str:
        return (self.data_dir / "api-key").read_text().strip()

    def kill(self) -> None:
        """Kills the daemon as the kernel would. Sandboxes go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_SECONDS)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        finally:
            self._process.kill()
            with contextlib.suppress(OSError):
                self._directory.cleanup()


class Proxy:
    """Passes bytes between clients and a daemon, and cuts connections at random places of the answers, `cuts` times in all."""

    def __init__(self, port: int, cuts: int, seed: int, longest: int) -> None:
        self._target = port
        self._left = cuts
        self._random = random.Random(seed)
        self._longest = longest
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        self.is_cutting = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target)) as server:
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
            budget = None
            while data := server.recv(65536):
                if budget is None:
                    budget = self._budget()
                if budget is not None and len(data) >= budget:
                    client.sendall(data[:budget])
                    with self._lock:
                        self.cuts += 1
                    # Half of the cuts are a reset, the others look like an orderly end.
                    if self.cuts % 2:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                    break
                client.sendall(data)
                budget = None if budget is None else budget - len(data)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _budget(self) -> int | None:
        with self._lock:
            if not self.is_cutting or self._left == 0:
                return None
            self._left -= 1
            return self._random.randint(0, self._longest)

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def wait_until(condition: object, seconds: float = 10.0) -> None:
    """Waits for a condition, with a deadline."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)

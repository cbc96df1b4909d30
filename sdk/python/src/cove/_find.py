"""Finds the daemon and its key, as the command `cove` does: what the caller names, then COVE_URL and COVE_API_KEY, then what a
running daemon wrote to its data directory. It reads files and writes nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ._errors import BinaryNotFound, DaemonNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_FILE_BYTES = 64 << 10


@dataclass(frozen=True)
class Endpoint:
    """Where a daemon is, and the key to use there."""

    base: str
    """`http://HOST:PORT`, without a slash at its end."""
    key: str = field(repr=False)
    socket: str | None = None
    """The Unix socket to use instead of the host of `base`."""

    @property
    def is_tls(self) -> bool:
        return self.base.startswith("https:")


def find(
    url: str | None = None,
    api_key: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Endpoint:
    """The daemon that the arguments, the environment or a data directory name."""
    url = url or environ.get("COVE_URL") or None
    api_key = api_key or environ.get("COVE_API_KEY") or None
    directory = data_dir or environ.get("COVE_DATA_DIR") or None
    base, socket = parse_url(url) if url else parse_url(_running(_data_dir(directory, environ)))
    key = api_key or _read_key(_data_dir(directory, environ))
    if not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
        raise DaemonNotFound("the API key has characters that no key has", hint="Check COVE_API_KEY")
    return Endpoint(base, key, socket)


def parse_url(url: str) -> tuple[str, str | None]:
    """Checks an address: `http://HOST:PORT`, `https://…` or `unix:PATH`."""

    def invalid(why: str) -> DaemonNotFound:
        return DaemonNotFound(f"{url!r} is not the address of a daemon: {why}", hint="Write http://HOST:PORT or unix:PATH")

    if url.startswith("unix:"):
        path = url.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            path = "/" + path if url.startswith("unix://") else path
        if not path.startswith("/"):
            raise invalid("after unix: there must be an absolute path")
        return "http://localhost", path
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise invalid(str(error)) from None
    if parts.scheme not in ("http", "https"):
        raise invalid("it must begin with http:// or https://")
    if not parts.hostname or port == 0:
        raise invalid("it names no host and port")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        raise invalid("it has more than a host and a port")
    return text.rstrip("/"), None


def _data_dir(given: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Path:
    if given:
        return Path(given)
    data = environ.get("XDG_DATA_HOME")
    if data and data.startswith("/"):
        return Path(data, "cove")
    home = environ.get("HOME")
    if not home:
        raise DaemonNotFound("no daemon is named, and neither HOME nor XDG_DATA_HOME is set")
    return Path(home, ".local/share/cove")


def _running(directory: Path) -> str:
    path = directory / "daemon.json"
    none = DaemonNotFound(f"no daemon runs on the data directory {directory}")
    try:
        found = json.loads(_read(path))
        url, pid = str(found["url"]), int(found["pid"])
    except (FileNotFoundError, NotADirectoryError):
        raise none from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DaemonNotFound(f"{path} cannot be understood: {error}") from error
    locked = _is_locked(directory)
    if not (_is_process(pid) if locked is None else locked):
        raise none
    return url


def _read_key(directory: Path) -> str:
    try:
        return _read(directory / "api-key").strip()
    except OSError as error:
        reason = f"no API key: {directory / 'api-key'} cannot be read ({error.strerror})"
        raise DaemonNotFound(reason, hint="Set COVE_API_KEY, or pass api_key") from error


def _read(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_MAX_FILE_BYTES)


def _is_locked(directory: Path) -> bool | None:
    """Whether a daemon holds its data directory. A daemon that was killed leaves `daemon.json`, but not its lock."""
    import fcntl

    try:
        with (directory / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return None


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def find_binary(environ: Mapping[str, str] = os.environ) -> Path:
    """The program `cove`: COVE_BIN, the file inside of the wheel, or the first on the PATH.

    The wheel also installs a Python script with the name `cove`, which starts this same file: scripts are passed over.
    """
    named = environ.get("COVE_BIN")
    if named:
        if not os.access(named, os.X_OK):
            raise BinaryNotFound(f"COVE_BIN is {named!r}, which is no program", hint="Correct it or unset it")
        return Path(named)
    shipped = Path(__file__).parent / "_bin" / "cove"
    if shipped.is_file():
        if not os.access(shipped, os.X_OK):  # an installer that lost the bits
            shipped.chmod(0o755)
        return shipped
    for directory in environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = Path(directory or ".", "cove")
        if candidate.is_file() and os.access(candidate, os.X_OK) and _is_elf(candidate):
            return candidate
    raise BinaryNotFound("the program cove was not found")


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False

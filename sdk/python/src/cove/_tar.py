"""Packs a local directory into a tar stream, and unpacks one of a sandbox, which is not trusted.

Nothing of a whole tree is held in memory but its names. A file that changes while it is read keeps the size that it had at first: it
is cut, or filled with zeros.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from . import _ignore
from ._models import Transferred
from ._settings import COPY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IGNORE_FILES = (".gitignore", ".coveignore")
_MAX_IGNORE_BYTES = 1 << 20
# Names are packed as their exact bytes, also if they are not UTF-8.
_FORMAT: dict[str, Any] = {"format": tarfile.PAX_FORMAT, "encoding": "utf-8", "errors": "surrogateescape"}


@dataclass
class Plan:
    """What is to be packed. All of it is looked at before the first byte is sent."""

    root: Path
    entries: list[tuple[str, os.stat_result]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    _bytes: int = 0

    @classmethod
    def of(cls, root: str | os.PathLike[str], ignore: list[str], ignore_files: list[str]) -> Plan:
        plan = cls(Path(root))
        if not plan.root.is_dir():
            raise NotADirectoryError(f"{plan.root} is no directory")
        plan._walk("", _ignore.Ignore([("", _ignore.parse(ignore))]), ignore_files)
        return plan

    def _walk(self, directory: str, rules: _ignore.Ignore, ignore_files: list[str]) -> None:
        here = self.root / directory
        for name in ignore_files:
            rules = rules.with_rules(directory, _ignore.parse(_lines(here / name)))
        for entry in sorted(os.scandir(here), key=lambda entry: entry.name):
            path = f"{directory}/{entry.name}" if directory else entry.name
            status = entry.stat(follow_symlinks=False)
            is_directory = stat.S_ISDIR(status.st_mode)
            if rules.ignores(path, is_directory=is_directory) or not _is_copied(status.st_mode):
                self.skipped.append(path)
                continue
            self.entries.append((path, status))
            if is_directory:
                self._walk(path, rules, ignore_files)

    def pieces(self, progress: Callable[[int, str], None] | None) -> Iterator[bytes]:
        """The tar stream."""
        self._bytes = 0
        for path, status in self.entries:
            info = tarfile.TarInfo(path)
            info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
            if stat.S_ISDIR(status.st_mode):
                info.type = tarfile.DIRTYPE
                yield info.tobuf(**_FORMAT)
            elif stat.S_ISLNK(status.st_mode):
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(self.root / path)
                yield info.tobuf(**_FORMAT)
            else:
                info.size = status.st_size
                yield info.tobuf(**_FORMAT)
                yield from _content(self.root / path, info.size)
                self._bytes += info.size
            if progress is not None:
                progress(self._bytes, path)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def transferred(self) -> Transferred:
        files = sum(stat.S_ISREG(status.st_mode) for _, status in self.entries)
        return Transferred(files, self._bytes, tuple(self.skipped))


def _is_copied(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_MAX_IGNORE_BYTES).split("\n")
    except OSError:
        return []


def _content(path: Path, size: int) -> Iterator[bytes]:
    left = size
    with path.open("rb") as file:
        while left and (data := file.read(min(COPY_BYTES, left))):
            left -= len(data)
            yield data
    while left:
        filler = bytes(min(COPY_BYTES, left))
        left -= len(filler)
        yield filler
    if size % tarfile.BLOCKSIZE:
        yield bytes(tarfile.BLOCKSIZE - size % tarfile.BLOCKSIZE)


def unpack(
    file: IO[bytes],
    local: str | os.PathLike[str],
    ignore: list[str],
    progress: Callable[[int, str], None] | None,
) -> Transferred:
    """Unpacks a tar of a sandbox into a directory, and writes nothing outside of it.

    Links are made last, so that nothing is written through one of them. Modes lose what would be dangerous here (setuid).
    """
    root = Path(local)
    root.mkdir(parents=True, exist_ok=True)
    rules = _ignore.Ignore([("", _ignore.parse(ignore))])
    files, total = 0, 0
    skipped: list[str] = []
    links: list[tuple[str, str]] = []
    modes: list[tuple[Path, int]] = []
    with tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
        for member in tar:
            path = _inside(member.name)
            if path is None:
                skipped.append(member.name)
                continue
            if not path:
                continue  # the directory itself
            target = root / path
            if _is_ignored(rules, path, is_directory=member.isdir()):
                skipped.append(path)
            elif member.isdir():
                _no_link(target)
                target.mkdir(parents=True, exist_ok=True)
                modes.append((target, member.mode & 0o777))
            elif member.isreg():
                _parents(root, path)
                source = tar.extractfile(member)
                assert source is not None
                _replace(target, source, member)
                files, total = files + 1, total + member.size
            elif member.issym() and _stays_inside(path, member.linkname):
                links.append((path, member.linkname))
            elif member.islnk() and (linked := _inside(member.linkname)) and _is_plain(root, linked):
                _parents(root, path)
                with (root / linked).open("rb") as source:
                    _replace(target, source, member)
                files += 1
            else:
                skipped.append(path)
            if progress is not None:
                progress(total, path)
    for path, to in links:
        _parents(root, path)
        target = root / path
        _remove(target)
        target.symlink_to(to)
    # A directory without the right to write into it could not have been filled before.
    for target, mode in reversed(modes):
        target.chmod(mode | 0o700)
    return Transferred(files, total, tuple(skipped))


def _inside(name: str) -> str | None:
    """The path below the root, or None if it would leave it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if name.startswith("/") or ".." in parts else "/".join(parts)


def _is_ignored(rules: _ignore.Ignore, path: str, *, is_directory: bool) -> bool:
    parts = path.split("/")
    above = ("/".join(parts[:end]) for end in range(1, len(parts)))
    return any(rules.ignores(one, is_directory=True) for one in above) or rules.ignores(path, is_directory=is_directory)


def _stays_inside(path: str, to: str) -> bool:
    if to.startswith("/"):
        return False
    depth = path.count("/")
    for part in to.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return False
    return True


def _no_link(target: Path) -> None:
    if target.is_symlink() or target.is_file():
        target.unlink()


def _parents(root: Path, path: str) -> None:
    """Makes the directories above a path. A link in its way, of an earlier download, is replaced."""
    here = root
    for part in path.split("/")[:-1]:
        here = here / part
        _no_link(here)
        here.mkdir(exist_ok=True)


def _is_plain(root: Path, path: str) -> bool:
    here = root
    for part in path.split("/"):
        here = here / part
        if here.is_symlink():
            return False
    return here.is_file()


def _remove(target: Path) -> None:
    if target.is_symlink() or target.exists():
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()


def _replace(target: Path, source: IO[bytes], member: tarfile.TarInfo) -> None:
    _remove(target)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(target, flags, 0o600), "wb") as out:
        shutil.copyfileobj(source, out, COPY_BYTES)
        os.fchmod(out.fileno(), member.mode & 0o777)
    os.utime(target, (member.mtime, member.mtime))

"""Files of a sandbox or a workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class FileInfo:
    """A file, directory or link in a sandbox or a workspace."""

    path: str
    kind: str
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ms: int
    symlink_target: str | None = None
    path_base64: str | None = None
    """The exact name, where it is not UTF-8."""

    @property
    def is_dir(self) -> bool:
        return self.kind == "directory"

    @property
    def is_file(self) -> bool:
        return self.kind == "file"


class FileList(list[FileInfo]):
    """The entries of a directory. `truncated` says whether there are more than the daemon lists (10,000)."""

    truncated: bool = False


ChangeKind = Literal["created", "modified", "deleted", "moved", "overflow"]


@dataclass(frozen=True)
class FileChange:
    """What happened to a file or directory that is watched.

    `overflow` means that changes were lost, or that the connection was: list `path` again. What changes afterwards is told.
    """

    kind: ChangeKind
    path: str
    """The path in the form that other calls take: it begins with the path that is watched."""
    from_path: str | None = None
    """The path that it had before it was moved."""
    is_dir: bool = False
    path_base64: str | None = None
    """The exact name, where it is not UTF-8."""


@dataclass(frozen=True)
class Transferred:
    """What `upload_dir` or `download_dir` did."""

    files: int
    bytes: int
    skipped: tuple[str, ...] = ()
    """What was left out: ignored, or of a kind that is not copied (devices, sockets, links that lead outside)."""

# Generated from _async/_files.py by tools/generate_sync.py: change that file instead.
"""Files of a session. Paths are absolute, or relative to `/workspace`. Everything runs in the sandbox as its user."""

from __future__ import annotations

import tempfile
from typing import IO, TYPE_CHECKING, Any, Union

from .. import _tar
from .._http import file_path, query, segment
from .._models import FileInfo, FileList, Transferred, read
from .._settings import COPY_BYTES
from . import _io
from ._watch import Watch

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from ._transport import Transport

    Content = Union[str, bytes, IO[bytes], Iterable[bytes]]

# A directory that is downloaded stays in memory up to this size, and is in a temporary file beyond it.
_IN_MEMORY_BYTES = 8 << 20


def file_list(answer: Any) -> FileList:
    entries = FileList(read(FileInfo, entry) for entry in answer["entries"])
    entries.truncated = bool(answer.get("truncated"))
    return entries


def sent(content: Content) -> Any:
    """Content as httpx takes it: bytes, or an iterator of bytes."""
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    if hasattr(content, "read"):
        return _io.from_blocking(iter(lambda: content.read(COPY_BYTES), b""))
    return content


class Files:
    """The files of a session: `session.files`."""

    def __init__(self, transport: Transport, session: str) -> None:
        self._transport = transport
        self._path = f"/v1/sessions/{segment(session)}"

    def read(self, path: str) -> bytes:
        """The content of a file."""
        data, _ = self._transport.read("GET", f"{self._path}/files/{file_path(path)}", headers={"Accept": "*/*"})
        return data

    def read_text(self, path: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The content of a file as text."""
        return (self.read(path)).decode(encoding, errors)

    def read_stream(self, path: str, *, start: int = 0) -> Iterator[bytes]:
        """The content of a file in pieces, from the byte `start` on. For files that do not fit into memory."""
        headers = {"Accept": "*/*", **({"Range": f"bytes={start}-"} if start else {})}
        for piece in self._pieces(f"{self._path}/files/{file_path(path)}", headers):
            yield piece

    def _pieces(self, path: str, headers: dict[str, str]) -> Iterator[bytes]:
        import httpx

        try:
            response = self._transport.open("GET", path, headers=headers)
            try:
                for piece in response.iter_raw():
                    yield piece
            finally:
                response.close()
        except httpx.TransportError as error:
            raise self._transport.unreachable(error) from error

    def write(self, path: str, content: Content, *, mode: int | None = None) -> int:
        """Writes a file, all or nothing; missing directories are created. Returns the number of bytes.

        `content` is text, bytes, an open binary file, or an iterator of bytes. `mode` is like `0o755`.
        """
        if mode is not None and not 0 <= mode <= 0o777:
            raise ValueError(f"mode must be between 0 and 0o777, not {mode:#o}")
        octal = None if mode is None else f"{mode:o}"
        answer = self._transport.json(
            "PUT",
            f"{self._path}/files/{file_path(path)}{query({'mode': octal})}",
            content=sent(content),
            headers={"Content-Type": "application/octet-stream"},
            # The same bytes at the same place twice are no harm; an iterator can be read only once.
            repeat="always" if isinstance(content, (str, bytes)) else "never",
        )
        return int(answer["bytes"])

    def list(self, path: str | None = None, *, recursive: bool = False) -> FileList:
        """The entries of a directory, by default of the workspace."""
        answer = self._transport.json("GET", f"{self._path}/fs/list{query({'path': path, 'recursive': recursive or None})}")
        return file_list(answer)

    def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        """One entry. Links are followed unless `follow` is False."""
        options = query({"path": path, "follow": None if follow else False})
        return read(FileInfo, self._transport.json("GET", f"{self._path}/fs/stat{options}"))

    def watch(self, path: str = ".", *, recursive: bool = False) -> Watch:
        """Tells what changes in a directory, by default the workspace; with `recursive`, also below it.

        with session.files.watch("src", recursive=True) as changes:
            for change in changes:
                print(change.kind, change.path)
        """
        options = query({"path": path, "recursive": recursive or None})
        return Watch(self._transport, f"{self._path}/fs/watch{options}", path)

    def exists(self, path: str) -> bool:
        """Whether there is something at this path."""
        from .._errors import FileNotFound

        try:
            self.stat(path, follow=False)
        except FileNotFound:
            return False
        return True

    def mkdir(self, path: str, *, parents: bool = False) -> FileInfo:
        """Makes a directory; with `parents`, also those above it, and one that exists is fine."""
        body = {"path": path, "parents": parents}
        return read(FileInfo, self._transport.json("POST", f"{self._path}/fs/mkdir", body=body))

    def move(self, source: str, target: str, *, overwrite: bool = False) -> FileInfo:
        """Renames a file or a directory."""
        body = {"from": source, "to": target, "overwrite": overwrite}
        return read(FileInfo, self._transport.json("POST", f"{self._path}/fs/move", body=body))

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file, or a directory that is empty; with `recursive`, also what is in it."""
        options = query({"path": path, "recursive": recursive or None})
        self._transport.json("DELETE", f"{self._path}/fs{options}")

    def read_archive(self, path: str | None = None) -> Iterator[bytes]:
        """What is in a directory, by default the workspace, as pieces of a tar. Its names are relative to the directory."""
        for piece in self._pieces(f"{self._path}/archive{query({'path': path or '.'})}", {"Accept": "*/*"}):
            yield piece

    def write_archive(self, content: Content, path: str | None = None) -> int:
        """Unpacks a tar into a directory, by default the workspace, which is made if it is missing. Returns the number of bytes.

        It is not all or nothing: if it fails, some files are there. Nothing is written outside of the directory.
        """
        answer = self._transport.json(
            "PUT",
            f"{self._path}/archive{query({'path': path or '.'})}",
            content=sent(content),
            headers={"Content-Type": "application/x-tar"},
            repeat="never",
        )
        return int(answer["bytes"])

    def upload_dir(
        self,
        local: str | os.PathLike[str],
        remote: str | None = None,
        *,
        ignore: Iterable[str] = (),
        ignore_files: Iterable[str] = _tar.IGNORE_FILES,
        progress: Callable[[int, str], None] | None = None,
    ) -> Transferred:
        """Copies what is in a local directory to a directory of the sandbox, by default the workspace.

        What `.gitignore` and `.coveignore` files name is left out, and so is what `ignore` names, which has lines of the same
        kind. `progress(bytes_so_far, path)` is called for each file.
        """
        plan = _io.blocking(lambda: _tar.Plan.of(local, list(ignore), list(ignore_files)))
        self.write_archive(_io.from_blocking(plan.pieces(progress)), remote)
        return plan.transferred()

    def download_dir(
        self,
        remote: str | None,
        local: str | os.PathLike[str],
        *,
        ignore: Iterable[str] = (),
        progress: Callable[[int, str], None] | None = None,
    ) -> Transferred:
        """Copies what is in a directory of the sandbox (None: the workspace) to a local directory, which is made if it is missing.

        The sandbox is not trusted: nothing is written outside of `local`, and links that lead outside, devices and sockets are
        left out.
        """
        patterns = list(ignore)
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
            for piece in self.read_archive(remote):
                _io.blocking(lambda piece=piece: file.write(piece))  # type: ignore[misc]
            file.seek(0)
            return _io.blocking(lambda: _tar.unpack(file, local, patterns, progress))

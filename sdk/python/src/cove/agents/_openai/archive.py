"""Tar files between the OpenAI Agents SDK and a sandbox. They are in memory while they are small, and in a temporary file beyond that.

Nothing is unpacked here.
"""

from __future__ import annotations

import contextlib
import tarfile
import tempfile
from typing import IO, TYPE_CHECKING

from agents.sandbox.errors import WorkspaceWriteTypeError

from ..._async import _io
from ..._settings import COPY_BYTES

if TYPE_CHECKING:
    import io
    from collections.abc import AsyncIterator, Collection
    from pathlib import Path

_IN_MEMORY_BYTES = 8 << 20


async def collected(pieces: AsyncIterator[bytes], skipped: Collection[str]) -> IO[bytes]:
    """A tar that comes in pieces, without the `skipped` paths and what is below them. The caller closes it."""
    with contextlib.ExitStack() as stack:
        whole = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES))
        async for piece in pieces:
            whole.write(piece)
        whole.seek(0)
        if skipped:
            return await _io.blocking(lambda: _without(whole, skipped))
        stack.pop_all()
        return whole


def _without(source: IO[bytes], skipped: Collection[str]) -> IO[bytes]:
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES))
        with tarfile.open(fileobj=source) as before, tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as after:
            for member in before:
                name = member.name.removeprefix("./")
                if not any(name == path or name.startswith(f"{path}/") for path in skipped):
                    after.addfile(member, before.extractfile(member) if member.isreg() else None)
        target.seek(0)
        stack.pop_all()
        return target


async def pieces_of(data: io.IOBase, path: Path) -> AsyncIterator[bytes]:
    """The content of a file of the SDK, which can be one of text."""
    while piece := await _io.blocking(lambda: data.read(COPY_BYTES)):
        if isinstance(piece, str):
            piece = piece.encode()
        if not isinstance(piece, (bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(piece).__name__)
        yield bytes(piece)

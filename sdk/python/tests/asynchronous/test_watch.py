"""Changes of files, told as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cove import AsyncCove, AsyncWatch, FileChange, FileNotFound, InvalidRequest

if TYPE_CHECKING:
    from ..daemon import Daemon


async def until(watch: AsyncWatch, path: str) -> list[FileChange]:
    """The changes before the first one of this path."""
    changes: list[FileChange] = []
    async for change in watch:
        if change.path == path:
            return changes
        changes.append(change)
    raise AssertionError(f"the watch ended before {path}: {changes}")


async def test_changes_below_a_directory_are_told(cove: AsyncCove) -> None:
    async with cove.session() as session:
        await session.exec("mkdir -p src/old; echo x > src/old/f")
        async with session.files.watch("src", recursive=True) as watch:
            assert not watch.truncated
            await session.exec(
                "echo y >> src/old/f; mv src/old src/new; mkdir -p src/a/b; touch src/a/b/c; rm src/new/f; touch src/end"
            )
            changes = await until(watch, "src/end")
            told = [(change.kind, change.path) for change in changes]
            assert told[0] == ("modified", "src/old/f")
            assert FileChange("moved", "src/new", "src/old", is_dir=True) in changes
            assert FileChange("created", "src/a/b/c") in changes
            assert ("deleted", "src/new/f") in told
            # What the API writes appears under its name alone.
            await session.files.write("src/api.txt", "x")
            assert not any(".cove-" in change.path for change in await until(watch, "src/api.txt"))
            await session.exec("rm -r src")
            assert {change.kind async for change in watch} >= {"deleted"}
            assert watch.ended == "deleted"


async def test_a_watch_without_with_begins_with_its_loop(cove: AsyncCove) -> None:
    async with cove.session() as session:
        watch = session.files.watch()
        await watch.ready()
        await session.exec("mkdir d; touch d/unseen; mkdir end")
        assert await until(watch, "end") == [FileChange("created", "d", is_dir=True)]
        await watch.close()
        assert [change async for change in watch] == []


async def test_what_cannot_be_watched_is_told_apart(cove: AsyncCove) -> None:
    async with cove.session() as session:
        await session.exec("touch file")
        with pytest.raises(FileNotFound):
            async with session.files.watch("nothing"):
                pass
        with pytest.raises(InvalidRequest):
            async with session.files.watch("file"):
                pass
        with pytest.raises(InvalidRequest):
            async with session.files.watch("../etc"):
                pass


async def test_a_restart_of_the_daemon_is_an_overflow(own_daemon: Daemon) -> None:
    async with AsyncCove(own_daemon.url, own_daemon.key) as cove:
        session = await cove.create()
        async with session.files.watch() as watch:
            own_daemon.kill()
            own_daemon.start()
            change = await watch.__anext__()
            assert change == FileChange("overflow", ".", is_dir=True)
            assert watch.reconnects >= 1
            await session.exec("touch after")
            assert await until(watch, "after") == []
        await session.destroy()

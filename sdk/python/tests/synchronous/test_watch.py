# Generated from asynchronous/test_watch.py by tools/generate_sync.py: change that file instead.
"""Changes of files, told as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cove import Cove, FileChange, FileNotFound, InvalidRequest, Watch

if TYPE_CHECKING:
    from ..daemon import Daemon


def until(watch: Watch, path: str) -> list[FileChange]:
    """The changes before the first one of this path."""
    changes: list[FileChange] = []
    for change in watch:
        if change.path == path:
            return changes
        changes.append(change)
    raise AssertionError(f"the watch ended before {path}: {changes}")


def test_changes_below_a_directory_are_told(cove: Cove) -> None:
    with cove.session() as session:
        session.exec("mkdir -p src/old; echo x > src/old/f")
        with session.files.watch("src", recursive=True) as watch:
            assert not watch.truncated
            session.exec("echo y >> src/old/f; mv src/old src/new; mkdir -p src/a/b; touch src/a/b/c; rm src/new/f; touch src/end")
            changes = until(watch, "src/end")
            told = [(change.kind, change.path) for change in changes]
            assert told[0] == ("modified", "src/old/f")
            assert FileChange("moved", "src/new", "src/old", is_dir=True) in changes
            assert FileChange("created", "src/a/b/c") in changes
            assert ("deleted", "src/new/f") in told
            # What the API writes appears under its name alone.
            session.files.write("src/api.txt", "x")
            assert not any(".cove-" in change.path for change in until(watch, "src/api.txt"))
            session.exec("rm -r src")
            assert {change.kind for change in watch} >= {"deleted"}
            assert watch.ended == "deleted"


def test_a_watch_without_with_begins_with_its_loop(cove: Cove) -> None:
    with cove.session() as session:
        watch = session.files.watch()
        watch.ready()
        session.exec("mkdir d; touch d/unseen; mkdir end")
        assert until(watch, "end") == [FileChange("created", "d", is_dir=True)]
        watch.close()
        assert [change for change in watch] == []


def test_what_cannot_be_watched_is_told_apart(cove: Cove) -> None:
    with cove.session() as session:
        session.exec("touch file")
        with pytest.raises(FileNotFound):
            with session.files.watch("nothing"):
                pass
        with pytest.raises(InvalidRequest):
            with session.files.watch("file"):
                pass
        with pytest.raises(InvalidRequest):
            with session.files.watch("../etc"):
                pass


def test_a_restart_of_the_daemon_is_an_overflow(own_daemon: Daemon) -> None:
    with Cove(own_daemon.url, own_daemon.key) as cove:
        session = cove.create()
        with session.files.watch() as watch:
            own_daemon.kill()
            own_daemon.start()
            change = watch.__next__()
            assert change == FileChange("overflow", ".", is_dir=True)
            assert watch.reconnects >= 1
            session.exec("touch after")
            assert until(watch, "after") == []
        session.destroy()

# Generated from asynchronous/test_files.py by tools/generate_sync.py: change that file instead.
"""Files, and whole directories."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from cove import Conflict, Cove, FileNotFound, Forbidden, InvalidRequest


def test_files_are_written_and_read(cove: Cove, tmp_path: Path) -> None:
    with cove.session() as session:
        files = session.files
        assert files.write("a dir/ümläut #?%.txt", "text ä") == 7
        assert files.read_text("a dir/ümläut #?%.txt") == "text ä"
        assert files.read("/workspace/a dir/../a dir/./ümläut #?%.txt") == "text ä".encode()
        files.write("/tmp/tool", b"#!/bin/sh\necho tool\n", mode=0o755)
        assert (session.run(["/tmp/tool"])).output == "tool\n"
        assert (files.stat("/tmp/tool")).mode == 0o755
        big = os.urandom(3_000_000)
        files.write("big", io.BytesIO(big))
        pieces = [piece for piece in files.read_stream("big", start=10)]
        assert b"".join(pieces) == big[10:]
        assert files.read("big") == big
        with pytest.raises(ValueError, match="0o777"):
            files.write("x", "", mode=0o7777)
        with pytest.raises(ValueError, match="no path"):
            files.read("")


def test_entries_are_listed_moved_and_deleted(cove: Cove) -> None:
    with cove.session() as session:
        files = session.files
        files.mkdir("d/e", parents=True)
        files.write("d/e/f", "x")
        session.exec("ln -s e d/link")
        listed = {entry.path: entry for entry in files.list("d", recursive=True)}
        assert sorted(listed) == ["e", "e/f", "link"] or sorted(listed) == ["d/e", "d/e/f", "d/link"]
        assert (files.stat("d/link")).is_dir
        link = files.stat("d/link", follow=False)
        assert (link.kind, link.symlink_target) == ("symlink", "e")
        moved = files.move("d/e/f", "g")
        assert moved.is_file
        assert files.exists("g")
        assert not files.exists("d/e/f")
        files.write("h", "other")
        with pytest.raises(Conflict):
            files.move("g", "h")
        files.move("g", "h", overwrite=True)
        assert files.read("h") == b"x"
        with pytest.raises(Conflict):
            files.delete("d")
        files.delete("d", recursive=True)
        assert [entry.path for entry in files.list()] == ["h"]


def test_what_cannot_be_read_is_told_apart(cove: Cove) -> None:
    with cove.session() as session:
        session.exec("echo x > closed; chmod 0 closed")
        with pytest.raises(FileNotFound, match="/workspace"):
            session.files.read("nothing")
        with pytest.raises(FileNotFound):
            for _ in session.files.read_stream("nothing"):
                pass
        with pytest.raises(Forbidden):
            session.files.read("closed")
        with pytest.raises(Forbidden):
            session.files.write("closed", "x")


def test_a_directory_goes_in_and_comes_back(cove: Cove, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "node_modules/x").mkdir(parents=True)
    (source / ".gitignore").write_text("node_modules/\n*.log\n!keep.log\n")
    (source / "node_modules/x/y").write_text("ignored")
    (source / "a.log").write_text("ignored")
    (source / "keep.log").write_text("kept")
    (source / "secret.env").write_text("ignored by the caller")
    (source / "empty").write_text("")
    (source / "sub/run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "sub/run.sh").chmod(0o755)
    (source / "sub/link").symlink_to("run.sh")
    os.mkfifo(source / "pipe")
    seen: list[tuple[int, str]] = []
    with cove.session() as session:
        told = session.files.upload_dir(source, "project", ignore=["*.env"], progress=lambda n, path: seen.append((n, path)))
        assert sorted(told.skipped) == ["a.log", "node_modules", "pipe", "secret.env"]
        assert told.files == 4
        assert seen[-1][0] == told.bytes
        listed = sorted(Path(entry.path).name for entry in session.files.list("project", recursive=True))
        assert listed == [".gitignore", "empty", "keep.log", "link", "run.sh", "sub"]
        assert (session.run(["project/sub/link"], cwd="/workspace")).output == "ran\n"
        session.exec("cd project && echo new > new && ln -s /etc/passwd outside && ln -s ../../.. up && mkfifo p && ln new hard")
        back = tmp_path / "back"
        got = session.files.download_dir("project", back, ignore=["keep.log"])
        assert sorted(p.name for p in back.iterdir()) == [".gitignore", "empty", "hard", "new", "sub"]
        assert sorted(Path(name).name for name in got.skipped) == ["keep.log", "outside", "p", "up"] or {"outside", "up"} <= set(
            got.skipped
        )
        assert (back / "sub/run.sh").stat().st_mode & 0o777 == 0o755
        assert (back / "sub/link").readlink() == Path("run.sh")
        # A second time it replaces what is there.
        session.exec("echo newer > new")
        session.files.download_dir("project", back)
        assert (back / "new").read_text() == "newer\n"
        with pytest.raises(NotADirectoryError):
            session.files.upload_dir(source / "empty")


def test_a_directory_is_read_and_written_as_tar(cove: Cove) -> None:
    with cove.session() as session:
        session.exec("mkdir -p made/sub && echo one > made/sub/a && ln -s sub/a made/link && chmod 750 made/sub")
        packed = b"".join([piece for piece in session.files.read_archive("made")])
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            assert {name.removeprefix("./").rstrip("/") for name in tar.getnames()} >= {"sub/a", "link"}
        assert session.files.write_archive(packed, "copied/deep") > 0
        result = session.exec("cat copied/deep/link; stat -c %a copied/deep/sub")
        assert result.output == "one\n750\n"
        with pytest.raises(FileNotFound):
            [piece for piece in session.files.read_archive("missing")]
        with pytest.raises(InvalidRequest):
            session.files.write_archive(b"no tar at all" * 100)


def test_a_directory_without_a_name_is_the_workspace(cove: Cove, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/note").write_text("kept")
    with cove.session() as session:
        session.files.upload_dir(tmp_path / "source")
        assert session.files.read_text("/workspace/note") == "kept"
        session.files.download_dir(None, tmp_path / "back")
    assert (tmp_path / "back/note").read_text() == "kept"

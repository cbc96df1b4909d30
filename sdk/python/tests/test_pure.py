"""What needs no daemon: parsers, rules, bounds, and how the daemon is found."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import cove
from cove import _definitions, _events, _ignore, _output, _settings, _tar
from cove._errors import BY_CODE, ApiError, BinaryNotFound, DaemonNotFound, ProtocolError, SessionNotFound, api_error
from cove._find import find, find_binary, parse_url
from cove._http import file_path, query, segment
from cove._models import Chunk, ExecResult, Key, NewKey, RunResult, ToolImage, ToolReply, ToolText, read, read_list
from cove._text import ToolError, argument, inserted

ROOT = Path(__file__).parent.parent


def test_the_synchronous_code_is_what_the_asynchronous_code_makes() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/generate_sync.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_import_is_light() -> None:
    program = "import cove, sys; cove.__version__; print('httpx' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
    assert set(cove.__all__) <= {*dir(cove), "__version__"}
    for name in cove.__all__:
        assert getattr(cove, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = cove.Nothing  # type: ignore[attr-defined]


def test_both_clients_have_the_same_names() -> None:
    for name in ("Cove", "Session", "Files", "Process", "ExecStream", "Shell", "Terminal", "Network", "Ports"):
        ours, theirs = getattr(cove, name), getattr(cove, f"Async{name}")
        public = {one for one in dir(ours) if not one.startswith("_")}
        assert public == {one for one in dir(theirs) if not one.startswith("_")}, name


def test_events_are_the_same_in_whatever_pieces_they_arrive() -> None:
    text = b'event: started\nid: 0\ndata: {"exec_id":"a"}\n\n: keep-alive\n\nevent: chunk\ndata: {"chunk":"\xc3\xa4\\n"}\n\n'
    whole = _events.EventReader().feed(text)
    assert [name for name, _ in whole] == ["started", "chunk"]
    generator = random.Random(1)
    for _ in range(200):
        reader, seen, at = _events.EventReader(), [], 0
        while at < len(text):
            step = generator.randint(1, 20)
            seen += reader.feed(text[at : at + step])
            at += step
        assert seen == whole


def test_events_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in (b"event: x\ndata: {\n\n", b"event: x\ndata: []\n\n"):
        with pytest.raises(ProtocolError, match="JSON"):
            _events.EventReader().feed(bad)
    monkeypatch.setattr(_events, "MAX_EVENT_BYTES", 10)
    with pytest.raises(ProtocolError, match="more than 10 bytes"):
        _events.EventReader().feed(b"data: " + b"x" * 20)
    with pytest.raises(ProtocolError, match="chunk"):
        _events.chunk({"chunk": "x"})
    assert _events.simple("later", {}) is None


def test_bytes_that_were_seen_are_not_handed_out_again() -> None:
    piece = Chunk(b"abcdef", "merged", 10, 0)
    assert _events.after(10, piece) is piece
    assert _events.after(12, piece) == Chunk(b"cdef", "merged", 12, 0)
    assert _events.after(16, piece) is None


def test_output_is_cut_in_its_middle_and_between_characters() -> None:
    ends = _output.Ends(4, 4)
    for byte in "aä€x0123456789€yz".encode():
        ends.push(bytes([byte]))
    text, omitted = ends.render()
    assert text.decode() == "aä\n[18 bytes left out]\nyz" or text.decode().startswith("aä\n[")
    assert text.decode().endswith("yz")
    assert omitted == len("aä€x0123456789€yz".encode()) - len("aä".encode()) - 2
    whole = _output.Ends(4, 4)
    whole.push(b"12345678")
    assert whole.render() == (b"12345678", 0)
    skipped = _output.Ends(4, 4)
    skipped.push(b"ab")
    skipped.skip(10)
    skipped.push(b"cd")
    assert skipped.render() == (b"ab\n[10 bytes left out]\ncd", 10)


def test_waits_grow_are_random_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    backoff = _settings.Backoff(10.0)
    waits = [backoff.failed() for _ in range(12)]
    assert all(wait is not None and 0 < wait <= _settings.BACKOFF_MAX_SECONDS for wait in waits)
    assert waits[-1] is not None
    assert waits[0] is not None
    assert waits[-1] > waits[0]
    now[0] = 10.0
    assert backoff.failed() is None
    backoff.progress()
    assert backoff.failed() is not None
    assert [_settings.Backoff(10.0, 2).failed() is None, _settings.Backoff(10.0, 1).failed() is None] == [False, True]
    assert _settings.milliseconds(0.0001) == 1
    with pytest.raises(ValueError, match="None means no limit"):
        _settings.milliseconds(-1)


def test_every_error_code_has_a_class_and_unknown_ones_are_errors_too() -> None:
    for code, kind in BY_CODE.items():
        error = api_error({"error_code": code, "message": "why."}, status=400, headers={"retry-after": "3", "x-request-id": "r"})
        assert isinstance(error, ApiError)
        assert type(error) is kind
        assert (error.code, error.retry_after, error.request_id) == (code, 3.0, "r")
        assert str(error).startswith(f"why ({code})")
    unknown = api_error({"error_code": "NEW", "message": "m", "details": {"a": 1}}, status=418, headers={"retry-after": "soon"})
    assert isinstance(unknown, ApiError)
    assert (unknown.code, unknown.details, unknown.retry_after) == ("NEW", {"a": 1}, None)
    assert isinstance(api_error("<html>", status=502), ProtocolError)
    assert issubclass(SessionNotFound, cove.NotFound)


def test_answers_that_lack_something_are_told() -> None:
    with pytest.raises(ProtocolError, match="Key"):
        read(Key, {"name": "x"})
    with pytest.raises(ProtocolError, match="no JSON object"):
        read(Key, [])
    with pytest.raises(ProtocolError, match="no JSON array"):
        read_list(Key, {})
    new = read(NewKey, {"secret": "s3", "key": {"name": "k", "role": "user", "sessions": 0, "memory_mb": 0}, "later": 1})
    assert new.key.name == "k"
    lost = ExecResult("e", "lost", 137, reason="gone", oom_killed=True, network_denied=["a.b"])
    with pytest.raises(cove.CommandFailed, match=r"was lost: gone \(a process was killed because memory ran out; .* denied a\.b\)"):
        lost.check("x" * 500)
    with pytest.raises(cove.CommandFailed, match="killed by signal 9"):
        RunResult("e", "signaled", 137, signal=9).check()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a:1", ("http://a:1", None)),
        ("127.0.0.1:8080/", ("http://127.0.0.1:8080", None)),
        ("https://cove.example.com", ("https://cove.example.com", None)),
        ("http://[::1]:80", ("http://[::1]:80", None)),
        ("unix:/run/x", ("http://localhost", "/run/x")),
        ("unix:///run/x", ("http://localhost", "/run/x")),
    ],
)
def test_addresses_are_understood(url: str, expected: tuple[str, str | None]) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:x", "http://a/b", "unix:run/x", "http://u@a", "http://a:0"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(DaemonNotFound, match="http://HOST:PORT"):
        parse_url(url)


def test_the_daemon_is_found_as_the_command_does(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    with pytest.raises(DaemonNotFound, match=r"cove serve.*embedded"):
        find(environ=environ)
    with pytest.raises(DaemonNotFound, match="HOME"):
        find(environ={})
    data = tmp_path / ".local/share/cove"
    data.mkdir(parents=True)
    (data / "daemon.json").write_text("{")
    with pytest.raises(DaemonNotFound, match="cannot be understood"):
        find(environ=environ)
    (data / "daemon.json").write_text(json.dumps({"url": "http://127.0.0.1:81", "pid": os.getpid()}))
    with pytest.raises(DaemonNotFound, match="COVE_API_KEY"):
        find(environ=environ)
    (data / "api-key").write_text("sesame\n")
    found = find(environ=environ)
    assert (found.base, found.key) == ("http://127.0.0.1:81", "sesame")
    assert "sesame" not in repr(found)
    (data / "lock").write_text("")  # nobody holds it: the daemon was killed
    with pytest.raises(DaemonNotFound, match="no daemon runs"):
        find(environ=environ)
    (data / "lock").unlink()
    (data / "daemon.json").write_text(json.dumps({"url": "http://127.0.0.1:81", "pid": 2**31 - 1}))
    with pytest.raises(DaemonNotFound, match="no daemon runs"):
        find(environ=environ)
    named = find(environ={**environ, "COVE_URL": "http://box:9", "COVE_API_KEY": "k"})
    assert (named.base, named.key) == ("http://box:9", "k")
    assert find("http://b:1", "x", environ=environ).base == "http://b:1"
    assert find(data_dir=data, url="http://b:1", environ={}).key == "sesame"
    with pytest.raises(DaemonNotFound, match="characters"):
        find("http://b:1", "a b", environ=environ)


def test_the_program_is_found_and_scripts_are_passed_over(tmp_path: Path) -> None:
    script = tmp_path / "scripts/cove"
    script.parent.mkdir()
    script.write_text("#!/usr/bin/python3\n")
    script.chmod(0o755)
    with pytest.raises(BinaryNotFound, match="COVE_BIN"):
        find_binary({"PATH": str(script.parent)})
    program = tmp_path / "programs/cove"
    program.parent.mkdir()
    shutil.copy("/bin/true", program)
    assert find_binary({"PATH": f"{script.parent}:{program.parent}"}) == program
    assert find_binary({"COVE_BIN": "/bin/true"}) == Path("/bin/true")


def test_paths_and_queries_arrive_as_they_were_meant() -> None:
    assert file_path("/etc/a b/../ü") == "/etc/a%20b/%2E%2E/%C3%BC"
    assert segment("a/b") == "a%2Fb"
    assert query({"a": True, "b": None, "c": ["x y", "z"], "d": 0}) == "?a=1&c=x%20y&c=z&d=0"
    assert query({}) == ""
    with pytest.raises(ValueError, match="no path"):
        file_path("a\0b")


PATTERNS = [
    "*.log",
    "/top",
    "dir/",
    "a/**/z",
    "**/deep",
    "!keep.log",
    "x?y",
    "[ab].c",
    "[!ab].d",
    "sub/*.txt",
    "# no",
    "\\#yes",
    "sp\\ ",
    "a/**",
]
NAMES = ["a", "b", "top", "dir", "deep", "z", "keep.log", "q.log", "x1y", "a.c", "c.d", "a.d", "#yes", "sub", "n.txt", "sp ", "f"]


def test_ignore_files_mean_what_git_means(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    generator = random.Random(4)
    for _ in range(40):
        patterns = generator.sample(PATTERNS, 4)
        (tmp_path / ".gitignore").write_text("\n".join(patterns) + "\n")
        paths = sorted({"/".join(generator.choices(NAMES, k=generator.randint(1, 4))) for _ in range(60)})
        asked = subprocess.run(
            ["git", "-C", tmp_path, "check-ignore", "--no-index", "--stdin", "-z"],
            input="\0".join(paths),
            capture_output=True,
            text=True,
        )
        expected = set(asked.stdout.split("\0")) - {""}
        rules = _ignore.Ignore([("", _ignore.parse(patterns))])
        ours = {path for path in paths if _tar._is_ignored(rules, path, is_directory=False)}
        assert ours == expected, (patterns, ours ^ expected)


def test_a_tar_of_a_sandbox_cannot_leave_its_directory(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    (inside / "old").mkdir(parents=True)
    (inside / "evil").symlink_to(tmp_path)  # of an earlier download
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:

        def add(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"x", mode: int = 0o4777) -> None:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, mode
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(content))

        add("./", tarfile.DIRTYPE)
        add("./ok/file")
        add("old", content=b"now a file")
        add("../outside")
        add("/tmp/cove-absolute")
        add("evil/written-through")
        add("up", tarfile.SYMTYPE, "..")
        add("down", tarfile.SYMTYPE, "ok/../ok/file")
        add("down/under")
        add("device", tarfile.CHRTYPE)
        add("closed", tarfile.DIRTYPE, mode=0)
        add("hard", tarfile.LNKTYPE, "ok/file")
        add("stolen", tarfile.LNKTYPE, "../secret")
    raw.seek(0)
    (tmp_path / "secret").write_text("secret")
    told = _tar.unpack(raw, inside, [], None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["inside", "secret"]
    assert not Path("/tmp/cove-absolute").exists()
    assert (inside / "evil/written-through").read_bytes() == b"x"
    assert not (inside / "evil").is_symlink()
    assert (inside / "ok/file").stat().st_mode & 0o7777 == 0o777
    assert (inside / "hard").read_bytes() == b"x"
    assert {"../outside", "/tmp/cove-absolute", "up", "device", "stolen"} <= set(told.skipped)


def test_a_file_that_changes_while_it_is_packed_keeps_its_size(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 1000)
    plan = _tar.Plan.of(tmp_path, [], [])
    (tmp_path / "f").write_bytes(b"y" * 10)
    with tarfile.open(fileobj=io.BytesIO(b"".join(plan.pieces(None)))) as tar:
        file = tar.extractfile("f")
        assert file is not None
        assert file.read() == b"y" * 10 + b"\0" * 990


def test_text_is_inserted_after_the_line_that_a_model_named() -> None:
    assert inserted("", 0, "a\n") == "a\n"
    assert inserted("a", 1, "b") == "a\nb"
    assert inserted("a\x0cb\nc\n", 1, "x") == "a\x0cb\nx\nc\n"
    with pytest.raises(ToolError, match="between 0 and 1"):
        inserted("a\n", 2, "b")
    with pytest.raises(ToolError, match="must be of type int"):
        argument({"line": True}, "line", int)
    assert inserted("a\nc\n", 1, "b") == "a\nb\nc\n"


def test_the_definitions_of_the_tools_need_no_daemon() -> None:
    names = _definitions.names()
    assert names[:10] == ["read", "write", "edit", "ls", "grep", "find", "git", "diff", "delete", "bash"]
    assert _definitions.chosen(["bash", "read"]) == ["read", "bash"]
    with pytest.raises(ValueError, match="there is no tool 'read_file'; the tools are read, write"):
        _definitions.chosen(["read_file"])
    with pytest.raises(TypeError, match="a list of names"):
        _definitions.chosen("bash")
    changed = _definitions.plain(["bash"])
    changed[0]["parameters"].clear()
    assert _definitions.plain(["bash"])[0]["parameters"]["properties"]["command"]["type"] == "string"
    assert "additionalProperties" not in json.dumps(_definitions.gemini(names))


def test_an_answer_of_a_tool_is_read() -> None:
    image = {"type": "image", "media_type": "image/png", "data_base64": "AAE="}
    reply = ToolReply.read({"content": [{"type": "text", "text": "a"}, image, {"type": "video"}], "is_error": False})
    assert reply == ToolReply([ToolText("a"), ToolImage("image/png", b"\0\1")])
    assert reply.text == "a"
    for wrong in ({}, [], {"content": [{}], "is_error": False}, {"content": [{**image, "data_base64": 3}], "is_error": False}):
        with pytest.raises(ProtocolError):
            ToolReply.read(wrong)

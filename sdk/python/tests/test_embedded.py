"""The private daemon: it starts from the program that is found, and ends with the process that has it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cove import AsyncCove, BinaryNotFound, Cove, CoveError, EmbeddedFailed

from .daemon import wait_until

needs_embedded = pytest.mark.skipif(
    "--embedded" not in subprocess.run([os.environ["COVE_BIN"], "serve", "--help"], capture_output=True, text=True).stdout,
    reason="this cove has no `serve --embedded`",
)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and ") Z " not in Path(f"/proc/{pid}/stat").read_text()


@needs_embedded
def test_a_private_daemon_ends_with_its_block() -> None:
    with Cove.embedded() as client:
        assert client._embedded is not None
        pid = client._embedded.pid
        assert pid is not None
        with client.session() as session:
            assert session.exec("echo hello").output == "hello\n"
        client.create()
        assert is_alive(pid)
    assert not is_alive(pid)
    with pytest.raises(CoveError, match="closed"):
        client.list()


@needs_embedded
async def test_a_private_daemon_keeps_what_its_directory_has(tmp_path: Path) -> None:
    for expected in ([], ["kept"]):
        async with AsyncCove.embedded(data_dir=tmp_path / "data") as client:
            assert [one.id for one in await client.workspaces.list()] == expected
            await (await client.create(workspace="kept")).destroy()


PROGRAM = """
import os, sys
from cove import Cove
client = Cove.embedded()
session = client.create()
print(client._embedded.pid, session.exec("echo ready").output.strip(), flush=True)
child = os.fork()
if child == 0:
    import time
    print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
sys.stdin.read()
"""


@needs_embedded
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_private_daemon_ends_whatever_ends_its_process(end: signal.Signals) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert program.stdout is not None
    pid, ready = program.stdout.readline().split()
    assert ready == b"ready"
    child = int(program.stdout.readline())
    assert is_alive(int(pid))
    program.send_signal(end)
    program.wait(30)
    # A forked child that lives on does not keep the daemon.
    wait_until(lambda: not is_alive(int(pid)), 40)
    os.kill(child, signal.SIGKILL)


def test_a_program_that_is_no_daemon_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVE_BIN", "/bin/false")
    with pytest.raises(EmbeddedFailed, match="cove doctor"), Cove.embedded():
        pass
    monkeypatch.setenv("COVE_BIN", "/nothing")
    with pytest.raises(BinaryNotFound, match="COVE_BIN"), Cove.embedded():
        pass

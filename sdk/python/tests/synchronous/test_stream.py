# Generated from asynchronous/test_stream.py by tools/generate_sync.py: change that file instead.
"""Streams: every byte once, whatever happens to connections and to the daemon."""

from __future__ import annotations

import hashlib
import random
import threading

import pytest

from cove import AwaitingInput, Chunk, CommandFailed, Conflict, Cove, DaemonUnreachable, Done, ExecNotFound, Queued, StreamLost

from ..daemon import Daemon, Proxy, free_port, runtime

# What breaks does not depend on the runtime, and containers are slow.
CUTS, KILLS = (200, 10) if runtime() == "local" else (20, 2)


def test_a_stream_shows_output_as_it_is_printed(cove: Cove) -> None:
    with cove.session() as session:
        seen = []
        stream = session.stream("echo one; read -t 20 < gate; echo two", timeout=30)
        session.run(["mkfifo", "gate"])
        for chunk in stream:
            seen.append(chunk.text)
            if chunk.text == "one\n":
                # The command waits for this, so the first chunk must have come before the second was printed.
                session.run(["sh", "-c", "echo go > gate"])
        assert seen == ["one\n", "two\n"]
        assert stream.result is not None
        assert (stream.result.exit_code, stream.result.output) == (0, "one\ntwo\n")


# The daemon keeps 4 MiB and sends pieces of up to 64 KiB, which are larger as JSON, above all if they are not UTF-8. The places of
# the cuts are such that about one in four lets a piece through.
@pytest.mark.parametrize(("kind", "cuts", "longest"), [("text", CUTS, 80_000), ("binary", CUTS // 10, 500_000)])
def test_every_byte_comes_once_when_connections_are_cut(cove: Cove, daemon: Daemon, kind: str, cuts: int, longest: int) -> None:
    content = "zwölf Boxkämpfer\n".encode() * 205_000 if kind == "text" else random.Random(1).randbytes(2_000_000)
    proxy = Proxy(daemon.port, cuts=cuts, seed=7, longest=longest)
    client = Cove(proxy.url, daemon.key)
    with cove.session() as session:
        session.files.write("content", content)
        through = client.connect(session.id)
        proxy.is_cutting = True
        stream = through.stream("cat content")
        data, continued = b"", set()
        for chunk in stream:
            assert chunk.offset == len(data), "a byte is missing or came twice"
            data += chunk.data
            continued.add(stream.reconnects)
        assert hashlib.sha256(data).digest() == hashlib.sha256(content).digest()
        assert proxy.cuts == cuts
        assert stream.reconnects >= cuts
        assert len(continued) > cuts / 10, "the cuts were all at the beginning"
        assert len(session.execs()) == 1, "the command ran more than once"
    client.close()
    proxy.close()


def test_a_reply_survives_cuts_and_the_command_runs_once(cove: Cove, daemon: Daemon) -> None:
    proxy = Proxy(daemon.port, cuts=10_000, seed=3, longest=1500)
    client = Cove(proxy.url, daemon.key)
    with cove.session() as session:
        through = client.connect(session.id)
        proxy.is_cutting = True
        for number in range(10):
            result = through.exec(f"echo {number} >> log; echo number {number}; cd /tmp; cd - >/dev/null", check=True)
            assert (result.output, result.cwd) == (f"number {number}\n", "/workspace")
            run = through.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
            assert (run.stdout, run.stderr, run.exit_code) == ("out\n", "err\n", 3)
        assert session.files.read_text("log") == "".join(f"{n}\n" for n in range(10))
        assert proxy.cuts > 10
    client.close()
    proxy.close()


def test_a_create_survives_cuts_and_makes_one_session(cove: Cove, daemon: Daemon) -> None:
    proxy = Proxy(daemon.port, cuts=10_000, seed=5, longest=2000)
    client = Cove(proxy.url, daemon.key)
    assert (client.health()).status == "ok"
    proxy.is_cutting = True
    for number in range(5):
        client.create(labels={"cut": str(number)})
    proxy.is_cutting = False
    assert proxy.cuts > 0
    for number in range(5):
        found = cove.list(labels={"cut": str(number)})
        assert len(found) == 1
        found[0].destroy()
    client.close()
    proxy.close()


def test_every_byte_comes_once_when_the_daemon_is_killed(own_daemon: Daemon) -> None:
    client = Cove(own_daemon.url, own_daemon.key)
    with client.session() as session:
        command = "i=0; while ((i < 1000000)); do echo line $((i++)); sleep 0.003; [[ ! -e stop ]] || break; done"
        stream = session.stream(command, timeout=None)
        data, kills, next_kill = b"", 0, 200
        for chunk in stream:
            assert chunk.offset == len(data)
            data += chunk.data
            if kills < KILLS and len(data) >= next_kill:
                own_daemon.kill()
                # The stream has to notice by itself; the daemon is back some time later.
                threading.Thread(target=own_daemon.start).start()
                kills, next_kill = kills + 1, len(data) + 200
            elif kills == KILLS:
                session.files.write("stop", "")
                kills += 1
        lines = data.decode().splitlines()
        assert lines == [f"line {n}" for n in range(len(lines))]
        assert len(lines) > 20 * KILLS
        assert stream.reconnects >= KILLS
        assert stream.result is not None
        assert stream.result.ok
        assert (session.exec("echo $i")).output == f"{len(lines)}\n", "the shell is still the same"
    client.close()


def test_a_stream_that_cannot_be_continued_says_where_it_was(daemon: Daemon, cove: Cove) -> None:
    proxy = Proxy(daemon.port, cuts=10_000, seed=2, longest=600)
    client = Cove(proxy.url, daemon.key, reconnect_seconds=0.3)
    with cove.session() as session:
        through = client.connect(session.id)
        stream = through.stream("echo begin; sleep 1000", timeout=None)
        chunk = stream.__next__()
        assert chunk.text == "begin\n"
        proxy.close()
        stream._hang_up()
        with pytest.raises(StreamLost) as lost:
            stream.__next__()
        assert (lost.value.exec_id, lost.value.offset) == (stream.exec_id, 6)
        assert "session.attach" in str(lost.value)
        # Somebody who can reach the daemon continues from there.
        session.signal("INT", exec_id=stream.exec_id)
        rest = session.attach(stream.exec_id, stream.offset)
        assert read_all_from(rest, 6) == b""
        assert rest.result is not None
        assert rest.result.exit_code == 130
    client.close()


def read_all_from(stream: object, offset: int) -> bytes:
    data = b""
    for chunk in stream:  # type: ignore[attr-defined]
        assert chunk.offset == offset + len(data)
        data += chunk.data
    return data


def test_a_daemon_that_never_answered_is_told_at_once() -> None:
    client = Cove(f"http://127.0.0.1:{free_port()}", "key")
    with pytest.raises(DaemonUnreachable, match="cannot connect"):
        client.create()
    with pytest.raises(DaemonUnreachable, match="COVE_URL"):
        client.list()
    client.close()


def test_a_stream_with_check_raises_at_its_end(cove: Cove) -> None:
    with cove.session() as session:
        seen = []
        with pytest.raises(CommandFailed, match="exited with 7") as failed:
            for chunk in session.stream("echo before; (exit 7)", check=True):
                seen.append(chunk.text)
        assert seen == ["before\n"]
        assert (failed.value.exit_code, failed.value.output, failed.value.cwd) == (7, "before\n", "/workspace")


def test_output_that_is_no_longer_kept_is_a_gap(cove: Cove) -> None:
    with cove.session() as session:
        process = session.spawn("head -c 12000000 /dev/zero | tr '\\0' x; echo end")
        result = process.wait(30)
        assert result.truncated
        assert result.output.endswith("xend\n")
        total, missing = 0, 0
        for chunk in process.logs(follow=True):
            total, missing = total + len(chunk.data), missing + chunk.missing
        assert missing > 0
        assert total + missing == 12_000_004


def test_a_stream_tells_more_than_output(cove: Cove) -> None:
    with cove.session() as session:
        process = session.spawn("sleep 60", shell="main")
        stream = session.stream("echo behind")
        events = []
        while (event := stream.next_event()) is not None:
            events.append(event)
            if isinstance(event, Queued):
                assert event.running_exec_id == process.exec_id
                process.signal("INT")
        names = [type(event).__name__ for event in events]
        assert names == ["Started", "Queued", "Running", "Chunk", "Done"]
        assert isinstance(events[-1], Done)
        assert events[-1].result.ok


def test_a_program_at_a_terminal_can_be_answered(cove: Cove) -> None:
    with cove.session() as session:
        stream = session.stream("read -p 'name? ' name; echo hello $name", streams="tty", timeout=30)
        text = ""
        while (event := stream.next_event()) is not None:
            if isinstance(event, Chunk):
                text += event.text
            if isinstance(event, AwaitingInput):
                session.input("Ada\n")
        assert "name? " in text
        assert "hello Ada" in text


def test_closing_a_stream_lets_the_command_run_on(cove: Cove) -> None:
    with cove.session() as session:
        with session.stream("echo begin; read -t 30 < gate; echo end > done", timeout=60) as stream:
            session.run(["mkfifo", "gate"])
            assert (stream.__next__()).text == "begin\n"
        with pytest.raises(StopIteration):
            stream.__next__()
        session.run(["sh", "-c", "echo go > gate"])
        assert (session.process(stream.exec_id).wait(20)).ok
        assert session.files.read_text("done") == "end\n"


def test_an_exec_id_is_used_once(cove: Cove) -> None:
    with cove.session() as session:
        assert (session.exec("echo first", exec_id="mine")).exec_id == "mine"
        with pytest.raises(Conflict, match="mine"):
            session.exec("echo second", exec_id="mine")
        with pytest.raises(Conflict, match="mine"):
            session.stream("echo second", exec_id="mine").wait()
        with pytest.raises(ExecNotFound, match=r"session\.execs"):
            session.attach("nothing").wait()


def test_a_program_beside_the_shells_can_be_streamed(cove: Cove) -> None:
    with cove.session() as session:
        stream = session.run_stream(["sh", "-c", "echo out; echo err >&2"])
        parts = {"stdout": b"", "stderr": b""}
        for chunk in stream:
            parts[chunk.stream] += chunk.data
        assert parts == {"stdout": b"out\n", "stderr": b"err\n"}

"""Threads, event loops, cancelled tasks, Ctrl-C and forked processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cove import AsyncCove, Cove, Process, WaitTimedOut

from .daemon import Daemon, wait_until

TASKS = 64


def open_sockets() -> int:
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(link.startswith("socket:") for link in links)


async def use_sessions(client: AsyncCove, count: int) -> None:
    places = asyncio.Semaphore(TASKS)

    async def one(number: int) -> None:
        async with places, client.session(labels={"many": "yes"}) as session:
            assert (await session.exec(f"echo {number}")).output == f"{number}\n"

    await asyncio.gather(*(one(number) for number in range(count)))


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_many_sessions_leave_nothing_behind(daemon: Daemon, cove: Cove, count: int) -> None:
    before = open_sockets()

    async def main() -> int:
        async with AsyncCove(daemon.url, daemon.key) as client:
            await use_sessions(client, count)
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1, "a task is left"
    assert cove.list(labels={"many": "yes"}) == []
    assert open_sockets() <= before + 2


def test_one_client_serves_many_threads_and_event_loops(daemon: Daemon) -> None:
    with Cove(daemon.url, daemon.key) as client, client.session() as session, ThreadPoolExecutor(16) as pool:
        outputs = pool.map(lambda n: session.run(["echo", str(n)]).stdout, range(64))
        assert list(outputs) == [f"{n}\n" for n in range(64)]
        shared = AsyncCove(daemon.url, daemon.key)

        async def ask(number: int) -> str:
            again = await shared.connect(session.id)
            result = await again.run(["echo", str(number)])
            await shared._transport._connections.close()  # type: ignore[union-attr]
            return result.stdout

        assert list(pool.map(lambda n: asyncio.run(ask(n)), range(16))) == [f"{n}\n" for n in range(16)]


def test_shells_of_forgotten_commands_are_closed_when_there_is_no_room(cove: Cove) -> None:
    with cove.session() as session:
        with ThreadPoolExecutor(4) as pool:
            spawned = list(pool.map(lambda _: session.spawn("true"), range(63)))
        for process in spawned:
            assert "".join(chunk.text for chunk in process.logs(follow=True)) == ""
        assert len(session.shells()) == 64
        assert session.spawn("echo made it").wait(20).output == "made it\n"


@pytest.mark.parametrize("way", ["exec", "stream", "run"])
async def test_a_cancelled_task_stops_its_command_or_leaves_it(daemon: Daemon, way: str) -> None:
    async with AsyncCove(daemon.url, daemon.key) as client, client.session() as session:

        async def follow(on_cancel: str) -> None:
            if way == "stream":
                await session.stream("sleep 4711", timeout=None, on_cancel=on_cancel).wait()  # type: ignore[arg-type]
            elif way == "run":
                await session.run(["sleep", "4711"], timeout=None, on_cancel=on_cancel)  # type: ignore[arg-type]
            else:
                await session.exec("sleep 4711", timeout=None, on_cancel=on_cancel)  # type: ignore[arg-type]

        for on_cancel, is_left in [("kill", False), ("detach", True)]:
            task = asyncio.create_task(follow(on_cancel))
            while not any(info.state == "running" for info in await session.execs()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert any(info.state == "running" for info in await session.execs()) == is_left


async def test_a_cancelled_create_leaves_no_session(daemon: Daemon) -> None:
    async with AsyncCove(daemon.url, daemon.key) as client:
        await client.health()
        for pause in (0.0, 0.001, 0.005, 0.02, 0.05, 0.1):
            task = asyncio.create_task(client.create(labels={"cancelled": "yes"}))
            await asyncio.sleep(pause)
            if task.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                await task.result().destroy()
        assert await client.list(labels={"cancelled": "yes"}) == []


def test_a_loop_that_is_left_early_gives_its_connection_back(cove: Cove) -> None:
    with cove.session() as session:
        for _ in session.stream("echo warm"):
            break
        before = open_sockets()
        for _ in range(20):
            for _ in session.run_stream(["sh", "-c", "echo begun; exec sleep 60"], timeout=None):
                break
        assert open_sockets() <= before + 2


async def test_a_loop_that_is_left_early_gives_its_connection_back_to_its_event_loop(daemon: Daemon) -> None:
    async with AsyncCove(daemon.url, daemon.key) as client, client.session() as session:
        await session.exec("true")
        before = open_sockets()
        for _ in range(20):
            async for _ in session.run_stream(["sh", "-c", "echo begun; exec sleep 60"], timeout=None):
                break
            await session.exec("true")
        assert open_sockets() <= before + 3


class KeepAlive(BaseHTTPRequestHandler):
    """A daemon whose command never ends and that says twenty times a second that it is alive."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(400):
                self.wfile.write(b": keep-alive\n\n")
                time.sleep(0.05)

    def log_message(self, *_: object) -> None:
        pass


def test_a_wait_ends_in_time_although_the_daemon_says_that_it_is_alive() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), KeepAlive)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Cove(f"http://127.0.0.1:{server.server_port}", "key") as client:
        process = Process(client._transport, "s", "e", command="sleep")
        begun = time.monotonic()
        with pytest.raises(WaitTimedOut, match="still runs after"):
            process.wait(0.5)
        assert time.monotonic() - begun < 10, "it waited until the server was tired"
    server.shutdown()


PROGRAM = """
import sys
from cove import Cove
with Cove().session(labels={"interrupted": "yes"}) as session:
    print(session.id, flush=True)
    for chunk in session.stream("echo begun; sleep 4711", timeout=None):
        print(chunk.text, flush=True)
"""


def test_ctrl_c_in_the_middle_leaves_nothing(daemon: Daemon, cove: Cove) -> None:
    environment = {**os.environ, "COVE_DATA_DIR": str(daemon.data_dir)}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.readline()
    assert program.stdout.readline() == b"begun\n"
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    assert cove.list(labels={"interrupted": "yes"}) == []


MANY = """
import asyncio
from cove import AsyncCove

async def main():
    async with AsyncCove() as cove:
        async def one(number):
            while True:
                async with cove.session(labels={"storm": "yes"}) as session:
                    await session.exec(f"echo {number}; sleep 0.05", check=True)
                    print(number, flush=True)
        await asyncio.gather(*(one(number) for number in range(16)))

asyncio.run(main())
"""


def test_ctrl_c_in_the_middle_of_many_sessions_leaves_nothing(daemon: Daemon, cove: Cove) -> None:
    """Some tasks are creating a session when it comes, some run a command, and some destroy one."""
    environment = {**os.environ, "COVE_DATA_DIR": str(daemon.data_dir)}
    program = subprocess.Popen([sys.executable, "-c", MANY], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None
    for _ in range(24):
        assert program.stdout.readline(), program.communicate()[1].decode()
    assert cove.list(labels={"storm": "yes"}) != []
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert b"Task was destroyed" not in errors
    assert b"never retrieved" not in errors
    assert cove.list(labels={"storm": "yes"}) == []


def test_a_compact_view_of_a_long_command_is_waited_for(cove: Cove, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cove._sync._exec.EXEC_REPLY_SECONDS", 0.2)
    with cove.session() as session:
        assert session.exec("sleep 1; echo end", view="compact").compact is not None
        # A lost reply has no view, but all of the output.
        monkeypatch.setattr("cove._sync._exec.WHOLE_REPLY_SECONDS", 0.2)
        result = session.exec("echo once >> log; cat log; sleep 1; echo end", view="compact")
        assert (result.output, result.compact) == ("once\nend\n", None)


async def test_a_cancelled_tool_ends_its_command(daemon: Daemon) -> None:
    async with AsyncCove(daemon.url, daemon.key) as client, client.session() as session:
        tools = session.tools()
        call = asyncio.create_task(tools.call("bash", {"command": "echo begun > begun; sleep 4711"}))
        while not await session.files.exists("begun"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await session.exec("echo free", queue_timeout=5)).output == "free\n"


def test_a_forked_process_gets_connections_of_its_own(cove: Cove) -> None:
    with cove.session() as session:
        session.exec("true")
        child = os.fork()
        if child == 0:
            # In the child: no pytest, no cleanup, only the answer.
            os._exit(0 if session.run(["echo", "child"]).stdout == "child\n" else 1)
        assert session.run(["echo", "parent"]).stdout == "parent\n"
        _, status = os.waitpid(child, 0)
        assert status == 0


def test_a_long_command_outlasts_the_wait_for_its_reply(cove: Cove, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cove._sync._exec.EXEC_REPLY_SECONDS", 0.2)
    with cove.session() as session:
        result = session.exec("echo once >> log; cat log; sleep 1; echo end; cd /tmp")
        assert (result.output, result.cwd) == ("once\nend\n", "/tmp")
        terminal = session.exec("printf '\\e[31mred\\e[0m\\n'; sleep 0.5", streams="tty")
        assert terminal.output == "red\n"
        holder = threading.Thread(target=lambda: session.exec("sleep 1"))
        holder.start()
        wait_until(lambda: any(info.state == "running" for info in session.execs()))
        assert session.exec("echo queued").output == "queued\n", "it waited longer than a reply is waited for"
        holder.join()

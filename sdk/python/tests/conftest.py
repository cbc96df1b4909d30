"""Fixtures: one daemon for all tests, and clients of it. `COVE_BIN` names the program."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from cove import AsyncCove, Cove

from .daemon import Daemon, runtime

# A shell without job control starts background jobs with SIGINT ignored, and programs would inherit that: the tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from collections.abc import Iterator

TEST_SECONDS = 120.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") and os.environ.get("COVE_SDK_LONG") != "1":
            item.add_marker(pytest.mark.skip(reason="takes minutes: set COVE_SDK_LONG=1"))
        local_only = item.get_closest_marker("local_only")
        if local_only and runtime() != "local":
            item.add_marker(pytest.mark.skip(reason=f"on {runtime()}: {local_only.args[0]}"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine in an event loop of its own, and closes the clients that it got."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def run() -> None:
        try:
            await asyncio.wait_for(pyfuncitem.obj(**arguments), TEST_SECONDS)
        finally:
            for value in arguments.values():
                if isinstance(value, AsyncCove):
                    await value.close()

    asyncio.run(run())
    return True


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    running = Daemon().start()
    yield running
    running.stop()


@pytest.fixture
def own_daemon() -> Iterator[Daemon]:
    """A daemon that the test may kill."""
    running = Daemon().start()
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COVE_URL", "COVE_API_KEY", "COVE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cove(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Any]:
    """A client: asynchronous for tests below `asynchronous`, synchronous elsewhere."""
    if request.node.path.parent.name == "asynchronous":
        yield AsyncCove(daemon.url, daemon.key)
        return
    with Cove(daemon.url, daemon.key) as client:
        yield client

"""Fixtures: one daemon for all tests, and one that a test may kill. `COVE_BIN` names the program. `scripts/mcp` runs these tests."""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# A daemon for tests is the same here as for the Python SDK.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sdk/python/tests"))

from daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

TEST_SECONDS = 60.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine in an event loop of its own, with a deadline."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), TEST_SECONDS))
    return True


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    running = Daemon().start()
    yield running
    running.stop()


@pytest.fixture
def own_daemon() -> Iterator[Daemon]:
    running = Daemon().start()
    yield running
    running.stop()


@pytest.fixture(params=["http", "stdio"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what tests have measured."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")

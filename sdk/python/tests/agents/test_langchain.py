"""LangChain's own tests of sandboxes, all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deepagents")
pytest.importorskip("langchain_tests")

from langchain_tests.integration_tests import SandboxIntegrationTests

from cove import Cove
from cove.agents.langchain import CoveSandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..daemon import Daemon


class TestCoveSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, daemon: Daemon) -> Iterator[Any]:
        with Cove(daemon.url, daemon.key) as client, client.session() as session:
            # These tests call `python`, which a host whose system the sandbox shows may only have as `python3`.
            session.exec('mkdir -p ~/bin; ln -s "$(command -v python3)" ~/bin/python; export PATH=$PATH:~/bin', check=True)
            yield CoveSandbox(session)

"""The TypeScript reference client, over HTTP and over standard input and output. The story is client.mjs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from clients import HERE, environment, node, sessions

if TYPE_CHECKING:
    from daemon import Daemon


def test_the_reference_client_for_typescript(daemon: Daemon, transport: str) -> None:
    before = sessions(daemon)
    target = [f"{daemon.url}/mcp", daemon.key] if transport == "http" else [os.environ["COVE_BIN"], "mcp"]
    ended = node(str(HERE / "client.mjs"), transport, *target, env=environment(daemon))
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout)
    assert seen["server"]["name"] == "cove"
    assert "/workspace" in seen["instructions"]
    assert len(seen["tools"]) == 18
    assert "fix-failing-test" in seen["prompts"]
    assert seen["call"].startswith("42\n[exit code 0, in /tmp")
    assert seen["failure"]["isError"]
    assert "missing" in seen["failure"]["content"][0]["text"]
    assert seen["after_progress"].startswith("begun\nopened\nover\n")
    assert seen["progress"] == sorted(set(seen["progress"])) != []
    assert "enough" in seen["cancelled"]
    assert seen["after_cancel"].startswith("gone\n")
    assert "survived" not in seen["after_cancel"]
    assert sessions(daemon) == before, "its sandbox ended with it"

"""The definitions of the tools in this package are those that the daemon serves."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cove import _definitions

if TYPE_CHECKING:
    from .daemon import Daemon

ROOT = Path(__file__).parent.parent


def served(daemon: Daemon, form: str) -> Any:
    request = urllib.request.Request(f"{daemon.url}/v1/tools?format={form}", headers={"Authorization": f"Bearer {daemon.key}"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.mark.parametrize("form", ["mcp", "openai", "anthropic", "gemini"])
def test_the_package_defines_the_tools_as_the_daemon_does(daemon: Daemon, form: str) -> None:
    ours = getattr(_definitions, form)(_definitions.names())
    assert ours == served(daemon, form), "the tools have changed: see tools/tool_definitions.py"


def test_the_script_writes_the_file_that_is_there(daemon: Daemon, tmp_path: Path) -> None:
    stored = tmp_path / "mcp.json"
    stored.write_text(json.dumps(served(daemon, "mcp")))
    target = ROOT / "src/cove/_tools.json"
    before = target.read_text()
    subprocess.run([sys.executable, ROOT / "tools/tool_definitions.py", stored], check=True)
    try:
        assert target.read_text() == before
    finally:
        target.write_text(before)

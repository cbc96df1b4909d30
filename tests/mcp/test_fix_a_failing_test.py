"""The whole story: an agent fixes a failing test in a repository by MCP alone, and how long its transcript is.

The agent is scripted, but what it does next comes from what it was told: it takes the file and the line of the failure from the answer
to its first test run. The story runs twice. The second time, the agent reads what commands printed (the tool `output`) in place of the
shortened text. Tokens are those of o200k_base.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import repository
from clients import connected, environment, node, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon import Daemon
    from mcp import Client

RUN_TESTS = "python3 -m unittest -v"
# What the figures in docs/reference/tools.md must at least be.
LEAST_FACTOR = 5.0
LEAST_SAVED_OF_COMMANDS = 0.9


class Agent:
    """Calls tools and keeps the transcript: what the model said, and what it was told."""

    def __init__(self, client: Client, is_raw: bool) -> None:
        self._client = client
        self._is_raw = is_raw
        self.transcript: list[str] = []
        # Of the transcript, what the test runs printed.
        self.runs: list[str] = []

    async def __call__(self, tool: str, /, **arguments: Any) -> str:
        result = await self._client.call_tool(tool, arguments)
        answer = text(result)
        if self._is_raw and tool in ("bash", "git"):
            assert result.structured_content is not None
            whole = {"exec_id": result.structured_content["exec_id"], "max_bytes": 1_000_000}
            answer = text(await self._client.call_tool("output", whole))
        if tool == "bash":
            self.runs.append(answer)
        self.transcript += [json.dumps({"tool": tool, "arguments": arguments}), answer]
        return answer


async def fixed(daemon: Daemon, directory: Path, is_raw: bool) -> Agent:
    async with connected(daemon, "stdio", options=("--directory", str(directory))) as client:
        agent = Agent(client, is_raw)
        assert "shop" in await agent("ls")
        failure = await agent("bash", command=RUN_TESTS)
        assert repository.MESSAGE in failure
        # A traceback names the file with its whole path; the compact view may show it relative to the directory.
        place = re.search(rf"(?:/workspace/)?(tests/\w+\.py)\W+(?:line )?(\d+)\W[^\n]*{repository.FAILING}", failure)
        assert place, failure
        file, line = place[1], int(place[2])
        test = await agent("read", path=file, offset=line - 1, limit=2)
        called = re.search(r"assertEqual\((\w+)\(", test)
        assert called, test
        found = await agent("grep", pattern=rf"def {called[1]}\b")
        source = re.search(r"shop/\w+\.py", found)
        assert source, found
        assert "quantity > 10" in await agent("read", path=source[0])
        await agent("edit", path=source[0], old_string="quantity > 10", new_string="quantity >= 10")
        again = await agent("bash", command=RUN_TESTS)
        assert "OK" in again, again
        assert "FAIL" not in again, again
        assert re.search(rf"\b{repository.TESTS}\b", again), again
        change = await agent("git", args="diff")
        assert "+    if quantity >= 10:" in change, change
        return agent


async def test_an_agent_fixes_a_failing_test_and_the_compact_transcript_is_shorter(
    daemon: Daemon, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    repository.make(tmp_path / "shop")
    compact = await fixed(daemon, tmp_path / "shop", is_raw=False)
    raw = await fixed(daemon, tmp_path / "shop", is_raw=True)
    texts = ["\n".join(part) for part in (compact.transcript, raw.transcript, compact.runs, raw.runs)]
    counted = node(str(Path(__file__).with_name("tokens.mjs")), env=environment(daemon), given=json.dumps(texts))
    assert counted.returncode == 0, counted.stderr
    shorter, longer, runs, raw_runs = json.loads(counted.stdout)
    record_property("tokens of the transcript", f"{longer} raw, {shorter} compact, {longer / shorter:.1f} times shorter")
    record_property("tokens of the test runs alone", f"{raw_runs} raw, {runs} compact, {1 - runs / raw_runs:.0%} saved")
    assert longer / shorter >= LEAST_FACTOR
    assert 1 - runs / raw_runs >= LEAST_SAVED_OF_COMMANDS

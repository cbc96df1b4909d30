"""A coding agent that streams: it writes a function and its tests, sees them fail, repairs the function, and is done when they pass.

    python examples/coding_agent.py

Without a key, a scripted model takes the place of a real one. With ANTHROPIC_API_KEY and the package `anthropic`, Claude does the work
(COVE_MODEL names the model). If the package `rich` is installed, commands and files are shown with it.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

from cove import Cove
from cove.agents import AnthropicTools

TASK = "Write /workspace/roman.py with to_roman(n) for 1 to 3999, and tests in test_roman.py. Run them until they pass."
MAX_TURNS = 30
EDITOR = "str_replace_based_edit_tool"

FIRST = """VALUES = [(1000, "M"), (500, "D"), (100, "C"), (50, "L"), (10, "X"), (5, "V"), (1, "I")]


def to_roman(n):
    text = ""
    for value, letter in VALUES:
        while n >= value:
            text, n = text + letter, n - value
    return text
"""
TESTS = """import unittest
from roman import to_roman


class Roman(unittest.TestCase):
    def test_numbers(self):
        for n, text in [(1, "I"), (4, "IV"), (1994, "MCMXCIV"), (3999, "MMMCMXCIX")]:
            self.assertEqual(to_roman(n), text)
"""
PAIRS = (
    '(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), '
    '(50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")'
)


def scripted(messages: list[dict[str, Any]]) -> list[Any]:
    """A model that knows its lines. It looks at the last result, as a real one would."""
    turn = len(messages) // 2
    test = "cd /workspace && python3 -m unittest -v test_roman 2>&1"
    if turn == 0:
        return [use("t0", EDITOR, command="create", path="/workspace/roman.py", file_text=FIRST)]
    if turn == 1:
        return [use("t1", EDITOR, command="create", path="/workspace/test_roman.py", file_text=TESTS)]
    if turn == 2:
        return [use("t2", "bash", command=test)]
    if turn == 3:
        assert "FAILED" in str(messages[-1]), "the first version must fail"
        old = FIRST.split("\n", 1)[0]
        return [use("t3", EDITOR, command="str_replace", path="/workspace/roman.py", old_str=old, new_str=f"VALUES = [{PAIRS}]")]
    if turn == 4:
        return [use("t4", "bash", command=test)]
    return [SimpleNamespace(type="text", text="All tests pass.")]


def use(id: str, name: str, **given: Any) -> Any:
    return SimpleNamespace(type="tool_use", id=id, name=name, input=given)


def claude(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[Any]:
    import anthropic

    model = os.environ.get("COVE_MODEL", "claude-sonnet-4-5")
    answer = anthropic.Anthropic().messages.create(model=model, max_tokens=4096, messages=messages, tools=tools)
    return list(answer.content)


def show(title: str, text: str = "", language: str = "text") -> None:
    """Shows what the agent does: in a frame and with colours if `rich` is there, plainly otherwise."""
    try:
        from rich.console import Console
        from rich.panel import Panel
        from rich.syntax import Syntax
    except ImportError:
        print(title)
        return
    Console().print(Panel(Syntax(text, language), title=title) if text else Panel(title))


class Streaming(AnthropicTools):
    """The tools, with the output of commands on the screen as it is printed."""

    def handle(self, block: Any) -> dict[str, Any]:
        if block.name != "bash" or "command" not in block.input:
            return super().handle(block)
        show(f"$ {block.input['command']}")
        text = ""
        stream = self.session.stream(block.input["command"], timeout=120)
        for chunk in stream:
            print(chunk.text, end="", flush=True)
            text += chunk.text
        assert stream.result is not None
        return {"type": "tool_result", "tool_use_id": block.id, "content": f"{text}[exit code {stream.result.exit_code}]"}


def main() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    with Cove().session(ttl_seconds=600) as session:
        tools = Streaming(session)
        for _ in range(MAX_TURNS):
            blocks = claude(messages, tools.definitions) if os.environ.get("ANTHROPIC_API_KEY") else scripted(messages)
            messages.append({"role": "assistant", "content": blocks})
            for block in blocks:
                if block.type == "tool_use" and block.name == EDITOR:
                    show(f"{block.input['command']} {block.input['path']}", block.input.get("file_text", ""), "python")
            results = [tools.handle(block) for block in blocks if block.type == "tool_use"]
            print("".join(f"{block.text}\n" for block in blocks if block.type == "text"), end="")
            if not results:
                break
            messages.append({"role": "user", "content": results})
        check = session.exec("cd /workspace && python3 -m unittest test_roman 2>&1")
        if not check.ok:
            sys.exit(f"the tests do not pass:\n{check.output}")
        lines = len(session.files.read_text("/workspace/roman.py").splitlines())
    print(f"done: roman.py has {lines} lines, and its tests pass")


if __name__ == "__main__":
    main()

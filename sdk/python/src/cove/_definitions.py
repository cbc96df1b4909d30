"""The definitions of the daemon's tools, in the forms that models' APIs take. Pure, and without a daemon.

`_tools.json` is what `GET /v1/tools?format=mcp` serves. `tools/tool_definitions.py` writes it, and a test compares it with the daemon.
"""

from __future__ import annotations

import copy
import functools
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

# Gemini takes a part of JSON schema only, and refuses the rest.
_UNKNOWN_TO_GEMINI = ("additionalProperties", "default")


@functools.cache
def _all() -> tuple[dict[str, Any], ...]:
    text = resources.files(__package__).joinpath("_tools.json").read_text(encoding="utf-8")
    return tuple(json.loads(text))


def names() -> list[str]:
    """The names of all tools, in the order in which models should see them."""
    return [tool["name"] for tool in _all()]


def chosen(only: Iterable[str] | None) -> list[str]:
    """The names of the tools to offer, in the daemon's order."""
    if only is None:
        return names()
    if isinstance(only, str):
        raise TypeError("`only` is a list of names, not one str")
    wanted = list(only)
    unknown = [name for name in wanted if name not in names()]
    if unknown:
        raise ValueError(f"there is no tool {unknown[0]!r}; the tools are {', '.join(names())}")
    return [name for name in names() if name in wanted]


def mcp(only: Iterable[str]) -> list[dict[str, Any]]:
    """The definitions as MCP has them. The caller may change them: they are copies."""
    return [copy.deepcopy(tool) for tool in _all() if tool["name"] in only]


def plain(only: Iterable[str]) -> list[dict[str, Any]]:
    """`{name, description, parameters}`."""
    return [{"name": t["name"], "description": t["description"], "parameters": t["inputSchema"]} for t in mcp(only)]


def openai(only: Iterable[str]) -> list[dict[str, Any]]:
    """As OpenAI's chat API takes them."""
    return [{"type": "function", "function": schema} for schema in plain(only)]


def anthropic(only: Iterable[str]) -> list[dict[str, Any]]:
    """As Anthropic's API takes them."""
    return [{"name": t["name"], "description": t["description"], "input_schema": t["inputSchema"]} for t in mcp(only)]


def gemini(only: Iterable[str]) -> list[dict[str, Any]]:
    """As Gemini's function declarations."""
    return [{**schema, "parameters": _for_gemini(schema["parameters"])} for schema in plain(only)]


def _for_gemini(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _for_gemini(value) for name, value in schema.items() if name not in _UNKNOWN_TO_GEMINI}
    return [_for_gemini(item) for item in schema] if isinstance(schema, list) else schema

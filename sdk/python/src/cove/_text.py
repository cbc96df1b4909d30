"""What the tools of Anthropic's API need that the daemon's tools do not have: text inserted after a line. Pure."""

from __future__ import annotations

import re
from typing import Any


class ToolError(Exception):
    """A call of a tool that cannot be done. Its text is for the model."""


def inserted(text: str, line: int, new: str) -> str:
    """The text with something after a line; 0 is the beginning."""
    # Only a line feed ends a line, as for the tool `read`, which gave the model its numbers.
    lines = [one for one in re.split(r"(?<=\n)", text) if one]
    if not 0 <= line <= len(lines):
        raise ToolError(f"line {line} is not between 0 and {len(lines)}")
    if line and not lines[line - 1].endswith("\n"):
        lines[line - 1] += "\n"
    return "".join([*lines[:line], new if new.endswith("\n") or line == len(lines) else new + "\n", *lines[line:]])


def argument(arguments: dict[str, Any], name: str, kind: type, default: Any = ...) -> Any:
    """One argument of a tool call. Models leave them out and get their types wrong, so each is checked."""
    value = arguments.get(name)
    if value is None:
        if default is ...:
            raise ToolError(f"the argument {name!r} is missing")
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ToolError(f"the argument {name!r} must be of type {kind.__name__}")
    return value

"""Text for models: the result of a command in words, lines with numbers, edits. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._models import ExecResult

MAX_OUTPUT_BYTES = 32 << 10
"""How much of a command's output a model is shown: the first and the last half of it."""

MAX_FILE_CHARS = 128 << 10


class ToolError(Exception):
    """A call of a tool that cannot be done. Its text is for the model."""


def described(result: ExecResult) -> str:
    """The result of a command for a model: its output, then what is worth knowing."""
    notes = []
    if result.kind in ("never_ran", "lost"):
        notes.append(result.reason or result.kind)
    elif result.timed_out:
        notes.append("stopped because it took too long; give a longer timeout or start it in the background")
    elif result.exit_code:
        notes.append(f"exit code {result.exit_code}")
    if result.oom_killed:
        notes.append("a process was killed because memory ran out")
    if result.shell_restarted:
        notes.append(f"the shell was replaced and is in {result.cwd} with its earlier variables")
    if result.network_denied:
        notes.append("the network policy denied " + ", ".join(result.network_denied))
    output = result.output
    if not notes:
        return output or "(no output)"
    return f"{output}{'' if not output or output.endswith(chr(10)) else chr(10)}[{'; '.join(notes)}]"


def numbered(text: str, first: int, last: int | None) -> str:
    """Lines with their numbers, from `first` (1 is the first) to `last`."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if first < 1 or (lines and first > len(lines)) or (last is not None and last < first):
        raise ToolError(f"there are {len(lines)} lines; {first} to {'the end' if last is None else last} is no part of them")
    chosen = lines[first - 1 : last]
    shown = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(chosen, first))
    if len(shown) > MAX_FILE_CHARS:
        shown = shown[:MAX_FILE_CHARS] + "\n[too long: ask for fewer lines]"
    return shown


def replaced(text: str, old: str, new: str) -> str:
    """The text with its only occurrence of `old` replaced."""
    if not old:
        raise ToolError("the text to replace is empty")
    count = text.count(old)
    if count != 1:
        found = "was not found" if count == 0 else f"is there {count} times: add lines around it until it is unique"
        raise ToolError(f"the text to replace {found}")
    return text.replace(old, new)


def inserted(text: str, line: int, new: str) -> str:
    """The text with something after a line; 0 is the beginning."""
    lines = text.splitlines(keepends=True)
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
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ToolError(f"the argument {name!r} must be of type {kind.__name__}")
    return value


def _tool(name: str, description: str, required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"name": name, "description": description, "parameters": parameters}


def _field(kind: str, description: str) -> dict[str, Any]:
    return {"type": kind, "description": description}


_PATH = _field("string", "The path of the file: absolute, or relative to /workspace")

SCHEMAS = [
    _tool(
        "bash",
        "Runs bash commands in a persistent shell of a Linux sandbox. Directory, variables and functions stay between calls.",
        ["command"],
        command=_field("string", "The bash commands"),
        timeout=_field("number", "Seconds after which the command is stopped; the default is 120"),
    ),
    _tool(
        "read_file",
        "Reads a text file of the sandbox. Each line has its number.",
        ["path"],
        path=_PATH,
        first_line=_field("integer", "The first line to show; the default is 1"),
        last_line=_field("integer", "The last line to show; the default is the last one"),
    ),
    _tool(
        "write_file",
        "Writes a text file of the sandbox, in place of what was there. Missing directories are made.",
        ["path", "content"],
        path=_PATH,
        content=_field("string", "The whole content"),
    ),
    _tool(
        "edit_file",
        "Replaces a piece of a text file of the sandbox. The piece must be there exactly once.",
        ["path", "old_text", "new_text"],
        path=_PATH,
        old_text=_field("string", "The piece to replace, exactly as it is in the file"),
        new_text=_field("string", "What takes its place"),
    ),
    _tool(
        "list_files",
        "Lists a directory of the sandbox.",
        [],
        path=_field("string", "The directory; the default is /workspace"),
        recursive={"type": "boolean", "description": "Whether to list what is in its directories, too"},
    ),
]
"""The plain tools, as `{name, description, parameters}` with JSON schemas."""

# Generated from _async/_tools.py by tools/generate_sync.py: change that file instead.
"""Tools for models over one session: plain ones with JSON schemas, and Anthropic's bash and text editor.

A call never raises for what a model did wrong or what the sandbox refused: the model is told in words, and can go on.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .._errors import ApiError, SandboxLost, SessionExpired, SessionNotFound, Unauthorized
from .._settings import DEFAULT
from .._text import MAX_OUTPUT_BYTES, SCHEMAS, ToolError, argument, described, inserted, numbered, replaced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._session import Session

# What no model can do anything about.
_FATAL = (SandboxLost, SessionExpired, SessionNotFound, Unauthorized)


class Tools:
    """Plain tools: `schemas` for the model, `call` for what it asks for."""

    def __init__(self, session: Session, *, max_output_bytes: int = MAX_OUTPUT_BYTES) -> None:
        self._session = session
        self._max_output_bytes = max_output_bytes

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools as `{name, description, parameters}`. `parameters` is a JSON schema."""
        return json.loads(json.dumps(SCHEMAS))  # type: ignore[no-any-return]

    @property
    def openai_schemas(self) -> list[dict[str, Any]]:
        """The tools as OpenAI's chat API takes them."""
        return [{"type": "function", "function": schema} for schema in self.schemas]

    @property
    def anthropic_schemas(self) -> list[dict[str, Any]]:
        """The tools as Anthropic's API takes them."""
        return [{"name": s["name"], "description": s["description"], "input_schema": s["parameters"]} for s in self.schemas]

    def call(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Does what a model asked for. `arguments` is an object, or its JSON as text. Returns the text for the model."""
        text, _ = self.result(name, arguments)
        return text

    def result(self, name: str, arguments: Mapping[str, Any] | str) -> tuple[str, bool]:
        """As `call`, and whether the call failed as such (a command that exits with 1 did not)."""
        try:
            given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments)
            if not isinstance(given, dict):
                raise ToolError("the arguments are no JSON object")
            return self._do(name, given), False
        except _FATAL:
            raise
        except ApiError as error:
            return f"Error: {error.message}", True
        except (ToolError, UnicodeDecodeError, ValueError) as error:
            return f"Error: {error}", True

    def _do(self, name: str, given: dict[str, Any]) -> str:
        files = self._session.files
        if name == "bash":
            return self._bash(argument(given, "command", str), argument(given, "timeout", float, None))
        if name == "read_file":
            text = files.read_text(argument(given, "path", str))
            return numbered(text, argument(given, "first_line", int, 1), argument(given, "last_line", int, None))
        if name == "write_file":
            count = files.write(argument(given, "path", str), argument(given, "content", str))
            return f"Wrote {count} bytes to {given['path']}"
        if name == "edit_file":
            path = argument(given, "path", str)
            old, new = argument(given, "old_text", str), argument(given, "new_text", str)
            files.write(path, replaced(files.read_text(path), old, new))
            return f"Edited {path}"
        if name == "list_files":
            entries = files.list(argument(given, "path", str, None), recursive=argument(given, "recursive", bool, False))
            names = [entry.path + ("/" if entry.is_dir else "") for entry in entries]
            return "\n".join([*names, *(["[there are more]"] if entries.truncated else [])]) or "(empty)"
        raise ToolError(f"there is no tool {name!r}; there are {', '.join(s['name'] for s in SCHEMAS)}")

    def _bash(self, command: str, timeout: float | None) -> str:
        limit = DEFAULT if timeout is None else timeout
        result = self._session.exec(command, timeout=limit, max_output_bytes=self._max_output_bytes)
        return described(result)


class AnthropicTools(Tools):
    """Anthropic's own tools: bash, which has `restart`, and the text editor. Claude knows them without a description."""

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """For `tools=` of `messages.create`."""
        return [
            {"type": "bash_20250124", "name": "bash"},
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        ]

    def handle(self, block: Any) -> dict[str, Any]:
        """Does what a `tool_use` block asks for and returns its `tool_result`. The block is an object of the SDK, or a dict."""
        fields = block if isinstance(block, dict) else {name: getattr(block, name) for name in ("id", "name", "input")}
        text, is_error = self.result(fields["name"], fields["input"])
        answer = {"type": "tool_result", "tool_use_id": fields["id"], "content": text}
        return {**answer, "is_error": True} if is_error else answer

    def _do(self, name: str, given: dict[str, Any]) -> str:
        if name == "bash":
            if argument(given, "restart", bool, False):
                self._session.shell("main").reset()
                return "The shell was restarted"
            return self._bash(argument(given, "command", str), None)
        if name == "str_replace_based_edit_tool":
            return self._edit(argument(given, "command", str), argument(given, "path", str), given)
        raise ToolError(f"there is no tool {name!r}")

    def _edit(self, command: str, path: str, given: dict[str, Any]) -> str:
        files = self._session.files
        if command == "view":
            if (files.stat(path)).is_dir:
                return "\n".join(entry.path + ("/" if entry.is_dir else "") for entry in files.list(path)) or "(empty)"
            first, last = (argument(given, "view_range", list, None) or [1, -1])[:2]
            return numbered(files.read_text(path), int(first), None if last == -1 else int(last))
        if command == "create":
            files.write(path, argument(given, "file_text", str))
            return f"Wrote {path}"
        if command == "str_replace":
            text = replaced(files.read_text(path), argument(given, "old_str", str), argument(given, "new_str", str, ""))
        elif command == "insert":
            new = argument(given, "insert_text", str, None) or argument(given, "new_str", str)
            text = inserted(files.read_text(path), argument(given, "insert_line", int), new)
        else:
            raise ToolError(f"the command {command!r} is none of view, create, str_replace and insert")
        files.write(path, text)
        return f"Edited {path}"

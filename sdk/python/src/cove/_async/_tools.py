"""The daemon's tools for models over one session, and the shapes of Anthropic's bash and text editor.

The daemon defines the tools and does what they say. A call never raises for what a model did wrong or what the sandbox refused: the
model is told in words, and can go on.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .. import _definitions
from .._errors import ApiError, SandboxLost, SessionExpired, SessionNotFound, Unauthorized
from .._http import segment
from .._models import ToolImage, ToolReply
from .._settings import CANCEL_SECONDS, WHOLE_REPLY_SECONDS
from .._text import ToolError, argument, inserted
from . import _io
from ._stream import stop_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .._models import ToolPart
    from ._session import AsyncSession
    from ._transport import AsyncTransport

# How the ids begin that SDKs give to commands of their own.
_IDS_OF_SDKS = ("py-", "ts-")
# What no model can do anything about.
_FATAL = (SandboxLost, SessionExpired, SessionNotFound, Unauthorized)


async def call_tool(transport: AsyncTransport, session: str, name: str, arguments: dict[str, Any]) -> ToolReply:
    """Calls a tool of the daemon once."""
    limit = arguments.get("timeout_seconds")
    silence = WHOLE_REPLY_SECONDS + (limit if isinstance(limit, (int, float)) and limit > 0 else 0)
    path = f"/v1/sessions/{segment(session)}/tools/{segment(name)}"
    try:
        return ToolReply.read(await transport.json("POST", path, body=arguments, silence=silence))
    except _io.Cancelled:
        if name == "bash" and not arguments.get("background"):
            await transport.finish(lambda apart: _stop_newest(apart, session), CANCEL_SECONDS * 3)
        raise


async def _stop_newest(transport: AsyncTransport, session: str) -> None:
    """Ends the command that was last given to `main` by a tool. The daemon chose its id, which only a reply would have told."""
    execs = await transport.json("GET", f"/v1/sessions/{segment(session)}/execs")
    open_ids = [one["exec_id"] for one in execs if one.get("shell") == "main" and one["state"] != "ended"]
    of_tools = [exec_id for exec_id in open_ids if not exec_id.startswith(_IDS_OF_SDKS)]
    if of_tools:
        await stop_command(transport, session, of_tools[-1])


class AsyncTools:
    """The daemon's tools: `schemas` for the model, `call` for what it asks for. docs/reference/tools.md describes each."""

    def __init__(self, session: AsyncSession, *, only: Iterable[str] | None = None) -> None:
        """`only` has the names of the tools to offer, if not all."""
        self._first = session
        self._names = _definitions.chosen(only)
        self.session = session
        """The session that the next call uses. The tool `restore` replaces it; the new one is destroyed with the first one."""

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools as `{name, description, parameters}`. `parameters` is a JSON schema."""
        return _definitions.plain(self._names)

    @property
    def openai_schemas(self) -> list[dict[str, Any]]:
        """The tools as OpenAI's chat API takes them."""
        return _definitions.openai(self._names)

    @property
    def anthropic_schemas(self) -> list[dict[str, Any]]:
        """The tools as Anthropic's API takes them."""
        return _definitions.anthropic(self._names)

    @property
    def gemini_schemas(self) -> list[dict[str, Any]]:
        """The tools as Gemini's function declarations."""
        return _definitions.gemini(self._names)

    async def call(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Does what a model asked for. `arguments` is an object, or its JSON as text. Returns the text for the model."""
        return (await self.reply(name, arguments)).text

    async def result(self, name: str, arguments: Mapping[str, Any] | str) -> tuple[str, bool]:
        """As `call`, and whether it failed: the call was wrong, the sandbox refused it, or a command did not exit with 0."""
        reply = await self.reply(name, arguments)
        return reply.text, reply.is_error

    async def content(self, name: str, arguments: Mapping[str, Any] | str) -> list[ToolPart]:
        """As `call`, with all parts of the answer: a `ToolText`, and a `ToolImage` if the model read an image."""
        return (await self.reply(name, arguments)).content

    async def reply(self, name: str, arguments: Mapping[str, Any] | str) -> ToolReply:
        """As `call`, with everything that the daemon answered."""
        try:
            given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments)
            if not isinstance(given, dict):
                raise ToolError("the arguments are no JSON object")
            return await self._do(name, given)
        except _FATAL:
            raise
        except ApiError as error:
            return ToolReply.failure(error.message)
        except json.JSONDecodeError as error:
            return ToolReply.failure(f"the arguments are no JSON: {error}")
        except (ToolError, ValueError) as error:
            return ToolReply.failure(str(error))

    async def _do(self, name: str, given: dict[str, Any]) -> ToolReply:
        if name not in self._names:
            raise ToolError(f"there is no tool {name!r}; the tools are {', '.join(self._names)}")
        return await self._ask(name, given)

    async def _ask(self, name: str, given: dict[str, Any]) -> ToolReply:
        reply = await self.session.call_tool(name, given)
        if reply.session_id is not None and reply.session_id != self.session.id:
            self.session = await self._first._restored_as(reply.session_id)
        return reply


class AsyncAnthropicTools(AsyncTools):
    """Anthropic's own tools: bash, which has `restart`, and the text editor. Claude knows them without a description.

    The daemon's tools do the work. `schemas` is empty: use `definitions`.
    """

    def __init__(self, session: AsyncSession) -> None:
        super().__init__(session, only=[])

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """For `tools=` of `messages.create`."""
        return [
            {"type": "bash_20250124", "name": "bash"},
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        ]

    async def handle(self, block: Any) -> dict[str, Any]:
        """Does what a `tool_use` block asks for and returns its `tool_result`. The block is an object of the SDK, or a dict."""
        fields = block if isinstance(block, dict) else {name: getattr(block, name) for name in ("id", "name", "input")}
        reply = await self.reply(fields["name"], fields["input"])
        has_image = any(isinstance(part, ToolImage) for part in reply.content)
        content = [_block(part) for part in reply.content] if has_image else reply.text
        answer = {"type": "tool_result", "tool_use_id": fields["id"], "content": content}
        return {**answer, "is_error": True} if reply.is_error else answer

    async def _do(self, name: str, given: dict[str, Any]) -> ToolReply:
        if name == "bash":
            return await self._ask("bash", given)
        if name == "str_replace_based_edit_tool":
            return await self._edit(argument(given, "command", str), argument(given, "path", str), given)
        raise ToolError(f"there is no tool {name!r}; the tools are bash and str_replace_based_edit_tool")

    async def _edit(self, command: str, path: str, given: dict[str, Any]) -> ToolReply:
        if command == "view":
            if (await self.session.files.stat(path)).is_dir:
                return await self._ask("ls", {"path": path})
            return await self._ask("read", {"path": path, **_lines(argument(given, "view_range", list, None))})
        if command == "create":
            return await self._ask("write", {"path": path, "content": argument(given, "file_text", str)})
        if command == "str_replace":
            old, new = argument(given, "old_str", str), argument(given, "new_str", str, "")
            return await self._ask("edit", {"path": path, "old_string": old, "new_string": new})
        if command == "insert":
            files = self.session.files
            new = argument(given, "insert_text", str, None) or argument(given, "new_str", str)
            text = inserted(await files.read_text(path), argument(given, "insert_line", int), new)
            return await self._ask("write", {"path": path, "content": text})
        raise ToolError(f"the command {command!r} is none of view, create, str_replace and insert")


def _lines(view_range: list[Any] | None) -> dict[str, int]:
    """The lines of a `view_range`, from its first to its last, as `read` takes them. -1 is the end of the file."""
    if view_range is None:
        return {}
    if len(view_range) != 2 or not all(type(line) is int for line in view_range):
        raise ToolError("view_range is a list of two numbers: the first line and the last one, or -1 for the end")
    first, last = view_range
    if last != -1 and last < first:
        raise ToolError(f"the view_range {first} to {last} has no lines")
    return {"offset": first} if last == -1 else {"offset": first, "limit": last - first + 1}


def _block(part: ToolPart) -> dict[str, Any]:
    """A part of an answer as Anthropic's API takes it."""
    if isinstance(part, ToolImage):
        return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data_base64}}
    return {"type": "text", "text": part.text}

"""What a tool of the daemon answers."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Union

from .._errors import ProtocolError


@dataclass(frozen=True)
class ToolText:
    """A part of a tool's answer: text for the model."""

    text: str


@dataclass(frozen=True)
class ToolImage:
    """A part of a tool's answer: an image for the model."""

    media_type: str
    """Such as `image/png`."""
    data: bytes

    @property
    def data_base64(self) -> str:
        """The image as models' APIs take it."""
        return base64.b64encode(self.data).decode()


ToolPart = Union[ToolText, ToolImage]
"""A part of a tool's answer."""


@dataclass(frozen=True)
class ToolReply:
    """What a tool answered."""

    content: list[ToolPart]
    """What the model reads."""
    structured: dict[str, Any] | None = None
    """The same as values, for programs. An error has none."""
    is_error: bool = False
    """Whether the model should do something else: a file is missing, an edit did not match, a command failed."""
    session_id: str | None = None
    """The session that later calls should use, after `restore`."""

    @property
    def text(self) -> str:
        """The text of all parts."""
        return "\n".join(part.text for part in self.content if isinstance(part, ToolText))

    @staticmethod
    def failure(text: str) -> ToolReply:
        """An answer that tells the model what went wrong."""
        return ToolReply([ToolText(text)], is_error=True)

    @staticmethod
    def read(answer: Any) -> ToolReply:
        """Makes one from the daemon's JSON. A kind of part that this version does not know is left out."""
        try:
            parts = [_part(one) for one in answer["content"]]
            content = [part for part in parts if part is not None]
            return ToolReply(content, answer.get("structured"), answer["is_error"], answer.get("session_id"))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ProtocolError(f"the answer is not that of a tool: {error!r}") from error


def _part(part: dict[str, Any]) -> ToolPart | None:
    if part["type"] == "text":
        return ToolText(part["text"])
    if part["type"] == "image":
        return ToolImage(part["media_type"], base64.b64decode(part["data_base64"]))
    return None

"""Function tools for the OpenAI Agents SDK: `Agent(tools=function_tools(session))`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._async._tools import AsyncTools
from .._errors import MissingExtra
from .._models import ToolImage

try:
    from agents import FunctionTool, ToolOutputImage, ToolOutputText
except ImportError as error:
    raise MissingExtra("this needs the package openai-agents", hint="pip install 'cove-sandbox[openai]'") from error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._async._session import AsyncSession
    from .._models import ToolPart


def function_tools(session: AsyncSession, *, only: Iterable[str] | None = None) -> list[FunctionTool]:
    """The daemon's tools over a session: all of them, or only these names. After the tool `restore`, all use the new session."""
    tools = AsyncTools(session, only=only)

    def made(schema: dict[str, Any]) -> FunctionTool:
        async def invoke(_context: Any, arguments: str) -> Any:
            parts = await tools.content(schema["name"], arguments)
            has_image = any(isinstance(part, ToolImage) for part in parts)
            return [_output(part) for part in parts] if has_image else "\n".join(part.text for part in parts)  # type: ignore[union-attr]

        return FunctionTool(
            name=schema["name"],
            description=schema["description"],
            params_json_schema=schema["parameters"],
            on_invoke_tool=invoke,
            strict_json_schema=False,  # strict schemas have no optional arguments
        )

    return [made(schema) for schema in tools.schemas]


def _output(part: ToolPart) -> Any:
    if isinstance(part, ToolImage):
        return ToolOutputImage(image_url=f"data:{part.media_type};base64,{part.data_base64}")
    return ToolOutputText(text=part.text)

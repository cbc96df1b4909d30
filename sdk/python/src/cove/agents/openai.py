"""Function tools for the OpenAI Agents SDK: `Agent(tools=function_tools(session))`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._async._tools import AsyncTools
from .._errors import MissingExtra
from .._text import MAX_OUTPUT_BYTES

try:
    from agents import FunctionTool
except ImportError as error:
    raise MissingExtra("this needs the package openai-agents", hint="pip install 'cove-sandbox[openai]'") from error

if TYPE_CHECKING:
    from .._async._session import AsyncSession


def function_tools(session: AsyncSession, *, max_output_bytes: int = MAX_OUTPUT_BYTES) -> list[FunctionTool]:
    """The plain tools of a session: bash, read_file, write_file, edit_file and list_files."""
    tools = AsyncTools(session, max_output_bytes=max_output_bytes)

    def made(schema: dict[str, Any]) -> FunctionTool:
        async def invoke(_context: Any, arguments: str) -> str:
            return await tools.call(schema["name"], arguments)

        return FunctionTool(
            name=schema["name"],
            description=schema["description"],
            params_json_schema=schema["parameters"],
            on_invoke_tool=invoke,
            strict_json_schema=False,  # strict schemas have no optional arguments
        )

    return [made(schema) for schema in tools.schemas]

"""The function tools for the OpenAI Agents SDK, with a scripted model."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from cove import AsyncCove

from ..asynchronous.test_tools import PIXEL

if TYPE_CHECKING:
    from ..daemon import Daemon


async def test_an_openai_agent_uses_the_tools(daemon: Daemon) -> None:
    pytest.importorskip("agents")
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
    from cove.agents.openai import function_tools

    seen: list[Any] = []

    class Scripted(Model):
        async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            seen.append(input)
            calls = [("bash", {"command": "echo $((6*7)) > answer; cat answer"}), ("read", {"path": "pixel.png"}), ("read", {})]
            if len(seen) <= len(calls):
                name, arguments = calls[len(seen) - 1]
                call = json.dumps(arguments)
                output: Any = ResponseFunctionToolCall(call_id=f"c{len(seen)}", name=name, arguments=call, type="function_call")
            else:
                text = ResponseOutputText(text="It is 42.", type="output_text", annotations=[])
                output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    async with AsyncCove(daemon.url, daemon.key) as client, client.session() as session:
        tools = function_tools(session, only=["read", "write", "bash"])
        assert [tool.name for tool in tools] == ["read", "write", "bash"]
        assert len(function_tools(session)) > len(tools)
        await session.files.write("pixel.png", PIXEL)
        agent = Agent(name="a", model=Scripted(), tools=list(tools))
        result = await Runner.run(agent, "What is six times seven?", run_config=RunConfig(tracing_disabled=True))
        assert result.final_output == "It is 42."
        assert seen[1][-1]["output"].startswith("42\n[exit code 0")
        text, image = seen[2][-1]["output"]
        assert (text["type"], "image/png" in text["text"]) == ("input_text", True)
        assert image["image_url"] == f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
        assert "path (text, required)" in seen[3][-1]["output"]
        assert await session.files.read_text("answer") == "42\n"

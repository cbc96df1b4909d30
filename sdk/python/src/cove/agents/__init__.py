"""Cove for agent frameworks.

| what | for | extra |
|---|---|---|
| `Tools`, `AsyncTools` | any model that calls functions: the daemon's tools, also by `session.tools()` | |
| `AnthropicTools`, `AsyncAnthropicTools` | Anthropic's own bash and text-editor tools | |
| `cove.agents.langchain.CoveSandbox` | LangChain's deepagents | `cove-sandbox[langchain]` |
| `cove.agents.openai.function_tools` | the OpenAI Agents SDK: function tools | `cove-sandbox[openai]` |
| `cove.agents.openai_sandbox.CoveSandboxClient` | the OpenAI Agents SDK: a sandbox for its `SandboxAgent` | `cove-sandbox[openai]` |
| `cove.agents.roomkit.CoveBackend` | roomkit-sandbox | `cove-sandbox[roomkit]` |

No framework is imported before its module is.
"""

from __future__ import annotations

from .._async._tools import AsyncAnthropicTools, AsyncTools
from .._sync._tools import AnthropicTools, Tools

__all__ = ["AnthropicTools", "AsyncAnthropicTools", "AsyncTools", "Tools"]

"""Cove as a sandbox of the OpenAI Agents SDK: what a `SandboxAgent` needs to run commands and to edit files.

    from agents import Runner
    from agents.run import RunConfig
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from cove import AsyncCove
    from cove.agents.openai_sandbox import CoveSandboxClient, CoveSandboxClientOptions

    async with AsyncCove() as cove:
        sandbox = SandboxRunConfig(client=CoveSandboxClient(cove), options=CoveSandboxClientOptions(image="python"))
        await Runner.run(SandboxAgent(name="coder"), "Fix the tests", run_config=RunConfig(sandbox=sandbox))

Each run has a session of its own unless the SDK is told to resume one. `cove.agents.openai` has plain function tools instead, which
use the persistent shell of one session.
"""

from __future__ import annotations

from .._errors import MissingExtra

try:
    from ._openai.client import CoveSandboxClient
    from ._openai.options import CoveSandboxClientOptions, CoveSandboxSessionState
    from ._openai.session import CoveSandboxSession
except ImportError as error:
    raise MissingExtra("this needs the package openai-agents, 0.24 or newer", hint="pip install 'cove-sandbox[openai]'") from error

__all__ = ["CoveSandboxClient", "CoveSandboxClientOptions", "CoveSandboxSession", "CoveSandboxSessionState"]

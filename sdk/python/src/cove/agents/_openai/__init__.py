"""The parts of `cove.agents.openai_sandbox`. They import the OpenAI Agents SDK."""

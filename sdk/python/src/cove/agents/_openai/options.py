"""What a sandbox of the OpenAI Agents SDK is asked to be, and what is remembered of it between runs. Both become JSON.

Pydantic reads the annotations of these classes when the module is imported, so their types are imported here and not only for checks.
"""

from __future__ import annotations

from typing import Any, Literal

from agents.sandbox.session import BaseSandboxClientOptions, SandboxSessionState
from pydantic import Field

OnExit = Literal["destroy", "stop", "keep"]


class CoveSandboxClientOptions(BaseSandboxClientOptions):  # type: ignore[misc]
    """The options of a new session. What is None is left to the daemon."""

    type: Literal["cove"] = "cove"
    image: str | None = None
    snapshot: str | None = None
    """A snapshot of Cove to begin with. It has nothing to do with the SDK's own snapshots."""
    runtime: str | None = None
    network: str | dict[str, Any] | None = None
    workspace: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    cpus: float | None = None
    memory_mb: int | None = None
    pids: int | None = None
    disk_mb: int | None = None
    ttl_seconds: int | None = None
    idle_seconds: int | None = None
    user: str | None = None
    """`root` for root of the sandbox. Without it, commands can run as no other user."""
    writable_root: bool | None = None
    exposed_ports: tuple[int, ...] = ()
    on_exit: OnExit = "destroy"
    """What happens to the session when the SDK is done with it. A session that is stopped or kept is found again by `resume`."""

    def create_arguments(self) -> dict[str, Any]:
        """The arguments of `AsyncCove.create`, without the variables, which the manifest can add to."""
        names = set(type(self).model_fields) - {"type", "exposed_ports", "on_exit", "env"}
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class CoveSandboxSessionState(SandboxSessionState):  # type: ignore[misc]
    """Which session a sandbox is, and how to make another one if that one is gone."""

    type: Literal["cove"] = "cove"
    sandbox_id: str
    options: CoveSandboxClientOptions

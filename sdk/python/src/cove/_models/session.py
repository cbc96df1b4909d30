"""Sessions, their shells, and what outlives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ._read import read
from .network import NetworkSpec

Status = Literal["creating", "running", "paused", "stopped", "pool_idle", "destroying", "destroyed", "expired", "crashed"]


@dataclass(frozen=True)
class Resources:
    """The limits of a session."""

    cpus: float
    memory_mb: int
    pids: int
    disk_mb: int


@dataclass(frozen=True)
class SessionInfo:
    """A session as the daemon last described it."""

    id: str
    image: str
    runtime: str
    status: Status
    cwd: str
    labels: dict[str, str]
    resources: Resources
    network: NetworkSpec
    created_at: str
    expires_at: str
    last_activity: str
    owner: str = "default"
    name: str | None = None
    workspace_id: str | None = None
    writable_root: bool = False
    user: str = "default"
    profiles: list[str] = field(default_factory=list)
    acquire_source: str = "cold"
    reason: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.resources, dict):
            object.__setattr__(self, "resources", read(Resources, self.resources))


@dataclass(frozen=True)
class Stats:
    """What a session uses now."""

    memory_bytes: int
    cpu_usage_usec: int
    pids: int
    memory_limit: int | None = None
    disk_bytes: int | None = None


@dataclass(frozen=True)
class ShellInfo:
    """A shell of a session."""

    name: str
    kind: Literal["exec", "terminal"]
    state: Literal["starting", "idle", "busy", "down"]
    cwd: str
    queued: int = 0
    restarts: int = 0
    cols: int = 80
    rows: int = 24
    pid: int | None = None
    exec_id: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """What a session had on its disk and in its shells."""

    id: str
    owner: str
    session_id: str
    image: str
    runtime: str
    disk_bytes: int
    shells: list[str]
    created_at: str
    name: str | None = None
    writable_root: bool = False
    user: str = "default"


@dataclass(frozen=True)
class Workspace:
    """A directory that outlives sessions."""

    id: str
    created_at: str
    sessions: list[str]
    owner: str = "default"
    kind: str = "directory"
    """`disk` if it has a limit of its own beside the disks of sessions, `directory` if it is a plain directory of the host."""
    size_bytes: int | None = None
    limit_bytes: int | None = None
    """The limit of its size, if one is enforced."""

"""What a session may reach, and how it is reached."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, Union

NetworkSpec = Union[str, "dict[str, Any]"]
"""The name of a preset (`none`, `packages`, `full`, …), or `{"presets": […], "allow": […], "deny": […]}`."""


@dataclass(frozen=True)
class PortInfo:
    """A TCP socket that listens in the sandbox."""

    port: int
    address: str
    reachable: bool
    pid: int | None = None
    program: str | None = None


@dataclass(frozen=True)
class PortLink:
    """A link to one port of one session. Whoever has it can use that port until it expires."""

    url: str
    expires_at: str


@dataclass(frozen=True)
class PortResponse:
    """What a server in the sandbox answered."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


@dataclass(frozen=True)
class NetworkInfo:
    """What a session may reach now, and what it has reached."""

    network: NetworkSpec
    allow: list[Any]
    deny: list[Any]
    is_open: bool
    used: list[Any] = field(default_factory=list)
    inject: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    max: NetworkSpec | None = None
    proxy: str | None = None


@dataclass(frozen=True)
class NetworkDecision:
    """One decision about a session's network."""

    sequence: int
    timestamp: int
    wish: Literal["resolve", "connect"]
    verdict: Literal["allowed", "denied", "failed", "cut"]
    host: str | None = None
    address: str | None = None
    port: int | None = None
    reason: str | None = None
    wanted: str | None = None
    """The rule that would allow it."""
    injected: bool = False
    bytes_sent: int | None = None
    bytes_received: int | None = None


@dataclass(frozen=True)
class Injection:
    """A header that the daemon adds to requests of a session to one host. Programs in the sandbox never see its value."""

    host: str
    header: str
    value_from: str
    """`secret:NAME`."""
    format: str | None = None
    """The value of the header with `{}` for the secret, such as `Bearer {}`."""

    def as_json(self) -> dict[str, str]:
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}


@dataclass(frozen=True)
class Packages:
    """What the network `packages` allows on the daemon's host."""

    found: list[dict[str, Any]]
    problems: list[dict[str, Any]]
    variables: list[dict[str, Any]] = field(default_factory=list)

"""The daemon itself: its images, pools, keys and secrets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ._read import read
from .network import NetworkSpec


@dataclass(frozen=True)
class Health:
    status: str
    version: str


@dataclass(frozen=True)
class Image:
    """An image that sessions can be created from."""

    name: str
    runtime: str
    source: str
    default: bool


@dataclass(frozen=True)
class ImageDetails:
    """An image that was pulled or imported."""

    name: str
    bytes: int
    shared_bytes: int
    layers: list[str]
    env: list[str]
    digest: str | None = None
    created: str | None = None
    working_dir: str | None = None
    user: str | None = None


@dataclass(frozen=True)
class PullProgress:
    """How far a pull is."""

    phase: str
    layers: int
    layers_done: int
    bytes: int
    total_bytes: int


@dataclass(frozen=True)
class RemovedImages:
    """What the removal of an image or a prune freed."""

    layers: int
    leftovers: int
    bytes: int


@dataclass(frozen=True)
class Pool:
    """Sandboxes that are started before anybody asks for them."""

    image: str
    runtime: str
    size: int
    idle: int
    starting: int
    hits: int
    misses: int
    failure: str | None = None


@dataclass(frozen=True)
class Key:
    """An API key, without its secret."""

    name: str
    role: Literal["admin", "user"]
    sessions: int
    memory_mb: int
    max_sessions: int | None = None
    max_memory_mb: int | None = None
    max_network: NetworkSpec | None = None
    created_at: str | None = None


@dataclass(frozen=True)
class NewKey:
    """A new key. Only this answer has its secret, so it does not show in `repr`."""

    secret: str = field(repr=False)
    key: Key

    def __post_init__(self) -> None:
        if isinstance(self.key, dict):
            object.__setattr__(self, "key", read(Key, self.key))


@dataclass(frozen=True)
class Secret:
    """A secret, without its value."""

    name: str
    owner: str
    hosts: list[str]
    updated_at: str

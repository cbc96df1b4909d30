"""A backend for roomkit-sandbox: `ContainerSandboxExecutor(backend=CoveBackend(client), …)`.

It has the six methods that the executor calls. A container of RoomKit is a session here, and the labels say which ones are RoomKit's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._errors import NotFound, SessionExpired

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._async._client import AsyncCove
    from .._async._session import AsyncSession

MARK = "roomkit.sandbox"
SESSION = "roomkit.sandbox.session_id"


@dataclass
class ExecResult:
    exit_code: int
    stdout: str
    stderr: str


@dataclass
class ContainerInfo:
    container_id: str
    session_id: str | None
    labels: dict[str, str] = field(default_factory=dict)
    status: str = "running"
    created_at: str | None = None


class CoveBackend:
    """Makes sessions for roomkit-sandbox. Other arguments are those of `AsyncCove.create`: `image`, `network`, `memory_mb`, …"""

    def __init__(self, client: AsyncCove, **options: Any) -> None:
        self._client = client
        self._options = options

    async def create_container(
        self, session_id: str, labels: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None
    ) -> str:
        options = {**self._options}
        every_label = {**options.pop("labels", {}), **(labels or {}), MARK: "true", SESSION: session_id}
        session = await self._client.create(labels=every_label, env={**options.pop("env", {}), **(env or {})}, **options)
        return session.id

    async def exec_command(
        self,
        container_id: str,
        cmd: list[str],
        workdir: str = "/workspace",
        env: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> ExecResult:
        """Runs a program. A program that takes too long is stopped and is a TimeoutError."""
        session = await self._client.connect(container_id)
        result = await session.run(cmd, cwd=workdir, env=env, timeout=timeout)
        if result.timed_out:
            raise TimeoutError(f"the command took longer than {timeout} seconds")
        return ExecResult(result.exit_code, result.stdout, result.stderr or result.reason or "")

    async def container_exists(self, container_id: str) -> bool:
        try:
            session = await self._client.connect(container_id)
        except (NotFound, SessionExpired):
            return False
        return session.info.status in ("running", "paused")

    async def find_container(self, session_id: str) -> str | None:
        for session in await self._mine({SESSION: session_id}):
            if session.info.status in ("running", "paused"):
                return session.id
        return None

    async def delete_container(self, container_id: str) -> None:
        try:
            await (await self._client.connect(container_id)).destroy()
        except (NotFound, SessionExpired):
            pass

    async def list_containers(self, labels: Mapping[str, str] | None = None) -> list[ContainerInfo]:
        return [
            ContainerInfo(
                session.id, session.info.labels.get(SESSION), dict(session.info.labels), session.info.status, session.info.created_at
            )
            for session in await self._mine(labels or {})
        ]

    async def _mine(self, labels: Mapping[str, str]) -> list[AsyncSession]:
        return await self._client.list(labels={MARK: "true", **labels})

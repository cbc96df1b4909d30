"""The client: where everything begins."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from .._embedded import EmbeddedDaemon
from .._errors import ProtocolError, SessionExpired, SessionNotFound, api_error
from .._find import find
from .._http import given, query, segment
from .._models import Health, Injection, NetworkSpec, Packages, PullProgress, SessionInfo, Status, read
from .._settings import CLEANUP_SECONDS, RECONNECT_SECONDS, Backoff
from . import _io
from ._resources import AsyncImages, AsyncKeys, AsyncPools, AsyncSecrets, AsyncSnapshots, AsyncWorkspaces
from ._session import AsyncSession, AsyncSessionContext
from ._transport import AsyncTransport

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType


class AsyncCove:
    """A client of one daemon.

    Without arguments it finds the daemon of this machine: by COVE_URL and COVE_API_KEY, or by the data directory of the user
    (COVE_DATA_DIR, `~/.local/share/cove`). One client serves any number of threads and event loops.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        reconnect_seconds: float = RECONNECT_SECONDS,
        _embedded: EmbeddedDaemon | None = None,
    ) -> None:
        endpoint = None if _embedded is not None else find(url, api_key, data_dir)
        self._transport = transport = AsyncTransport(endpoint, _embedded, reconnect_seconds)
        self._embedded = _embedded
        self.images = AsyncImages(transport)
        self.pools = AsyncPools(transport)
        self.keys = AsyncKeys(transport)
        self.secrets = AsyncSecrets(transport)
        self.snapshots = AsyncSnapshots(transport)
        self.workspaces = AsyncWorkspaces(transport)

    @classmethod
    def embedded(cls, *, data_dir: str | os.PathLike[str] | None = None) -> AsyncCove:
        """A client with a private daemon, which starts with the first request and ends with `close` or with this process.

        It ends whatever ends the process, and its sessions end with it. With `data_dir`, images and workspaces are kept there.
        """
        return cls(_embedded=EmbeddedDaemon(data_dir))

    async def __aenter__(self) -> AsyncCove:
        if self._embedded is not None:
            await self._transport.endpoint()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. Sessions go on, except those of a private daemon."""
        await self._transport.close()

    def session(
        self,
        image: str | None = None,
        *,
        name: str | None = None,
        network: NetworkSpec | None = None,
        snapshot: str | None = None,
        runtime: str | None = None,
        ttl_seconds: int | None = None,
        idle_seconds: int | None = None,
        idle_pause_seconds: int | None = None,
        workspace: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        cpus: float | None = None,
        memory_mb: int | None = None,
        pids: int | None = None,
        disk_mb: int | None = None,
        inject: Sequence[Injection] | None = None,
        writable_root: bool | None = None,
        user: str | None = None,
        profiles: Sequence[str] | None = None,
        progress: Callable[[PullProgress], None] | None = None,
    ) -> AsyncSessionContext:
        """A session for a `with` block: created when it begins, destroyed when it ends. The arguments are those of `create`."""

        async def create() -> AsyncSession:
            return await self.create(
                image,
                name=name,
                network=network,
                snapshot=snapshot,
                runtime=runtime,
                ttl_seconds=ttl_seconds,
                idle_seconds=idle_seconds,
                idle_pause_seconds=idle_pause_seconds,
                workspace=workspace,
                env=env,
                labels=labels,
                cpus=cpus,
                memory_mb=memory_mb,
                pids=pids,
                disk_mb=disk_mb,
                inject=inject,
                writable_root=writable_root,
                user=user,
                profiles=profiles,
                progress=progress,
            )

        return AsyncSessionContext(create)

    async def create(
        self,
        image: str | None = None,
        *,
        name: str | None = None,
        network: NetworkSpec | None = None,
        snapshot: str | None = None,
        runtime: str | None = None,
        ttl_seconds: int | None = None,
        idle_seconds: int | None = None,
        idle_pause_seconds: int | None = None,
        workspace: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        cpus: float | None = None,
        memory_mb: int | None = None,
        pids: int | None = None,
        disk_mb: int | None = None,
        inject: Sequence[Injection] | None = None,
        writable_root: bool | None = None,
        user: str | None = None,
        profiles: Sequence[str] | None = None,
        progress: Callable[[PullProgress], None] | None = None,
    ) -> AsyncSession:
        """Creates a session, which lives until it is destroyed or was not used for `ttl_seconds`.

        `image` is a name of `images.list()` or an image of a registry, which is pulled if it is not here; `progress` is told how far
        that is. `name` is unique among your sessions; `list(name=…)` finds it. `network` is a preset (`none`, `packages`, `full`)
        or rules. `workspace` names a directory that outlives the session.
        """
        resources = given(cpus=cpus, memory_mb=memory_mb, pids=pids, disk_mb=disk_mb)
        body = given(
            image=image,
            name=name,
            snapshot=snapshot,
            runtime=runtime,
            ttl_seconds=ttl_seconds,
            idle_seconds=idle_seconds,
            idle_pause_seconds=idle_pause_seconds,
            workspace_id=workspace,
            env=dict(env) if env else None,
            labels=dict(labels) if labels else None,
            resources=resources or None,
            network=network,
            inject=None if inject is None else [one.as_json() for one in inject],
            writable_root=writable_root,
            user=user,
            profiles=list(profiles) if profiles else None,
        )
        idempotency_key = f"py-{uuid.uuid4().hex}"

        async def clean_up(transport: AsyncTransport) -> None:
            # The same request with the same key returns the session that it made, if it made one.
            await (await self._create(transport, body, idempotency_key, None)).destroy()

        try:
            return await self._create(self._transport, body, idempotency_key, progress)
        except _io.Cancelled:
            await self._transport.finish(clean_up, CLEANUP_SECONDS)
            raise

    @staticmethod
    async def _create(
        transport: AsyncTransport, body: dict[str, Any], idempotency_key: str, progress: Callable[[PullProgress], None] | None
    ) -> AsyncSession:
        """Creates a session. The answer is a stream, because a pull can take long; it begins with the session if nothing is pulled."""
        import httpx

        headers = {"Idempotency-Key": idempotency_key}
        backoff = Backoff(transport.reconnect_seconds)
        while True:
            try:
                async for name, event in transport.events("POST", "/v1/sessions", body=body, headers=headers):
                    backoff.progress()
                    if name == "progress" and progress is not None:
                        progress(read(PullProgress, event))
                    elif name == "done":
                        return AsyncSession(transport, read(SessionInfo, event), is_ours=True)
                    elif name == "error":
                        raise api_error(event, status=200)
                raise ProtocolError("the create ended without a result")
            except httpx.TransportError as error:
                wait = backoff.failed() if transport.has_answered else None
                if wait is None:
                    raise await transport.unreachable(error) from error
                await _io.sleep(wait)

    async def connect(self, session_id: str) -> AsyncSession:
        """Finds a session that exists. As a context manager it does not destroy it."""
        answer = await self._transport.json("GET", f"/v1/sessions/{segment(session_id)}")
        info = read(SessionInfo, answer)
        if info.status == "expired":
            raise SessionExpired(f"the session {session_id} has expired", code="SESSION_EXPIRED", status=410)
        if info.status in ("destroying", "destroyed"):
            raise SessionNotFound(f"the session {session_id} was destroyed", code="SESSION_NOT_FOUND", status=404)
        return AsyncSession(self._transport, info, is_ours=False)

    async def list(
        self,
        *,
        status: Status | Sequence[Status] | None = None,
        labels: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> list[AsyncSession]:
        """The sessions that live, the oldest first: of any of the statuses, with all of the labels, with the name."""
        statuses = [status] if isinstance(status, str) else list(status or [])
        pairs = [f"{key}={value}" for key, value in (labels or {}).items()]
        answer = await self._transport.json("GET", f"/v1/sessions{query({'status': statuses, 'label': pairs, 'name': name})}")
        return [AsyncSession(self._transport, read(SessionInfo, one), is_ours=False) for one in answer]

    async def health(self) -> Health:
        """Whether the daemon answers, and its version. Needs no key."""
        return read(Health, await self._transport.json("GET", "/healthz"))

    async def ready(self) -> Health:
        """Whether the daemon can make sessions; an `InternalError` says what it lacks."""
        return read(Health, await self._transport.json("GET", "/readyz"))

    async def metrics(self) -> str:
        """The daemon's metrics, as Prometheus reads them. For admin keys."""
        text, _ = await self._transport.read("GET", "/metrics", headers={"Accept": "*/*"})
        return text.decode()

    async def packages(self, *, refresh: bool = False) -> Packages:
        """What the network `packages` allows on the daemon's host. With `refresh` the package managers are asked again."""
        method = "POST" if refresh else "GET"
        return read(Packages, await self._transport.json(method, "/v1/network/packages"))

"""Makes sessions for the OpenAI Agents SDK, finds them again, and ends them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from agents.sandbox import Manifest
from agents.sandbox.errors import MountConfigError
from agents.sandbox.session import BaseSandboxClient, Instrumentation
from agents.sandbox.snapshot import resolve_snapshot

from ..._errors import NotFound, SandboxLost, SessionExpired
from .options import CoveSandboxClientOptions, CoveSandboxSessionState
from .session import CoveSandboxSession

if TYPE_CHECKING:
    from agents.sandbox.session import Dependencies, SandboxSession, SandboxSessionState
    from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec

    from ..._async._client import AsyncCove
    from ..._async._session import AsyncSession


class CoveSandboxClient(BaseSandboxClient[CoveSandboxClientOptions]):  # type: ignore[misc]
    """A `BaseSandboxClient` whose sandboxes are sessions of `cove`, which the caller closes."""

    backend_id = "cove"
    supports_default_options = True

    def __init__(
        self, cove: AsyncCove, *, instrumentation: Instrumentation | None = None, dependencies: Dependencies | None = None
    ) -> None:
        self._cove = cove
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: CoveSandboxClientOptions | None = None,
    ) -> SandboxSession:
        """Creates a session. It is empty until `start`, which the SDK calls."""
        manifest = Manifest() if manifest is None else manifest
        options = CoveSandboxClientOptions() if options is None else options
        self._validate_manifest_for_create(manifest)
        _refuse_mounts(manifest)
        session = await self._new(manifest, options)
        session_id = uuid.uuid4()
        state = CoveSandboxSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            sandbox_id=session.id,
            options=options,
            exposed_ports=options.exposed_ports,
        )
        return self._wrapped(CoveSandboxSession(state, session))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Finds the session of an earlier run. If it is gone, a new one takes its place, and `start` restores the SDK's snapshot."""
        if not isinstance(state, CoveSandboxSessionState):
            raise TypeError(f"this client resumes states of Cove, not {type(state).__name__}")
        state.assert_path_grants_rebound()
        _refuse_mounts(state.manifest)
        session = await self._found(state.sandbox_id)
        is_found = session is not None
        if session is None:
            session = await self._new(state.manifest, state.options)
            state.sandbox_id = session.id
            state.workspace_root_ready = False
        inner = CoveSandboxSession(state, session)
        inner._set_start_state_preserved(is_found, system=is_found)
        return self._wrapped(inner)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Ends what `shutdown` has left. A session with another `on_exit` than `destroy` stays, because the SDK always calls this."""
        inner = session._inner
        if not isinstance(inner, CoveSandboxSession):
            raise TypeError(f"this client deletes sessions of Cove, not {type(inner).__name__}")
        if inner.state.options.on_exit == "destroy":
            await inner.destroy()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Reads a state from the JSON that `serialize_session_state` made."""
        return self._deserialize_session_state_payload(payload, CoveSandboxSessionState)

    async def _new(self, manifest: Manifest, options: CoveSandboxClientOptions) -> AsyncSession:
        env = {**options.env, **await manifest.environment.resolve()}
        return await self._cove.create(env=env, **options.create_arguments())

    async def _found(self, session_id: str) -> AsyncSession | None:
        try:
            session = await self._cove.connect(session_id)
            if session.info.status == "stopped":
                await session.start()
        except (NotFound, SessionExpired, SandboxLost):
            return None
        return session if session.info.status in ("running", "paused") else None

    def _wrapped(self, inner: CoveSandboxSession) -> Any:
        return self._wrap_session(inner, instrumentation=self._instrumentation)


def _refuse_mounts(manifest: Manifest) -> None:
    """A sandbox of Cove may not mount anything, so a manifest that needs it fails before a session is made."""
    for _, path in manifest.mount_targets():
        raise MountConfigError(
            message="a sandbox of Cove cannot mount: copy the files into the manifest, or use a workspace of Cove",
            context={"path": str(path)},
        )

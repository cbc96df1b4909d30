"""One sandbox of the OpenAI Agents SDK: a session of Cove behind the SDK's own names and exceptions.

Commands are programs beside the shells (`session.run`), because the SDK starts each one on its own. It serves the user of the session
alone; with `user="root"`, root can become others. It refuses mounts (see `client`).
"""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agents.sandbox.errors import (
    ExecNonZeroError,
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.workspace_paths import sandbox_path_str

from ..._errors import CoveError, FileNotFound, NotFound, SessionExpired
from .archive import collected, pieces_of
from .pty import PtyProcesses

if TYPE_CHECKING:
    from pathlib import Path

    from agents.sandbox.session.pty_types import PtyExecUpdate
    from agents.sandbox.session.runtime_helpers import RuntimeHelperScript

    from ..._async._session import AsyncSession
    from .options import CoveSandboxSessionState

MAX_OUTPUT_BYTES = 16 << 20
"""How much of a command's output comes back: what the daemon allows by default. The middle of more is left out."""

_SETUP_SECONDS = 30.0
"""The limit of the commands that this file runs itself."""


class CoveSandboxSession(BaseSandboxSession):  # type: ignore[misc]
    """A `BaseSandboxSession` over one session of Cove, which is `cove_session`."""

    state: CoveSandboxSessionState

    def __init__(self, state: CoveSandboxSessionState, session: AsyncSession) -> None:
        self.state = state
        self.cove_session = session
        self._pty = PtyProcesses(session)
        self._has_root = False

    # Its life

    async def _prepare_backend_workspace(self) -> None:
        root = self._workspace_root_path().as_posix()
        try:
            made = await self.cove_session.run(["mkdir", "-p", "--", root], cwd="/", timeout=_SETUP_SECONDS)
        except CoveError as error:
            raise WorkspaceStartError(path=self._workspace_root_path(), cause=error) from error
        if not made.ok:
            raise WorkspaceStartError(
                path=self._workspace_root_path(), context={"reason": "workspace_root_nonzero_exit", "stderr": made.stderr}
            )
        self._has_root = True

    async def running(self) -> bool:
        if not self._has_root:
            return False  # the SDK starts what does not run
        try:
            return (await self.cove_session.refresh()).status in ("running", "paused")
        except CoveError:
            return False

    async def _shutdown_backend(self) -> None:
        match self.state.options.on_exit:
            case "destroy":
                await self.destroy()
            case "stop":
                await self.cove_session.stop()

    async def destroy(self) -> None:
        """Destroys the session of Cove, if there still is one."""
        try:
            await self.cove_session.destroy()
        except (NotFound, SessionExpired):
            pass

    # Commands

    def _prepare_exec_command(self, *command: str | Path, shell: bool | list[str], user: str | User | None) -> list[str]:
        words: list[str] = super()._prepare_exec_command(*command, shell=shell, user=None)
        name = user.name if isinstance(user, User) else user
        if name is None:
            return words
        if self.state.options.user != "root":
            raise ValueError(
                f'commands cannot run as {name!r}: ask for CoveSandboxClientOptions(user="root"), which can become others'
            )
        return words if name == "root" else ["runuser", "-u", name, "--", *words]

    async def _environment(self) -> dict[str, str]:
        return {**self.state.options.env, **await self.state.manifest.environment.resolve()}

    @property
    def _directory(self) -> str:
        return self._workspace_root_path().as_posix() if self._has_root or self.state.workspace_root_ready else "/"

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        words = [str(word) for word in command]
        try:
            done = await self.cove_session.run(
                words, timeout=timeout, cwd=self._directory, env=await self._environment(), max_output_bytes=MAX_OUTPUT_BYTES
            )
        except CoveError as error:
            raise ExecTransportError(command=words, context={"provider_error": str(error)}, cause=error) from error
        if done.kind == "timed_out":
            raise ExecTimeoutError(command=words, timeout_s=timeout)
        if done.kind == "lost":
            raise ExecTransportError(command=words, context={"provider_error": done.reason or "the command was lost"})
        stderr = done.stderr_raw or (done.reason or "").encode()
        if done.network_denied:
            stderr += f"[the network policy denied {', '.join(done.network_denied)}]\n".encode()
        return ExecResult(stdout=done.stdout_raw, stderr=stderr, exit_code=done.exit_code)

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        words = self._prepare_exec_command(*command, shell=shell, user=user)
        try:
            return await self._pty.start(
                words,
                timeout=timeout,
                tty=tty,
                env=await self._environment(),
                cwd=self._directory,
                yield_seconds=yield_time_s,
                max_tokens=max_output_tokens,
            )
        except CoveError as error:
            raise ExecTransportError(command=words, context={"provider_error": str(error)}, cause=error) from error

    async def pty_write_stdin(
        self, *, session_id: int, chars: str, yield_time_s: float | None = None, max_output_tokens: int | None = None
    ) -> PtyExecUpdate:
        entry = self._resolve_pty_session_entry(pty_processes=self._pty.entries, session_id=session_id)
        try:
            return await self._pty.write(session_id, entry, chars, yield_seconds=yield_time_s, max_tokens=max_output_tokens)
        except CoveError as error:
            raise ExecTransportError(command=entry.words, context={"provider_error": str(error)}, cause=error) from error

    async def pty_terminate_all(self) -> None:
        await self._pty.end_all()

    # Files

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)  # type: ignore[no-any-return]

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object | None:
        return self.state.sandbox_id

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        inside = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self.cove_session.files.read(sandbox_path_str(inside)))
        except FileNotFound as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except CoveError as error:
            raise WorkspaceArchiveReadError(path=path, cause=error) from error

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        inside = await self._validate_path_access(path)
        data = b""
        try:
            async for piece in self.cove_session.files.read_stream(sandbox_path_str(inside)):
                data += piece
                if len(data) >= max_bytes:
                    break
        except FileNotFound as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except CoveError as error:
            raise WorkspaceArchiveReadError(path=path, cause=error) from error
        return data[:max_bytes]

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        inside = await self._validate_path_access(path, for_write=True)
        try:
            await self.cove_session.files.write(sandbox_path_str(inside), pieces_of(data, path))
        except CoveError as error:
            raise WorkspaceArchiveWriteError(path=inside, cause=error) from error

    async def mkdir(self, path: Path | str, *, parents: bool = False, user: str | User | None = None) -> None:
        # The root is made before the program that checks paths is there, and whoever makes it is not asked again.
        if user is None and self.normalize_path(path, for_write=True) == self._workspace_root_path():
            await self._prepare_backend_workspace()
            return
        await super().mkdir(path, parents=parents, user=user)

    # The workspace as a whole

    async def persist_workspace(self) -> io.IOBase:
        """The workspace as a tar, without what the manifest calls ephemeral. The file is removed when it is closed."""
        root = self._workspace_root_path()
        skipped = {path.as_posix() for path in self._persist_workspace_skip_relpaths()}
        try:
            return await collected(self.cove_session.files.read_archive(root.as_posix()), skipped)  # type: ignore[return-value]
        except (CoveError, tarfile.TarError) as error:
            raise WorkspaceArchiveReadError(path=root, cause=error) from error

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpacks a tar into the workspace. The daemon writes nothing outside of it, whatever the tar says."""
        root = self._workspace_root_path()
        try:
            await self.cove_session.files.write_archive(pieces_of(data, root), root.as_posix())
        except CoveError as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            link = urlsplit((await self.cove_session.ports.url(port)).url)
        except CoveError as error:
            raise ExposedPortUnavailableError(
                port=port, exposed_ports=self.state.exposed_ports, reason="backend_unavailable", cause=error
            ) from error
        tls = link.scheme == "https"
        return ExposedPortEndpoint(host=link.hostname or "", port=link.port or (443 if tls else 80), tls=tls, query=link.query)

    async def _exec_checked_nonzero(self, *command: str | Path) -> ExecResult:
        """Runs a command that must succeed. Accounts need root, which this says instead of useradd's own words."""
        result = await self.exec(*command, shell=False)
        if not result.ok():
            if command[0] in ("groupadd", "useradd", "usermod") and self.state.options.user != "root":
                raise ValueError('users and groups of a manifest need CoveSandboxClientOptions(user="root", writable_root=True)')
            raise ExecNonZeroError(result, command=command)
        return result

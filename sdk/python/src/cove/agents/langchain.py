"""A sandbox for LangChain's deepagents: `create_deep_agent(backend=CoveSandbox(session), …)`."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from .._errors import ApiError, CoveError, FileNotFound, Forbidden, MissingExtra
from .._settings import DEFAULT

try:
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox
except ImportError as error:
    raise MissingExtra("this needs the package deepagents", hint="pip install 'cove-sandbox[langchain]'") from error

if TYPE_CHECKING:
    from .._sync._session import Session

_MAX_OUTPUT_BYTES = 1 << 20


class CoveSandbox(BaseSandbox):  # type: ignore[misc]
    """A `SandboxBackendProtocol` over one session. The agent's commands run in its persistent shell."""

    def __init__(self, session: Session, *, timeout: float | None = None) -> None:
        """`timeout` is for commands for which the agent sets none: seconds, or None for the daemon's own limit."""
        self._session = session
        self._timeout = timeout

    @property
    def id(self) -> str:
        return self._session.id

    def execute(self, command: str, *, timeout: int | None = None) -> Any:
        limit: Any = timeout if timeout is not None else self._timeout
        # 0 asks for no limit, which Cove calls None.
        limit = DEFAULT if limit is None else None if limit == 0 else limit
        result = self._session.exec(command, timeout=limit, max_output_bytes=_MAX_OUTPUT_BYTES)
        output = result.output
        if result.kind in ("never_ran", "lost"):
            output += f"[{result.reason or result.kind}]"
        if result.network_denied:
            output += f"[the network policy denied {', '.join(result.network_denied)}]"
        return ExecuteResponse(output=output, exit_code=result.exit_code, truncated=result.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> Any:
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def _upload(self, path: str, content: bytes) -> str | None:
        if not posixpath.isabs(path):
            return "invalid_path"
        try:
            self._session.files.write(path, content)
        except ApiError as error:
            return _reason(error)
        return None

    def download_files(self, paths: list[str]) -> Any:
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> Any:
        if not posixpath.isabs(path):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            if self._session.files.stat(path).is_dir:
                return FileDownloadResponse(path=path, error="is_directory")
            return FileDownloadResponse(path=path, content=self._session.files.read(path))
        except ApiError as error:
            return FileDownloadResponse(path=path, error=_reason(error))


def _reason(error: CoveError) -> str:
    if isinstance(error, FileNotFound):
        return "file_not_found"
    if isinstance(error, Forbidden):
        return "permission_denied"
    return "is_directory" if "directory" in error.message else error.message

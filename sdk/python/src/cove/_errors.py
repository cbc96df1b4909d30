"""The exceptions of this package.

Each error code of the daemon has a class, so that a program can tell them apart with `except`. The text of an exception says what
happened and, after it, what to do. Nothing here imports anything heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._models import ExecResult, RunResult

# How much of a failed command's output its exception shows.
_SHOWN_OUTPUT_CHARS = 2000


class CoveError(Exception):
    """The base of all exceptions of this package."""

    hint: str = ""
    """What to do about it, in a sentence."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        if hint is not None:
            self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class DaemonNotFound(CoveError):
    """No address was named, and no daemon runs on the data directory of this user."""

    hint = "Start one with `cove serve`, set COVE_URL and COVE_API_KEY, or use Cove.embedded()"


class DaemonUnreachable(CoveError):
    """The daemon does not answer, or the connection was lost and what was asked for cannot be asked twice."""

    hint = "Check that the daemon runs and that COVE_URL is its address"


class BinaryNotFound(CoveError):
    """The program `cove`, from which a private daemon is started, was not found."""

    hint = "Set COVE_BIN to its path, install a wheel that carries it, or put it on the PATH"


class EmbeddedFailed(CoveError):
    """The private daemon of `Cove.embedded()` did not start."""

    hint = "`cove doctor` says what this machine lacks"


class MissingExtra(CoveError, ImportError):
    """A package that an optional part needs is not installed."""


class StreamLost(CoveError):
    """The stream of a command was cut, and the daemon did not come back in time. The command may still run."""

    hint = "Continue with session.attach(exec_id, offset) once the daemon answers again"

    def __init__(self, message: str, *, exec_id: str, offset: int) -> None:
        super().__init__(message)
        self.exec_id = exec_id
        self.offset = offset


class ProtocolError(CoveError):
    """The answer is not one of a Cove daemon."""

    hint = "Check that COVE_URL is the address of a Cove daemon, and that its version fits this package"


class WaitTimedOut(CoveError, TimeoutError):
    """Something that was waited for did not happen in time. Nothing was stopped."""


class CommandFailed(CoveError):
    """A command that was run with `check=True` did not succeed."""

    def __init__(self, result: ExecResult | RunResult, command: str) -> None:
        self.result = result
        self.command = command
        self.exit_code: int = result.exit_code
        self.output: str = result.output
        self.cwd: str | None = getattr(result, "cwd", None)
        super().__init__(f"{_shortened(command)} {_ending(result)}", hint="")

    def __str__(self) -> str:
        if not self.output:
            return self.message
        tail = self.output[-_SHOWN_OUTPUT_CHARS:]
        dots = "…" if len(tail) < len(self.output) else ""
        return f"{self.message}\n{dots}{tail.rstrip()}"


class CommandTimedOut(CommandFailed, TimeoutError):
    """A command that was run with `check=True` took longer than its `timeout`. It was stopped; the shell goes on."""


def _shortened(command: str) -> str:
    line = command.strip().split("\n", 1)[0]
    return repr(line if len(line) <= 120 else line[:119] + "…")


def _ending(result: ExecResult | RunResult) -> str:
    notes = []
    if result.oom_killed:
        notes.append("a process was killed because memory ran out")
    if result.network_denied:
        notes.append("the network policy denied " + ", ".join(result.network_denied))
    tail = f" ({'; '.join(notes)})" if notes else ""
    if result.kind == "timed_out":
        return f"took too long and was stopped{tail}"
    if result.kind in ("never_ran", "lost"):
        what = "never ran" if result.kind == "never_ran" else "was lost"
        return f"{what}: {result.reason or 'the daemon does not say why'}{tail}"
    if result.signal is not None:
        return f"was killed by signal {result.signal}{tail}"
    return f"exited with {result.exit_code}{tail}"


class ApiError(CoveError):
    """The daemon refused a request. `code` is stable; the text is for people."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int = 0,
        details: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.details: Mapping[str, Any] = details or {}
        self.request_id = request_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        text = f"{self.message.rstrip('.')} ({self.code})"
        return f"{text}. {self.hint}" if self.hint else text


class InvalidRequest(ApiError):
    """Something in the request is malformed or out of bounds, or this host cannot do it. The text says what."""


class InvalidImage(ApiError):
    """There is no such image."""

    hint = "cove.images.list() has the names; cove.images.pull() gets one from a registry"


class Unauthorized(ApiError):
    """The API key is missing, wrong or removed."""

    hint = "Set COVE_API_KEY to a key of this daemon; its first key is in the file api-key of its data directory"


class Forbidden(ApiError):
    """The key may not do this."""

    hint = "Use a key that may, or ask the daemon's operator"


class NotFound(ApiError):
    """There is no such thing."""


class SessionNotFound(NotFound):
    """There is no such session, it was destroyed, or it belongs to another key."""

    hint = "cove.list() has the sessions of this key; create a new one"


class ShellNotFound(NotFound):
    """There is no such shell in the session."""

    hint = "session.shells() has the names; session.open_shell() opens one"


class ExecNotFound(NotFound):
    """There is no such command, or it is no longer remembered."""

    hint = "session.execs() has the recent commands"


class FileNotFound(NotFound):
    """There is no such file or directory in the sandbox."""

    hint = "Relative paths begin at /workspace; session.files.list() shows what is there"


class WorkspaceNotFound(NotFound):
    """There is no such workspace."""

    hint = "cove.workspaces.list() has the names"


class Conflict(ApiError):
    """The request does not fit the state of what it is about. The text says why."""


class ShellBusy(Conflict):
    """Another command runs in that shell, and the time to wait for it is over. The command did not run."""

    hint = "Wait for the running command, raise queue_timeout, or use another shell"

    @property
    def running_exec_id(self) -> str | None:
        """The command that runs there."""
        found = self.details.get("running_exec_id")
        return str(found) if found else None


class SessionExpired(ApiError):
    """The session has expired."""

    hint = "Create a new one; ttl_seconds and idle_seconds say how long a session lives without use"


class TooLarge(ApiError):
    """The request has too many bytes."""

    hint = "Write large content with session.files.write(), or send it to a program with process.write()"


class LimitReached(ApiError):
    """There is no room: sessions, memory, disk or connections. `retry_after` has the seconds to wait, where waiting helps."""

    hint = "Try again later, or destroy what is no longer needed"


class InternalError(ApiError):
    """The daemon's host failed."""

    hint = "The daemon's log has the cause, under the request_id of this exception"


class SandboxLost(ApiError):
    """The sandbox ended by itself."""

    hint = "Create a new session; session.refresh() may say why this one crashed"


class PortClosed(ApiError):
    """Nothing listens on that port of the sandbox."""

    hint = "Start the server, and wait for it with session.ports.wait(port)"


BY_CODE: dict[str, type[ApiError]] = {
    "INVALID_REQUEST": InvalidRequest,
    "INVALID_IMAGE": InvalidImage,
    "UNAUTHORIZED": Unauthorized,
    "FORBIDDEN": Forbidden,
    "NOT_FOUND": NotFound,
    "SESSION_NOT_FOUND": SessionNotFound,
    "SHELL_NOT_FOUND": ShellNotFound,
    "EXEC_NOT_FOUND": ExecNotFound,
    "FILE_NOT_FOUND": FileNotFound,
    "WORKSPACE_NOT_FOUND": WorkspaceNotFound,
    "METHOD_NOT_ALLOWED": InvalidRequest,
    "CONFLICT": Conflict,
    "SHELL_BUSY": ShellBusy,
    "SESSION_EXPIRED": SessionExpired,
    "TOO_LARGE": TooLarge,
    "LIMIT_REACHED": LimitReached,
    "INTERNAL_ERROR": InternalError,
    "SANDBOX_LOST": SandboxLost,
    "PORT_CLOSED": PortClosed,
}


def api_error(body: Any, *, status: int, headers: Mapping[str, str] | None = None) -> ApiError | ProtocolError:
    """The exception for an error body: that of an answer, or of an event of a stream."""
    headers = headers or {}
    if not isinstance(body, dict) or not isinstance(body.get("error_code"), str):
        return ProtocolError(f"the answer has status {status} and no error that can be read")
    code = body["error_code"]
    details = body.get("details")
    return BY_CODE.get(code, ApiError)(
        str(body.get("message") or body.get("error") or code),
        code=code,
        status=status,
        details=details if isinstance(details, dict) else None,
        request_id=headers.get("x-request-id"),
        retry_after=_seconds(headers.get("retry-after")),
    )


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None

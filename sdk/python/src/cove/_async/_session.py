"""A session: one sandbox and its shells."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from .._errors import LimitReached, NotFound, SessionExpired
from .._http import given, query, segment
from .._models import (
    ExecInfo,
    ExecResult,
    OutputView,
    RunResult,
    SessionInfo,
    ShellInfo,
    Snapshot,
    Stats,
    Streams,
    ToolReply,
    read,
    read_list,
)
from .._settings import CLEANUP_SECONDS, DEFAULT, Timeout, milliseconds
from . import _exec, _io
from ._files import AsyncFiles
from ._parts import AsyncNetwork, AsyncPorts, AsyncShell
from ._process import AsyncProcess, close_own_shell, is_own_shell, own_shell
from ._stream import AsyncExecStream, OnCancel
from ._terminal import AsyncTerminal
from ._tools import AsyncTools, call_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from ._transport import AsyncTransport


async def destroy(transport: AsyncTransport, session: str) -> None:
    """Destroys a session. Fine if it is gone already."""
    try:
        await transport.json("DELETE", f"/v1/sessions/{segment(session)}", repeat="always")
    except (NotFound, SessionExpired):
        pass


class AsyncSession:
    """One sandbox and its shells. As a context manager it destroys the session at its end, unless `connect` found it."""

    def __init__(self, transport: AsyncTransport, info: SessionInfo, *, is_ours: bool) -> None:
        self._transport = transport
        self._is_ours = is_ours
        self.id = info.id
        self.info = info
        """The session as the daemon last described it; `refresh` asks again."""
        self.files = AsyncFiles(transport, info.id)
        self.network = AsyncNetwork(transport, info.id)
        self.ports = AsyncPorts(transport, info.id)
        # Sessions that the tool `restore` made from this one. They end with it.
        self._restored: list[str] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.image} {self.info.status}>"

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._is_ours:
            return
        try:
            if error is None:
                await self.destroy()
                return
        except _io.Cancelled:
            await self._clean_up()
            raise
        # What went wrong is more important than what goes wrong now, and a cancelled task still cleans up.
        await self._clean_up()

    async def _clean_up(self) -> None:
        await self._transport.finish(self._destroy_all, CLEANUP_SECONDS)

    async def _destroy_all(self, transport: AsyncTransport) -> None:
        for session in (*self._restored, self.id):
            await destroy(transport, session)

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        return await self._transport.json(method, f"/v1/sessions/{segment(self.id)}{path}", **options)

    def _described(self, answer: Any) -> SessionInfo:
        self.info = read(SessionInfo, answer)
        return self.info

    # Commands

    async def exec(
        self,
        cmd: str,
        *,
        check: bool = False,
        timeout: Timeout = DEFAULT,
        queue_timeout: float | None = None,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        streams: Streams = "merged",
        raw_output: bool = False,
        shell: str | None = None,
        exec_id: str | None = None,
        max_output_bytes: int | None = None,
        view: OutputView = "full",
        max_tokens: int | None = None,
        on_cancel: OnCancel = "kill",
    ) -> ExecResult:
        """Runs bash source in the session's shell, which keeps directory, variables and functions, and returns how it ended.

        A command that fails or takes too long is a result, not an exception, unless `check` is set. `timeout` has seconds (None: no
        limit); it counts from when the command starts. `queue_timeout` has the seconds that it may wait behind another command.
        `env` and `cwd` are for this command only. If the caller is cancelled (Ctrl-C, or the cancellation of the task), the command
        is stopped, or with `on_cancel="detach"` keeps running.

        With `view="compact"`, `output` is text for a model: failures first, successes as counts, at most `max_tokens` (128 or more).
        The result's `compact` says what was left out. If the connection was lost meanwhile, `compact` is None, and `output` is what
        was printed.
        """
        body = self._exec_body(cmd, timeout, queue_timeout, stdin, env, cwd, streams, raw_output, shell, exec_id)
        body |= given(max_output_bytes=max_output_bytes, view=None if view == "full" else view, max_tokens=max_tokens)
        result = await _exec.reply(self._transport, self.id, "exec", body, on_cancel)
        return result.check(cmd) if check else result

    def stream(
        self,
        cmd: str,
        *,
        check: bool = False,
        timeout: Timeout = DEFAULT,
        queue_timeout: float | None = None,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        streams: Streams = "merged",
        shell: str | None = None,
        exec_id: str | None = None,
        on_cancel: OnCancel = "kill",
    ) -> AsyncExecStream:
        """Runs bash source and returns an iterator of its output as it is printed.

        If the connection is lost, or the daemon is restarted, the stream continues where it was: every byte comes once. The command
        starts with the first step of the iterator. Leaving the loop early lets the command run on; `close` says so.
        """
        body = self._exec_body(cmd, timeout, queue_timeout, stdin, env, cwd, streams, False, shell, exec_id)
        path = f"/v1/sessions/{segment(self.id)}/exec/stream"
        return AsyncExecStream(
            self._transport,
            self.id,
            body["exec_id"],
            request=(path, body),
            command=cmd,
            check=check,
            on_cancel=on_cancel,
        )

    def _exec_body(
        self,
        cmd: str,
        timeout: Timeout,
        queue_timeout: float | None,
        stdin: str | bytes | None,
        env: Mapping[str, str] | None,
        cwd: str | None,
        streams: Streams,
        raw_output: bool,
        shell: str | None,
        exec_id: str | None,
    ) -> dict[str, Any]:
        if not isinstance(cmd, str):
            raise TypeError(f"a command is a str of bash source, not {type(cmd).__name__}; run() takes a list")
        body = _exec.request_fields(timeout=timeout, stdin=stdin, env=env, cwd=cwd, exec_id=exec_id)
        body["cmd"] = cmd
        if queue_timeout is not None:
            body["queue_timeout_ms"] = 0 if queue_timeout == 0 else milliseconds(queue_timeout)
        return {
            **body,
            **({} if streams == "merged" else {"streams": streams}),
            **({"raw_output": True} if raw_output else {}),
            **({} if shell is None else {"shell": shell}),
        }

    async def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = False,
        timeout: Timeout = DEFAULT,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        exec_id: str | None = None,
        max_output_bytes: int | None = None,
        on_cancel: OnCancel = "kill",
    ) -> RunResult:
        """Runs a program beside the shells, without their state. Any number can run at once."""
        body = _exec.request_fields(timeout=timeout, stdin=stdin, env=env, cwd=cwd, exec_id=exec_id, max_output_bytes=max_output_bytes)
        body["argv"] = _argv(argv)
        result = await _exec.reply(self._transport, self.id, "run", body, on_cancel)
        return result.check(" ".join(argv)) if check else result

    def run_stream(
        self,
        argv: Sequence[str],
        *,
        check: bool = False,
        timeout: Timeout = DEFAULT,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        exec_id: str | None = None,
        on_cancel: OnCancel = "kill",
    ) -> AsyncExecStream:
        """Runs a program beside the shells and returns an iterator of its output, as `stream` does."""
        body = _exec.request_fields(timeout=timeout, stdin=stdin, env=env, cwd=cwd, exec_id=exec_id)
        body["argv"] = _argv(argv)
        return AsyncExecStream(
            self._transport,
            self.id,
            body["exec_id"],
            request=(f"/v1/sessions/{segment(self.id)}/run/stream", body),
            is_run=True,
            command=" ".join(argv),
            check=check,
            on_cancel=on_cancel,
        )

    async def spawn(
        self,
        cmd: str | Sequence[str],
        *,
        timeout: Timeout = DEFAULT,
        stdin: str | bytes | None = None,
        stdin_open: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        shell: str | None = None,
        exec_id: str | None = None,
    ) -> AsyncProcess:
        """Starts something and does not wait for it: a server, a long build.

        A str is bash source. It runs in a new shell that begins as a copy of `main`, so that `main` stays free; with `shell`, in that
        shell, which takes no other command meanwhile. A list is a program beside the shells, and `stdin_open` leaves its standard
        input open for `write`. There is no time limit unless `timeout` sets one. The session does not expire before it has ended.
        """
        body = _exec.request_fields(timeout=timeout, stdin=stdin, env=env, cwd=cwd, exec_id=exec_id)
        if not isinstance(cmd, str):
            if shell is not None:
                raise ValueError("a program beside the shells has no shell: give `cmd` as a str, or leave out `shell`")
            body["argv"] = _argv(cmd)
            if stdin_open:
                body["stdin_open"] = True
            await _exec.detach(self._transport, self.id, "run", body)
            return AsyncProcess(self._transport, self.id, body["exec_id"], command=" ".join(cmd))
        if stdin_open:
            raise ValueError("stdin_open is for programs: give `cmd` as a list")
        is_own = shell is None
        if shell is None:
            shell = await self._open_spawn_shell(body["exec_id"])
        body |= {"cmd": cmd, "shell": shell}
        process = AsyncProcess(self._transport, self.id, body["exec_id"], command=cmd)
        try:
            await _exec.detach(self._transport, self.id, "exec", body)
        except BaseException:
            if is_own:
                await self._transport.finish(lambda transport: close_own_shell(transport, self.id, process.exec_id), CLEANUP_SECONDS)
            raise
        return process

    async def _open_spawn_shell(self, exec_id: str) -> str:
        body = {"name": own_shell(exec_id), "from": "main"}
        try:
            answer = await self._json("POST", "/shells", body=body)
        except LimitReached:
            # Shells of commands that have ended and that nobody waited for.
            for info in await self.shells():
                if is_own_shell(info.name) and info.state == "idle" and not info.queued:
                    await self._json("DELETE", f"/shells/{segment(info.name)}")
            answer = await self._json("POST", "/shells", body=body)
        return str(answer["name"])

    def attach(self, exec_id: str, offset: int = 0) -> AsyncExecStream:
        """Follows a command that was started before, from a byte of its output on."""
        return AsyncExecStream(
            self._transport,
            self.id,
            exec_id,
            offset=offset,
            on_cancel="detach",
            was_sent=True,
            command=exec_id,
        )

    def process(self, exec_id: str) -> AsyncProcess:
        """A command that was started before, as `spawn` returns it."""
        return AsyncProcess(self._transport, self.id, exec_id, command=exec_id)

    async def execs(self, *, limit: int | None = None, after: str | None = None) -> list[ExecInfo]:
        """The recent commands and runs, the oldest first: at most `limit` (1000), after the one with the id `after`."""
        return read_list(ExecInfo, await self._json("GET", f"/execs{query({'limit': limit, 'after': after})}"))

    async def input(self, data: str | bytes, *, shell: str | None = None) -> None:
        """Types at the terminal of a shell in which a command runs with `streams="tty"`."""
        text = {"data": data} if isinstance(data, str) else {"data_base64": base64.b64encode(data).decode()}
        await self._json("POST", "/input", body={**text, **given(shell=shell)})

    async def signal(self, signal: str | int, *, shell: str | None = None, exec_id: str | None = None) -> None:
        """Sends a signal to the command that runs in a shell (`main`), or to the one with this id."""
        await self._json("POST", "/signal", body=given(signal=signal, shell=shell, exec_id=exec_id))

    async def resize(self, cols: int, rows: int, *, shell: str | None = None) -> None:
        """Changes the size of a shell's terminal."""
        await self._json("POST", "/resize", body=given(cols=cols, rows=rows, shell=shell))

    # Tools for models

    def tools(self, *, only: Iterable[str] | None = None) -> AsyncTools:
        """The daemon's tools for a model: all of them, or only these names."""
        return AsyncTools(self, only=only)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolReply:
        """Calls one of the daemon's tools. Wrong arguments are an `InvalidRequest`; what the sandbox refuses is a reply with
        `is_error`.

        If the caller is cancelled, the command of `bash` is stopped. `restore` answers with the id of a new session, which is the
        caller's to use and to destroy; `tools` does both.
        """
        return await call_tool(self._transport, self.id, name, dict(arguments or {}))

    async def _restored_as(self, session: str) -> AsyncSession:
        """The session that the tool `restore` made. It is destroyed with this one."""
        self._restored.append(session)
        answer = await self._transport.json("GET", f"/v1/sessions/{segment(session)}")
        return AsyncSession(self._transport, read(SessionInfo, answer), is_ours=False)

    # Shells

    async def shells(self) -> list[ShellInfo]:
        """The shells of the session."""
        return read_list(ShellInfo, await self._json("GET", "/shells"))

    def shell(self, name: str) -> AsyncShell:
        """A shell that exists."""
        return AsyncShell(self, name)

    async def open_shell(
        self,
        name: str | None = None,
        *,
        copy_of: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        cols: int | None = None,
        rows: int | None = None,
    ) -> AsyncShell:
        """Opens another shell; with `copy_of`, in the state of that one."""
        body = given(name=name, cwd=cwd, env=dict(env) if env else None, cols=cols, rows=rows)
        if copy_of is not None:
            body["from"] = copy_of
        return AsyncShell(self, (await self._json("POST", "/shells", body=body))["name"])

    async def terminal(self, shell: str | None = None, *, cols: int = 80, rows: int = 24) -> AsyncTerminal:
        """Opens a terminal, as for a person: a new one, a copy of `main`, or that of a shell. Needs `cove-sandbox[terminal]`."""
        return await AsyncTerminal.open(self._transport, self.id, shell, cols, rows)

    # The life of the session

    async def refresh(self) -> SessionInfo:
        """Asks the daemon how the session is. Does not count as use."""
        return self._described(await self._json("GET", ""))

    async def update(
        self,
        *,
        ttl_seconds: int | None = None,
        idle_seconds: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> SessionInfo:
        """Changes how long the session lives without use, and its labels. `labels` replaces all earlier ones."""
        body = given(
            ttl_seconds=ttl_seconds,
            idle_seconds=idle_seconds,
            labels=None if labels is None else dict(labels),
        )
        return self._described(await self._json("PATCH", "", body=body, repeat="always"))

    async def pause(self) -> SessionInfo:
        """Stops all processes until the next request that needs them."""
        return self._described(await self._json("POST", "/pause", repeat="always"))

    async def resume(self) -> SessionInfo:
        """Lets the processes of a paused session go on."""
        return self._described(await self._json("POST", "/resume", repeat="always"))

    async def stop(self) -> SessionInfo:
        """Ends all processes and keeps the disk and the state of the shells."""
        return self._described(await self._json("POST", "/stop", repeat="always"))

    async def start(self) -> SessionInfo:
        """Brings a stopped session back."""
        return self._described(await self._json("POST", "/start", repeat="always"))

    async def snapshot(self, name: str | None = None) -> Snapshot:
        """Keeps what is on the disk and in the shells now. `cove.create(snapshot=…)` starts from it."""
        return read(Snapshot, await self._json("POST", "/snapshots", body=given(name=name)))

    async def fork(self, count: int = 1, *, workspace: str | None = None) -> list[AsyncSession]:
        """Makes copies of the session, 1 to 100: all of them, or none."""
        answer = await self._json("POST", "/fork", body=given(count=count, workspace_id=workspace))
        return [AsyncSession(self._transport, read(SessionInfo, one), is_ours=True) for one in answer["sessions"]]

    async def stats(self) -> Stats:
        """What the session uses now. Does not count as use."""
        return read(Stats, await self._json("GET", "/stats"))

    async def destroy(self) -> None:
        """Destroys the session, and those that its tools made by `restore`. Nothing is left, except its workspace and its snapshots.

        Fine if it is gone already.
        """
        await self._destroy_all(self._transport)


def _argv(argv: Sequence[str]) -> list[str]:
    if isinstance(argv, (str, bytes)) or not all(isinstance(word, str) for word in argv):
        raise TypeError("a program is a list of str, such as ['ls', '-l']; exec() takes bash source")
    return list(argv)


class AsyncSessionContext:
    """What `cove.session(…)` returns: a session that is created when the `with` block begins and destroyed when it ends."""

    def __init__(self, create: Callable[[], Awaitable[AsyncSession]]) -> None:
        self._create = create
        self._session: AsyncSession | None = None

    async def __aenter__(self) -> AsyncSession:
        self._session = session = await self._create()
        return session

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__(kind, error, trace)

"""Programs of the OpenAI Agents SDK that go on between calls: `exec_command` starts one, `write_stdin` talks to it.

Without a terminal a program runs beside the shells and takes no input, as the SDK has it. With one it runs in a shell of its own, at
whose terminal input is typed. One task for each program reads its output into a bounded buffer. If nobody takes the output, the task
waits, and the daemon keeps what the program prints, within its own bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from typing import TYPE_CHECKING

from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
    truncate_text_by_tokens,
)

from ..._errors import Conflict, CoveError
from ..._settings import CLEANUP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._async._parts import AsyncShell
    from ..._async._process import AsyncProcess
    from ..._async._session import AsyncSession
    from ..._async._stream import AsyncExecStream

START_YIELD_SECONDS = 10.0
WRITE_YIELD_SECONDS = 0.25
"""How long output is waited for if the SDK does not say."""

BUFFER_BYTES = 1 << 20
"""How much output waits for whoever asks for it. The rest stays with the daemon."""


class PtyProcess:
    """A program that was started: in a shell of its own, or beside the shells."""

    def __init__(
        self, words: Sequence[str], stream: AsyncExecStream, *, shell: AsyncShell | None = None, process: AsyncProcess | None = None
    ) -> None:
        self.words = words
        self.shell = shell
        """The shell with its terminal, if it has one."""
        self.last_used = time.monotonic()
        self._process = process
        self._stream = stream
        self._output = bytearray()
        self._is_full = asyncio.Event()
        self._has_room = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> int:
        """Reads the output to its end, and returns the exit code."""
        async for chunk in self._stream:
            if chunk.missing:
                self._output += f"\n[{chunk.missing} bytes were not kept]\n".encode()
            self._output += chunk.data
            if len(self._output) >= BUFFER_BYTES:
                self._has_room.clear()
                self._is_full.set()
                await self._has_room.wait()
        assert self._stream.result is not None
        return self._stream.result.exit_code

    async def wait(self, seconds: float) -> None:
        """Waits until the program has ended, its output fills the buffer, or the time is over."""
        full = asyncio.ensure_future(self._is_full.wait())
        try:
            await asyncio.wait([self._reader, full], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            full.cancel()

    def taken(self) -> bytes:
        """The output that nobody has taken yet. A piece of output ends between characters, so this does, too."""
        output = bytes(self._output)
        self._output.clear()
        self._is_full.clear()
        self._has_room.set()
        return output

    @property
    def has_ended(self) -> bool:
        """Whether the program has ended and all of its output was taken."""
        return self._reader.done() and not self._output

    def exit_code(self) -> int:
        """The exit code of a program that has ended. Raises what went wrong if its output could not be followed."""
        return self._reader.result()

    async def end(self) -> None:
        """Ends the program, if it has not ended, with its shell and its task. What fails here was to be ended anyway."""
        self._reader.cancel()
        await asyncio.wait([self._reader], timeout=CLEANUP_SECONDS)
        with contextlib.suppress(CoveError):
            if self.shell is not None:
                await self.shell.close()
            elif self._process is not None and self._stream.result is None:
                await self._process.kill()


class PtyProcesses:
    """The programs of one session that have not ended, by the number that the SDK knows them by."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self.entries: dict[int, PtyProcess] = {}

    async def start(
        self,
        words: Sequence[str],
        *,
        timeout: float | None,
        tty: bool,
        env: dict[str, str],
        cwd: str,
        yield_seconds: float | None,
        max_tokens: int | None,
    ) -> PtyExecUpdate:
        """Starts a program, and returns what it printed until it ended or the time was over."""
        await self._make_room()
        if tty:
            shell = await self._session.open_shell(cwd=cwd, env=env)
            stream = shell.stream(shlex.join(words), streams="tty", timeout=timeout, on_cancel="detach")
            entry = PtyProcess(words, stream, shell=shell)
        else:
            # Both outputs in one pipe keep their order.
            merged = ["sh", "-c", 'exec "$@" 2>&1', "sh", *words]
            process = await self._session.spawn(merged, timeout=timeout, env=env, cwd=cwd)
            entry = PtyProcess(words, process.logs(follow=True), process=process)
        number = allocate_pty_process_id(set(self.entries))
        self.entries[number] = entry
        seconds = START_YIELD_SECONDS if yield_seconds is None else yield_seconds
        return await self._update(number, entry, clamp_pty_yield_time_ms(round(seconds * 1000)), max_tokens)

    async def write(
        self, number: int, entry: PtyProcess, chars: str, *, yield_seconds: float | None, max_tokens: int | None
    ) -> PtyExecUpdate:
        """Types at the terminal of a program, if there is something to type, and returns what it printed then."""
        entry.last_used = time.monotonic()
        if chars:
            if entry.shell is None:
                raise RuntimeError("stdin is not available for this process")  # the SDK compares this text
            with contextlib.suppress(Conflict):  # it has just ended, and the update says how
                await entry.shell.input(chars)
        seconds = WRITE_YIELD_SECONDS if yield_seconds is None else yield_seconds
        wait = resolve_pty_write_yield_time_ms(yield_time_ms=round(seconds * 1000), input_empty=not chars)
        return await self._update(number, entry, wait, max_tokens)

    async def end_all(self) -> None:
        """Ends all programs."""
        entries = list(self.entries.values())
        self.entries.clear()
        await asyncio.gather(*(entry.end() for entry in entries))

    async def _update(self, number: int, entry: PtyProcess, wait_ms: int, max_tokens: int | None) -> PtyExecUpdate:
        await entry.wait(wait_ms / 1000)
        text, tokens = truncate_text_by_tokens(entry.taken().decode(errors="replace"), max_tokens)
        output = text.encode()
        if not entry.has_ended:
            return PtyExecUpdate(process_id=number, output=output, exit_code=None, original_token_count=tokens)
        self.entries.pop(number, None)
        await entry.end()
        return PtyExecUpdate(process_id=None, output=output, exit_code=entry.exit_code(), original_token_count=tokens)

    async def _make_room(self) -> None:
        if len(self.entries) >= PTY_PROCESSES_MAX:
            meta = [(number, entry.last_used, entry.has_ended) for number, entry in self.entries.items()]
            number = process_id_to_prune_from_meta(meta)
            if number is not None:
                await self.entries.pop(number).end()

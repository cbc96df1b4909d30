# Generated from _async/_exec.py by tools/generate_sync.py: change that file instead.
"""Commands that are waited for: one request, and the stream of the command if its reply does not come.

A command gets its id here, before it is sent, so a request whose connection is lost can be sent again: the daemon takes each id once.
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

from .._errors import Conflict
from .._http import segment
from .._models import CompactFacts, ExecResult, RunResult, read
from .._output import Collector
from .._settings import CANCEL_SECONDS, DEFAULT, EXEC_REPLY_SECONDS, WHOLE_REPLY_SECONDS, Timeout, milliseconds
from . import _io
from ._stream import ExecStream, OnCancel, stop_command
from ._transport import decoded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._transport import Transport


def new_exec_id() -> str:
    return f"py-{uuid.uuid4().hex[:20]}"


def request_fields(
    *,
    timeout: Timeout,
    stdin: str | bytes | None,
    env: Mapping[str, str] | None,
    cwd: str | None,
    exec_id: str | None,
    max_output_bytes: int | None = None,
) -> dict[str, Any]:
    """The fields that a command and a run have in common. All of them are checked before anything is sent."""
    fields: dict[str, Any] = {"exec_id": exec_id or new_exec_id()}
    if timeout is not DEFAULT:
        fields["timeout_ms"] = None if timeout is None else milliseconds(timeout)
    if isinstance(stdin, str):
        fields["stdin"] = stdin
    elif stdin is not None:
        fields["stdin_base64"] = base64.b64encode(stdin).decode()
    if env:
        fields["env"] = dict(env)
    if cwd is not None:
        fields["cwd"] = cwd
    if max_output_bytes is not None:
        fields["max_output_bytes"] = max_output_bytes
    return fields


@overload
def reply(transport: Transport, session: str, what: Literal["exec"], body: dict[str, Any], on_cancel: OnCancel) -> ExecResult: ...
@overload
def reply(transport: Transport, session: str, what: Literal["run"], body: dict[str, Any], on_cancel: OnCancel) -> RunResult: ...
def reply(
    transport: Transport,
    session: str,
    what: Literal["exec", "run"],
    body: dict[str, Any],
    on_cancel: OnCancel,
) -> ExecResult | RunResult:
    """Runs a command or a program to its end."""
    exec_id = body["exec_id"]

    try:
        return _reply(transport, session, what, body)
    except _io.Cancelled:
        if on_cancel == "kill":
            transport.finish(lambda apart: stop_command(apart, session, exec_id), CANCEL_SECONDS * 3)
        raise


def _reply(transport: Transport, session: str, what: Literal["exec", "run"], body: dict[str, Any]) -> ExecResult | RunResult:
    import httpx

    exec_id = body["exec_id"]
    path = f"/v1/sessions/{segment(session)}/{what}"
    # Only the reply has a compact view, so it is waited for as long as the command may take.
    silence = WHOLE_REPLY_SECONDS + (body.get("timeout_ms") or 0) / 1000 if "view" in body else EXEC_REPLY_SECONDS
    try:
        response = transport.open("POST", path, body=body, silence=silence)
        try:
            text = response.read()
        finally:
            response.close()
        answer = decoded(text)
        return _exec_result(answer) if what == "exec" else read(RunResult, answer)
    except httpx.ConnectError as error:
        if not transport.has_answered:
            raise transport.unreachable(error) from error
    except httpx.TransportError:
        pass
    # The reply was lost, or is late because the command runs long or waits in a queue. Its stream is never silent for long. It has no
    # compact view.
    tidy = body.get("streams") == "tty" and not body.get("raw_output")
    stream = ExecStream(
        transport,
        session,
        exec_id,
        request=(f"{path}/stream", {name: value for name, value in body.items() if name not in ("view", "max_tokens")}),
        was_sent=True,
        collector=Collector.of_reply(body.get("max_output_bytes"), tidy=tidy),
        on_cancel="detach",
    )
    return stream.wait()


def _exec_result(answer: Any) -> ExecResult:
    result = read(ExecResult, answer)
    return replace(result, compact=read(CompactFacts, answer["compact"])) if answer.get("compact") else result


def detach(transport: Transport, session: str, what: Literal["exec", "run"], body: dict[str, Any]) -> str:
    """Starts a command or a program and returns its id."""
    import httpx

    from .._settings import RETRY_ATTEMPTS, Backoff

    exec_id: str = body["exec_id"]
    path = f"/v1/sessions/{segment(session)}/{what}"
    backoff = Backoff(transport.reconnect_seconds, RETRY_ATTEMPTS)
    is_repeated = False
    while True:
        try:
            response = transport.open("POST", path, body={**body, "detach": True})
            response.read()
            response.close()
            return exec_id
        except Conflict as error:
            if is_repeated and error.code == "CONFLICT" and "exec id" in error.message:
                return exec_id  # the lost request did arrive
            raise
        except httpx.TransportError as error:
            wait = backoff.failed() if transport.has_answered else None
            if wait is None:
                raise transport.unreachable(error) from error
        is_repeated = True
        _io.sleep(wait)

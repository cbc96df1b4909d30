"""The sandbox interface of the OpenAI Agents SDK on sessions of Cove: its life, commands, terminals, files, snapshots and ports, and
an agent with a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tarfile
import urllib.request
import uuid
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("agents.sandbox", reason="the package openai-agents is not installed")

from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import Dir, File, InContainerMountStrategy, RcloneMountPattern, S3Mount
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    InvalidManifestPathError,
    MountConfigError,
    PtySessionNotFoundError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.session import BaseSandboxClientOptions, SandboxSession, SandboxSessionState
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.sandbox.types import User
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from cove import AsyncCove, SessionNotFound
from cove.agents._openai import pty
from cove.agents.openai_sandbox import CoveSandboxClient, CoveSandboxClientOptions, CoveSandboxSessionState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ..daemon import Daemon


@contextlib.asynccontextmanager
async def started(daemon: Daemon, **options: Any) -> AsyncIterator[SandboxSession]:
    """A sandbox that was started and is destroyed at the end."""
    create = {name: options.pop(name) for name in ("manifest", "snapshot") if name in options}
    async with AsyncCove(daemon.url, daemon.key) as cove:
        client = CoveSandboxClient(cove)
        session = await client.create(options=CoveSandboxClientOptions(**options), **create)
        try:
            async with session:
                yield session
        finally:
            await client.delete(session)


async def test_a_command_has_output_error_and_status(daemon: Daemon) -> None:
    async with started(
        daemon, env={"A": "one", "B": "two"}, manifest=Manifest(environment={"value": {"B": "of manifest"}})
    ) as sandbox:
        result = await sandbox.exec("pwd; echo $A $B; echo err >&2; exit 3")
        assert (result.exit_code, result.stdout, result.stderr) == (3, b"/workspace\none of manifest\n", b"err\n")
        assert (await sandbox.exec("echo", "a b", "$A", shell=False)).stdout == b"a b $A\n"
        assert (await sandbox.exec("echo", "a b", "$A")).stdout == b"a b $A\n", "words are quoted for the shell"
        assert (await sandbox.exec("echo $0", shell=["bash", "-c"])).stdout == b"bash\n"
        assert (await sandbox.exec("printf '\\377\\000'")).stdout == b"\xff\0"
        assert len((await sandbox.exec("head -c 3000000 /dev/zero")).stdout) == 3_000_000
        missing = await sandbox.exec("no-such-program", shell=False)
        assert (missing.exit_code, b"no-such-program" in missing.stderr) == (127, True)
        with pytest.raises(ExecTimeoutError) as late:
            await sandbox.exec("sleep 60", timeout=0.3)
        assert late.value.timeout_s == 0.3
        refused = await sandbox.exec("getent hosts example.com")
        assert (refused.exit_code, refused.stderr) == (2, b"[the network policy denied example.com]\n")


async def test_its_life_is_that_of_a_session(daemon: Daemon) -> None:
    async with AsyncCove(daemon.url, daemon.key) as cove:
        client = CoveSandboxClient(cove)
        session = await client.create(options=CoveSandboxClientOptions(memory_mb=256, labels={"of": "sdk"}, ttl_seconds=300))
        [made] = await cove.list(labels={"of": "sdk"})
        assert made.info.resources.memory_mb == 256
        assert not await session.running(), "the SDK starts what does not run"
        await session.start()
        assert await session.running()
        await session.aclose()
        assert not await session.running()
        assert await cove.list(labels={"of": "sdk"}) == []
        await client.delete(session)
        with pytest.raises(ExecTransportError) as error:
            await session.exec("true")
        assert isinstance(error.value.cause, SessionNotFound)
        plain = await client.create(manifest=Manifest(root="/tmp/elsewhere"))
        async with plain:
            assert (await plain.exec("pwd")).stdout == b"/tmp/elsewhere\n"
            await plain.write(Path("f"), io.BytesIO(b"x"))
            assert (await plain.exec("cat /tmp/elsewhere/f")).stdout == b"x"


async def test_files(daemon: Daemon) -> None:
    async with started(daemon) as sandbox:
        await sandbox.write(Path("deep/a.bin"), io.BytesIO(bytes(range(256))))
        await sandbox.write(Path("/workspace/text"), io.StringIO("ä text\n"))
        assert (await sandbox.read(Path("deep/a.bin"))).read() == bytes(range(256))
        assert (await sandbox.read(Path("/workspace/text"))).read().decode() == "ä text\n"
        assert await sandbox.read_bounded(Path("deep/a.bin"), max_bytes=10) == bytes(range(10))
        assert await sandbox.read_bounded(Path("text"), max_bytes=1000) == "ä text\n".encode()
        for read in (sandbox.read(Path("none")), sandbox.read_bounded(Path("none"), max_bytes=1)):
            with pytest.raises(WorkspaceReadNotFoundError):
                await read
        await sandbox.mkdir("one/two", parents=True)
        await sandbox.mkdir("three")
        names = {Path(entry.path).name for entry in await sandbox.ls(".")}
        assert {"deep", "one", "three", "text"} <= names
        await sandbox.mv("text", "one/moved")
        assert await sandbox.same_file("one/moved", "one/../one/moved")
        assert not await sandbox.same_file("one/moved", "deep/a.bin")
        await sandbox.rm("one", recursive=True)
        assert "one" not in {Path(entry.path).name for entry in await sandbox.ls(".")}
        with pytest.raises(InvalidManifestPathError):
            await sandbox.read(Path("/etc/passwd"))
        await sandbox.exec("ln -s /etc/passwd link")
        for call in (sandbox.read(Path("link")), sandbox.write(Path("link"), io.BytesIO(b""))):
            with pytest.raises(InvalidManifestPathError):
                await call
        await sandbox.exec("mkdir closed; chmod 500 closed")
        with pytest.raises(WorkspaceArchiveWriteError):
            await sandbox.write(Path("closed/f"), io.BytesIO(b""))


async def test_archives_are_unpacked_and_patches_applied(daemon: Daemon) -> None:
    packed, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo("in/tar.txt")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"tar"))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("in/zip.txt", "zip")
    packed.seek(0)
    zipped.seek(0)
    async with started(daemon) as sandbox:
        await sandbox.extract("a.tar", packed)
        await sandbox.extract("b.zip", zipped)
        assert (await sandbox.exec("cat in/tar.txt in/zip.txt")).stdout == b"tarzip"
        await sandbox.apply_patch({"type": "create_file", "path": "new.py", "diff": "+one\n+two\n"})
        await sandbox.apply_patch([{"type": "update_file", "path": "new.py", "diff": "@@\n-two\n+2\n"}])
        assert (await sandbox.exec("cat new.py")).stdout.split() == [b"one", b"2"]
        await sandbox.apply_patch({"type": "delete_file", "path": "new.py"})
        assert not (await sandbox.exec("test -e new.py")).ok()


async def test_programs_without_a_terminal_go_on_between_calls(daemon: Daemon) -> None:
    async with started(daemon) as sandbox:
        assert sandbox.supports_pty()
        quick = await sandbox.pty_exec_start("echo out; echo err >&2; exit 4", yield_time_s=10)
        assert (quick.output, quick.exit_code, quick.process_id) == (b"out\nerr\n", 4, None)
        slow = await sandbox.pty_exec_start("echo begun; until [ -e go ]; do sleep 0.02; done; echo ended", yield_time_s=0.25)
        assert (slow.output, slow.exit_code) == (b"begun\n", None)
        assert slow.process_id is not None
        with pytest.raises(RuntimeError, match="stdin is not available"):
            await sandbox.pty_write_stdin(session_id=slow.process_id, chars="x")
        await sandbox.write(Path("go"), io.BytesIO(b""))
        last = await sandbox.pty_write_stdin(session_id=slow.process_id, chars="")
        assert (last.output, last.exit_code, last.process_id) == (b"ended\n", 0, None)
        with pytest.raises(PtySessionNotFoundError):
            await sandbox.pty_write_stdin(session_id=slow.process_id, chars="")
        cut = await sandbox.pty_exec_start("seq 10000", yield_time_s=10, max_output_tokens=20)
        assert (cut.exit_code, len(cut.output) < 400, (cut.original_token_count or 0) > 1000) == (0, True, True)
        late = await sandbox.pty_exec_start("sleep 60", timeout=0.3, yield_time_s=10)
        assert late.exit_code == 124


async def test_a_program_at_a_terminal_is_typed_to(daemon: Daemon) -> None:
    async with started(daemon, env={"A": "b"}) as sandbox:
        first = await sandbox.pty_exec_start("[ -t 0 ] && read -p 'name? ' n && echo hello $n $A in $PWD", tty=True, yield_time_s=0.5)
        assert (first.output, first.exit_code) == (b"name? ", None)
        assert first.process_id is not None
        answer = await sandbox.pty_write_stdin(session_id=first.process_id, chars="world\n", yield_time_s=10)
        assert answer.exit_code == 0
        assert b"hello world b in /workspace" in answer.output
        waits = await sandbox.pty_exec_start("sleep 4711", tty=True, yield_time_s=0.25)
        assert waits.process_id is not None
        interrupted = await sandbox.pty_write_stdin(session_id=waits.process_id, chars="\x03", yield_time_s=10)
        assert interrupted.exit_code == 130


async def test_nothing_that_was_started_stays(daemon: Daemon) -> None:
    async with started(daemon) as sandbox:
        before = len(asyncio.all_tasks())
        for tty in (False, True):
            update = await sandbox.pty_exec_start("exec sleep 4711", tty=tty, yield_time_s=0.25)
            assert update.process_id is not None
        until_both_run = "until [ $(pgrep -fc '^sleep 4711') = 2 ]; do sleep 0.02; done"
        assert (await sandbox.exec(until_both_run, timeout=20)).ok()
        await sandbox.pty_terminate_all()
        assert (await sandbox.exec("pgrep -fc '^sleep 4711'")).stdout == b"0\n"
        assert len(asyncio.all_tasks()) == before
        shells = await sandbox._inner.cove_session.shells()
        assert [shell.name for shell in shells] == ["main"]


async def test_output_that_nobody_takes_is_bounded(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pty, "BUFFER_BYTES", 4096)
    largest_chunk = 64 << 10
    async with started(daemon) as sandbox:
        update = await sandbox.pty_exec_start("seq 200000; touch printed", yield_time_s=10)
        # The program does not wait for a reader: the daemon keeps its output. Meanwhile the reader could take all of it.
        assert (await sandbox.exec("until [ -e printed ]; do sleep 0.02; done; sleep 0.3", timeout=20)).ok()
        outputs = [update.output]
        while update.process_id is not None:
            update = await sandbox.pty_write_stdin(session_id=update.process_id, chars="", yield_time_s=10)
            outputs.append(update.output)
        assert b"".join(outputs) == b"".join(b"%d\n" % n for n in range(1, 200_001))
        assert update.exit_code == 0
        assert max(map(len, outputs)) <= 4096 + largest_chunk


async def test_a_manifest_is_there_before_the_first_command(daemon: Daemon) -> None:
    manifest = Manifest(
        entries={
            "readme.md": File(content=b"read me"),
            "src": Dir(children={"a.py": File(content=b"print(1)"), "b": Dir()}),
            "scratch": File(content=b"temporary", ephemeral=True),
        }
    )
    async with started(daemon, manifest=manifest) as sandbox:
        assert (await sandbox.exec("cat readme.md src/a.py scratch; ls src")).stdout == b"read meprint(1)temporarya.py\nb\n"


async def test_a_snapshot_of_the_sdk_restores_the_workspace(daemon: Daemon, tmp_path: Path) -> None:
    manifest = Manifest(entries={"scratch": Dir(children={"x": File(content=b"temporary")}, ephemeral=True)})
    async with AsyncCove(daemon.url, daemon.key) as cove:
        client = CoveSandboxClient(cove)
        first = await client.create(manifest=manifest, snapshot=LocalSnapshotSpec(base_path=tmp_path))
        async with first:
            await first.write(Path("kept/file"), io.BytesIO(b"work"))
            await first.exec("ln -s file kept/link; chmod 700 kept/file; echo more > scratch/more")
        [archive] = tmp_path.glob("*.tar")  # noqa: ASYNC240
        with tarfile.open(archive) as tar:
            names = {name.removeprefix("./").rstrip("/") for name in tar.getnames()}
        assert {"kept/file", "kept/link"} <= names
        assert not any(name.startswith("scratch") for name in names), "what is ephemeral is not kept"
        payload = json.loads(json.dumps(client.serialize_session_state(first.state)))
        state = client.deserialize_session_state(payload)
        assert isinstance(state, CoveSandboxSessionState)
        before = state.sandbox_id
        second = await client.resume(state)
        async with second:
            assert second.state.sandbox_id != before, "the first one is gone"
            result = await second.exec("cat kept/link; stat -c %a kept/file; ls scratch")
            assert result.stdout == b"work700\nx\n"
        assert await cove.list(status="running") == []


@pytest.mark.parametrize("on_exit", ["stop", "keep"])
async def test_a_session_that_is_left_is_resumed_as_it_was(daemon: Daemon, on_exit: str) -> None:
    async with AsyncCove(daemon.url, daemon.key) as cove:
        client = CoveSandboxClient(cove)
        options = CoveSandboxClientOptions(on_exit=on_exit)
        assert BaseSandboxClientOptions.parse(options.model_dump(mode="json")) == options
        first = await client.create(options=options, manifest=Manifest(entries={"given": File(content=b"1")}))
        async with first:
            await first.exec("echo more >> given")
        await client.delete(first)
        there = await cove.connect(first.state.sandbox_id)
        assert there.info.status == ("stopped" if on_exit == "stop" else "running")
        state = SandboxSessionState.parse(client.serialize_session_state(first.state))
        second = await client.resume(state)
        try:
            async with second:
                assert second.state.sandbox_id == first.state.sandbox_id
                assert (await second.exec("cat given")).stdout == b"1more\n", "the manifest is not applied again"
        finally:
            await there.destroy()


async def test_ports_that_were_asked_for_are_reachable(daemon: Daemon) -> None:
    async with started(daemon, exposed_ports=(8123,)) as sandbox:
        await sandbox.write(Path("index.html"), io.BytesIO(b"served"))
        await sandbox.pty_exec_start("exec python3 -m http.server 8123", yield_time_s=0.25)
        await sandbox._inner.cove_session.ports.wait(8123)
        endpoint = await sandbox.resolve_exposed_port(8123)
        # Resolvers need not know names below localhost, so the name goes into the header, and cookies are kept as browsers do.
        address = endpoint.url_for("http")
        request = urllib.request.Request(
            address.replace(endpoint.host, "127.0.0.1"), headers={"Host": f"{endpoint.host}:{endpoint.port}"}
        )

        def fetch() -> bytes:
            class Keep(urllib.request.HTTPRedirectHandler):
                def redirect_request(self, *arguments: Any) -> Any:
                    headers = arguments[4]
                    cookie = headers["Set-Cookie"].split(";")[0]
                    return urllib.request.Request(
                        f"http://127.0.0.1:{endpoint.port}/", headers={"Host": f"{endpoint.host}:{endpoint.port}", "Cookie": cookie}
                    )

            return bytes(urllib.request.build_opener(Keep).open(request, timeout=20).read())

        assert await asyncio.to_thread(fetch) == b"served"
        with pytest.raises(ExposedPortUnavailableError, match="not configured"):
            await sandbox.resolve_exposed_port(9999)


async def test_users_need_root_and_mounts_are_refused(daemon: Daemon) -> None:
    async with started(daemon) as sandbox:
        with pytest.raises(ValueError, match='user="root"'):
            await sandbox.exec("id", user="nobody")
    async with started(daemon, user="root") as sandbox:
        assert (await sandbox.exec("id -un", user="root")).stdout == b"root\n"
        assert (await sandbox.exec("id -un", user=User(name="nobody"))).stdout == b"nobody\n"
    with pytest.raises(ValueError, match="writable_root"):
        async with started(daemon, manifest=Manifest(users=[User(name="someone")])):
            raise AssertionError("it must not start")
    mount = S3Mount(bucket="b", mount_strategy=InContainerMountStrategy(pattern=RcloneMountPattern()))
    with pytest.raises(MountConfigError, match="cannot mount"):
        async with started(daemon, manifest=Manifest(entries={"data": mount})):
            raise AssertionError("it must not start")
    async with AsyncCove(daemon.url, daemon.key) as cove:
        assert await cove.list(status="running") == []
        with pytest.raises(TypeError, match="states of Cove"):
            await CoveSandboxClient(cove).resume(object())


def said(text: str) -> Any:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="m", content=[part], role="assistant", status="completed", type="message")


def called(tool: str, **arguments: Any) -> Any:
    return ResponseFunctionToolCall(call_id=f"c-{uuid.uuid4()}", name=tool, arguments=json.dumps(arguments), type="function_call")


class Scripted(Model):
    """A model that says one thing after another, and remembers what it was told."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.told: list[Any] = []
        self.tools: list[str] = []

    async def get_response(self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *_: Any, **__: Any) -> Any:
        self.told.append(input[-1] if isinstance(input, list) else input)
        self.tools = [tool.name for tool in tools]
        return ModelResponse(output=[self.script.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def test_a_sandbox_agent_works_in_a_session_of_its_own(daemon: Daemon) -> None:
    model = Scripted(
        called("exec_command", cmd="cat task.txt; echo '6*7' | tee sum.txt"),
        called("exec_command", cmd="read -p 'more? ' x; echo got $x", tty=True, yield_time_ms=300),
        said("It is 42."),
    )
    agent = SandboxAgent(name="a", model=model, default_manifest=Manifest(entries={"task.txt": File(content=b"multiply\n")}))
    async with AsyncCove(daemon.url, daemon.key) as cove:
        sandbox = SandboxRunConfig(client=CoveSandboxClient(cove), options=CoveSandboxClientOptions(labels={"run": "agent"}))
        result = await Runner.run(agent, "What is it?", run_config=RunConfig(sandbox=sandbox, tracing_disabled=True))
        assert result.final_output == "It is 42."
        assert {"exec_command", "write_stdin", "apply_patch", "view_image"} <= set(model.tools)
        assert "exited with code 0" in model.told[1]["output"]
        assert "multiply\n6*7" in model.told[1]["output"]
        assert "running with session ID" in model.told[2]["output"]
        assert await cove.list(labels={"run": "agent"}) == [], "the session of the run is gone"


async def test_an_agent_uses_a_session_that_the_caller_keeps(daemon: Daemon) -> None:
    async with started(daemon) as sandbox:
        for number in range(2):
            model = Scripted(called("exec_command", cmd=f"echo {number} >> log; wc -l < log"), said("done"))
            agent: Agent[Any] = SandboxAgent(name="a", model=model)
            await Runner.run(agent, "go", run_config=RunConfig(sandbox=SandboxRunConfig(session=sandbox), tracing_disabled=True))
            assert model.told[1]["output"].rstrip().endswith(str(number + 1))
        assert await sandbox.running()

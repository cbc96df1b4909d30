"""The life of sessions, their network and ports, and what a daemon has besides."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from cove import (
    AsyncCove,
    Conflict,
    Forbidden,
    Injection,
    InvalidImage,
    InvalidRequest,
    LimitReached,
    NotFound,
    PortClosed,
    SessionNotFound,
    Unauthorized,
    WaitTimedOut,
)

if TYPE_CHECKING:
    from ..daemon import Daemon


async def test_a_session_has_what_was_asked_for(cove: AsyncCove) -> None:
    async with cove.session(
        "base", ttl_seconds=600, labels={"job": "x"}, cpus=0.5, memory_mb=256, pids=64, disk_mb=200, network="none"
    ) as session:
        info = session.info
        assert (info.image, info.status, info.labels, info.network) == ("base", "running", {"job": "x"}, "none")
        assert (info.resources.cpus, info.resources.memory_mb, info.resources.pids) == (0.5, 256, 64)
        assert (await session.stats()).pids >= 1
        changed = await session.update(labels={"job": "y"}, ttl_seconds=300)
        assert changed.labels == {"job": "y"}
        assert (await session.refresh()).labels == {"job": "y"}
        found = await cove.list(labels={"job": "y"}, status=["running", "paused"])
        assert [one.id for one in found] == [session.id]
        assert await cove.list(labels={"job": "x"}) == []
        assert session.id in repr(session)
    with pytest.raises(SessionNotFound, match=r"cove\.list"):
        await cove.connect(session.id)
    await session.destroy()  # again is fine


async def test_a_block_that_fails_destroys_its_session_and_raises_its_own_error(cove: AsyncCove) -> None:
    with pytest.raises(ZeroDivisionError):
        async with cove.session(labels={"fails": "yes"}):
            raise ZeroDivisionError
    assert await cove.list(labels={"fails": "yes"}) == []


async def test_a_connected_session_outlives_its_block(cove: AsyncCove) -> None:
    session = await cove.create()
    async with await cove.connect(session.id) as again:
        await again.exec("export A=1")
    assert (await session.exec("echo $A")).output == "1\n"
    async with session:
        pass
    assert session.id not in [one.id for one in await cove.list()]


async def test_pause_stop_and_start_keep_the_state(cove: AsyncCove) -> None:
    async with cove.session() as session:
        await session.exec("cd /tmp; export A=kept; echo file > f")
        assert (await session.pause()).status == "paused"
        assert (await session.resume()).status == "running"
        assert (await session.stop()).status == "stopped"
        with pytest.raises(Conflict):
            await session.exec("true")
        assert (await session.start()).status == "running"
        assert (await session.exec("echo $A $PWD; cat f")).output == "kept /tmp\nfile\n"


async def test_forks_and_snapshots_begin_where_the_session_was(cove: AsyncCove) -> None:
    async with cove.session() as session:
        await session.exec("cd /tmp; export A=origin; echo file > f")
        snapshot = await session.snapshot("before")
        assert (snapshot.name, snapshot.session_id) == ("before", session.id)
        assert snapshot.id in [one.id for one in await cove.snapshots.list()]
        assert (await cove.snapshots.get(snapshot.id)).id == snapshot.id
        forks = await session.fork(2)
        for number, fork in enumerate(forks):
            assert (await fork.exec(f"echo $A; echo {number} > f; cat f")).output == f"origin\n{number}\n"
            await fork.destroy()
        async with cove.session(snapshot=snapshot.id) as restored:
            assert (await restored.exec("echo $A $PWD; cat f")).output == "origin /tmp\nfile\n"
        await cove.snapshots.delete(snapshot.id)
        with pytest.raises(NotFound):
            await cove.snapshots.get(snapshot.id)


async def test_errors_say_what_to_do(cove: AsyncCove, daemon: Daemon) -> None:
    with pytest.raises(InvalidImage, match=r"images\.list"):
        await cove.create("nothing-like-this")
    with pytest.raises(InvalidRequest) as invalid:
        await cove.create(cpus=-1)
    assert (invalid.value.code, invalid.value.status) == ("INVALID_REQUEST", 400)
    stranger = AsyncCove(daemon.url, "wrong")
    with pytest.raises(Unauthorized, match="COVE_API_KEY") as refused:
        await stranger.list()
    assert refused.value.request_id
    await stranger.close()


async def test_keys_have_limits_and_see_only_their_own(cove: AsyncCove, daemon: Daemon) -> None:
    name = f"k{uuid.uuid4().hex[:8]}"
    new = await cove.keys.create(name, max_sessions=1, max_memory_mb=8192)
    assert (new.key.name, new.key.role) == (name, "user")
    assert new.secret not in repr(new)
    assert name in [key.name for key in await cove.keys.list()]
    user = AsyncCove(daemon.url, new.secret)
    async with user.session() as session:
        assert session.info.owner == name
        with pytest.raises(LimitReached, match="Try again") as full:
            await user.create()
        assert full.value.details["of"] == "key"
        with pytest.raises(Forbidden):
            await user.keys.list()
    await cove.keys.delete(name)
    with pytest.raises(Unauthorized):
        await user.list()
    await user.close()


async def test_the_network_is_changed_and_its_log_followed(cove: AsyncCove) -> None:
    async with cove.session(network="none") as session:
        result = await session.exec("getent hosts example.com")
        assert result.network_denied == ["example.com"]
        denied = await session.network.log()
        assert (denied[0].host, denied[0].verdict, denied[0].wanted) == ("example.com", "denied", "example.com")
        assert await session.network.log(after=denied[-1].sequence) == []
        async for decision in session.network.follow():
            assert decision.sequence == 1
            break
        info = await session.network.set({"allow": ["example.com:443"], "deny": ["*.example.net"]})
        assert info.allow == ["example.com:443"]
        assert (await session.network.get()).network == {"allow": ["example.com:443"], "deny": ["*.example.net"]}


async def test_secrets_are_injected_and_never_shown(cove: AsyncCove) -> None:
    secret = await cove.secrets.set("token", "sk-4711", hosts=["api.example.com"])
    assert (secret.name, secret.hosts) == ("token", ["api.example.com"])
    assert [one.name for one in await cove.secrets.list()] == ["token"]
    header = Injection("api.example.com", "Authorization", "secret:token", "Bearer {}")
    async with cove.session(network={"allow": ["api.example.com"]}, inject=[header]) as session:
        assert (await session.network.get()).inject == [header.as_json()]
        await session.network.set({"allow": ["api.example.com"]}, inject=[])
        assert (await session.network.get()).inject == []
    await cove.secrets.delete("token")
    assert await cove.secrets.list() == []


async def test_a_server_is_reached_and_linked(cove: AsyncCove) -> None:
    async with cove.session() as session:
        with pytest.raises(PortClosed, match=r"ports\.wait"):
            await session.ports.request(8000)
        with pytest.raises(WaitTimedOut, match="8000"):
            await session.ports.wait(8000, timeout=0.2)
        await session.files.write("index.html", "<h1>it works</h1>")
        server = await session.spawn(["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"], cwd="/workspace")
        assert (await session.ports.wait(8000)).port == 8000
        assert 8000 in [info.port for info in await session.ports.list()]
        answer = await session.ports.request(8000, "/index.html")
        assert (answer.status, answer.text) == (200, "<h1>it works</h1>")
        assert (await session.ports.request(8000, "/nothing")).status == 404
        with pytest.raises(ValueError, match="slash"):
            await session.ports.request(8000, "index.html")
        link = await session.ports.url(8000, ttl_seconds=60)
        assert f"8000-{session.id}" in link.url
        await session.ports.revoke(8000)
        await server.kill()


async def test_workspaces_outlive_sessions(cove: AsyncCove) -> None:
    name = f"w-{uuid.uuid4().hex[:8]}"
    async with cove.session(workspace=name) as session:
        await session.exec("mkdir d; echo kept > d/f")
    assert name in [one.id for one in await cove.workspaces.list()]
    assert await cove.workspaces.read(name, "d/f") == b"kept\n"
    await cove.workspaces.write(name, "d/g", "from outside")
    assert len(await cove.workspaces.files(name, "d")) == 2
    async with cove.session(workspace=name) as session:
        assert await session.files.read_text("d/g") == "from outside"
        with pytest.raises(Conflict):
            await cove.workspaces.delete(name)
    await cove.workspaces.delete(name, force=True)
    assert name not in [one.id for one in await cove.workspaces.list()]


async def test_a_workspace_is_made_without_a_session(cove: AsyncCove) -> None:
    name = f"w-{uuid.uuid4().hex[:8]}"
    await cove.workspaces.create(name)
    await cove.workspaces.create(name)
    await cove.workspaces.write(name, "f", "x")
    [found] = [one for one in await cove.workspaces.list() if one.id == name]
    assert found.kind in ("disk", "directory")
    await cove.workspaces.delete(name)


async def test_a_session_is_found_by_its_name(cove: AsyncCove) -> None:
    name = f"n-{uuid.uuid4().hex[:8]}"
    async with cove.session(name=name) as session:
        assert [one.id for one in await cove.list(name=name)] == [session.id]
        assert session.info.name == name
        with pytest.raises(Conflict, match=name):
            await cove.create(name=name)
    assert await cove.list(name=name) == []


@pytest.mark.local_only("no image can be made from its sessions")
async def test_a_commit_of_a_root_that_cannot_be_changed_says_what_to_do(cove: AsyncCove) -> None:
    async with cove.session() as session:
        with pytest.raises(InvalidRequest, match="writable_root"):
            await cove.images.commit(session.id, "from-a-test")


async def test_images_pools_and_the_daemon_itself(cove: AsyncCove) -> None:
    assert "base" in [image.name for image in await cove.images.list()]
    with pytest.raises(NotFound):
        await cove.images.get("example.com/nothing:1")
    with pytest.raises((InvalidRequest, InvalidImage)):
        await cove.images.pull("not a name!")
    assert (await cove.images.prune()).layers == 0
    pool = await cove.pools.set("base", 1)
    assert (pool.image, pool.size) == ("base", 1)
    assert len(await cove.pools.list()) == 1
    await cove.pools.set("base", 0)
    assert (await cove.health()).status == "ok"
    assert (await cove.ready()).status == "ok"
    assert "cove_" in await cove.metrics()

# Generated from asynchronous/test_sessions.py by tools/generate_sync.py: change that file instead.
"""The life of sessions, their network and ports, and what a daemon has besides."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from cove import (
    Conflict,
    Cove,
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


def test_a_session_has_what_was_asked_for(cove: Cove) -> None:
    with cove.session(
        "base", ttl_seconds=600, labels={"job": "x"}, cpus=0.5, memory_mb=256, pids=64, disk_mb=200, network="none"
    ) as session:
        info = session.info
        assert (info.image, info.status, info.labels, info.network) == ("base", "running", {"job": "x"}, "none")
        assert (info.resources.cpus, info.resources.memory_mb, info.resources.pids) == (0.5, 256, 64)
        assert (session.stats()).pids >= 1
        changed = session.update(labels={"job": "y"}, ttl_seconds=300)
        assert changed.labels == {"job": "y"}
        assert (session.refresh()).labels == {"job": "y"}
        found = cove.list(labels={"job": "y"}, status=["running", "paused"])
        assert [one.id for one in found] == [session.id]
        assert cove.list(labels={"job": "x"}) == []
        assert session.id in repr(session)
    with pytest.raises(SessionNotFound, match=r"cove\.list"):
        cove.connect(session.id)
    session.destroy()  # again is fine


def test_a_block_that_fails_destroys_its_session_and_raises_its_own_error(cove: Cove) -> None:
    with pytest.raises(ZeroDivisionError):
        with cove.session(labels={"fails": "yes"}):
            raise ZeroDivisionError
    assert cove.list(labels={"fails": "yes"}) == []


def test_a_connected_session_outlives_its_block(cove: Cove) -> None:
    session = cove.create()
    with cove.connect(session.id) as again:
        again.exec("export A=1")
    assert (session.exec("echo $A")).output == "1\n"
    with session:
        pass
    assert session.id not in [one.id for one in cove.list()]


def test_pause_stop_and_start_keep_the_state(cove: Cove) -> None:
    with cove.session() as session:
        session.exec("cd /tmp; export A=kept; echo file > f")
        assert (session.pause()).status == "paused"
        assert (session.resume()).status == "running"
        assert (session.stop()).status == "stopped"
        with pytest.raises(Conflict):
            session.exec("true")
        assert (session.start()).status == "running"
        assert (session.exec("echo $A $PWD; cat f")).output == "kept /tmp\nfile\n"


def test_forks_and_snapshots_begin_where_the_session_was(cove: Cove) -> None:
    with cove.session() as session:
        session.exec("cd /tmp; export A=origin; echo file > f")
        snapshot = session.snapshot("before")
        assert (snapshot.name, snapshot.session_id) == ("before", session.id)
        assert snapshot.id in [one.id for one in cove.snapshots.list()]
        assert (cove.snapshots.get(snapshot.id)).id == snapshot.id
        forks = session.fork(2)
        for number, fork in enumerate(forks):
            assert (fork.exec(f"echo $A; echo {number} > f; cat f")).output == f"origin\n{number}\n"
            fork.destroy()
        with cove.session(snapshot=snapshot.id) as restored:
            assert (restored.exec("echo $A $PWD; cat f")).output == "origin /tmp\nfile\n"
        cove.snapshots.delete(snapshot.id)
        with pytest.raises(NotFound):
            cove.snapshots.get(snapshot.id)


def test_errors_say_what_to_do(cove: Cove, daemon: Daemon) -> None:
    with pytest.raises(InvalidImage, match=r"images\.list"):
        cove.create("nothing-like-this")
    with pytest.raises(InvalidRequest) as invalid:
        cove.create(cpus=-1)
    assert (invalid.value.code, invalid.value.status) == ("INVALID_REQUEST", 400)
    stranger = Cove(daemon.url, "wrong")
    with pytest.raises(Unauthorized, match="COVE_API_KEY") as refused:
        stranger.list()
    assert refused.value.request_id
    stranger.close()


def test_keys_have_limits_and_see_only_their_own(cove: Cove, daemon: Daemon) -> None:
    name = f"k{uuid.uuid4().hex[:8]}"
    new = cove.keys.create(name, max_sessions=1, max_memory_mb=8192)
    assert (new.key.name, new.key.role) == (name, "user")
    assert new.secret not in repr(new)
    assert name in [key.name for key in cove.keys.list()]
    user = Cove(daemon.url, new.secret)
    with user.session() as session:
        assert session.info.owner == name
        with pytest.raises(LimitReached, match="Try again") as full:
            user.create()
        assert full.value.details["of"] == "key"
        with pytest.raises(Forbidden):
            user.keys.list()
    cove.keys.delete(name)
    with pytest.raises(Unauthorized):
        user.list()
    user.close()


def test_the_network_is_changed_and_its_log_followed(cove: Cove) -> None:
    with cove.session(network="none") as session:
        result = session.exec("getent hosts example.com")
        assert result.network_denied == ["example.com"]
        denied = session.network.log()
        assert (denied[0].host, denied[0].verdict, denied[0].wanted) == ("example.com", "denied", "example.com")
        assert session.network.log(after=denied[-1].sequence) == []
        for decision in session.network.follow():
            assert decision.sequence == 1
            break
        info = session.network.set({"allow": ["example.com:443"], "deny": ["*.example.net"]})
        assert info.allow == ["example.com:443"]
        assert (session.network.get()).network == {"allow": ["example.com:443"], "deny": ["*.example.net"]}


def test_secrets_are_injected_and_never_shown(cove: Cove) -> None:
    secret = cove.secrets.set("token", "sk-4711", hosts=["api.example.com"])
    assert (secret.name, secret.hosts) == ("token", ["api.example.com"])
    assert [one.name for one in cove.secrets.list()] == ["token"]
    header = Injection("api.example.com", "Authorization", "secret:token", "Bearer {}")
    with cove.session(network={"allow": ["api.example.com"]}, inject=[header]) as session:
        assert (session.network.get()).inject == [header.as_json()]
        session.network.set({"allow": ["api.example.com"]}, inject=[])
        assert (session.network.get()).inject == []
    cove.secrets.delete("token")
    assert cove.secrets.list() == []


def test_a_server_is_reached_and_linked(cove: Cove) -> None:
    with cove.session() as session:
        with pytest.raises(PortClosed, match=r"ports\.wait"):
            session.ports.request(8000)
        with pytest.raises(WaitTimedOut, match="8000"):
            session.ports.wait(8000, timeout=0.2)
        session.files.write("index.html", "<h1>it works</h1>")
        server = session.spawn(["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"], cwd="/workspace")
        assert (session.ports.wait(8000)).port == 8000
        assert 8000 in [info.port for info in session.ports.list()]
        answer = session.ports.request(8000, "/index.html")
        assert (answer.status, answer.text) == (200, "<h1>it works</h1>")
        assert (session.ports.request(8000, "/nothing")).status == 404
        with pytest.raises(ValueError, match="slash"):
            session.ports.request(8000, "index.html")
        link = session.ports.url(8000, ttl_seconds=60)
        assert f"8000-{session.id}" in link.url
        session.ports.revoke(8000)
        server.kill()


def test_workspaces_outlive_sessions(cove: Cove) -> None:
    name = f"w-{uuid.uuid4().hex[:8]}"
    with cove.session(workspace=name) as session:
        session.exec("mkdir d; echo kept > d/f")
    assert name in [one.id for one in cove.workspaces.list()]
    assert cove.workspaces.read(name, "d/f") == b"kept\n"
    cove.workspaces.write(name, "d/g", "from outside")
    assert len(cove.workspaces.files(name, "d")) == 2
    with cove.session(workspace=name) as session:
        assert session.files.read_text("d/g") == "from outside"
        with pytest.raises(Conflict):
            cove.workspaces.delete(name)
    cove.workspaces.delete(name, force=True)
    assert name not in [one.id for one in cove.workspaces.list()]


def test_a_workspace_is_made_without_a_session(cove: Cove) -> None:
    name = f"w-{uuid.uuid4().hex[:8]}"
    cove.workspaces.create(name)
    cove.workspaces.create(name)
    cove.workspaces.write(name, "f", "x")
    [found] = [one for one in cove.workspaces.list() if one.id == name]
    assert found.kind in ("disk", "directory")
    cove.workspaces.delete(name)


def test_a_session_is_found_by_its_name(cove: Cove) -> None:
    name = f"n-{uuid.uuid4().hex[:8]}"
    with cove.session(name=name) as session:
        assert [one.id for one in cove.list(name=name)] == [session.id]
        assert session.info.name == name
        with pytest.raises(Conflict, match=name):
            cove.create(name=name)
    assert cove.list(name=name) == []


@pytest.mark.local_only("no image can be made from its sessions")
def test_a_commit_of_a_root_that_cannot_be_changed_says_what_to_do(cove: Cove) -> None:
    with cove.session() as session:
        with pytest.raises(InvalidRequest, match="writable_root"):
            cove.images.commit(session.id, "from-a-test")


def test_images_pools_and_the_daemon_itself(cove: Cove) -> None:
    assert "base" in [image.name for image in cove.images.list()]
    with pytest.raises(NotFound):
        cove.images.get("example.com/nothing:1")
    with pytest.raises((InvalidRequest, InvalidImage)):
        cove.images.pull("not a name!")
    assert (cove.images.prune()).layers == 0
    pool = cove.pools.set("base", 1)
    assert (pool.image, pool.size) == ("base", 1)
    assert len(cove.pools.list()) == 1
    cove.pools.set("base", 0)
    assert (cove.health()).status == "ok"
    assert (cove.ready()).status == "ok"
    assert "cove_" in cove.metrics()

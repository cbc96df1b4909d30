"""What a daemon has besides sessions: images, pools, keys, secrets, snapshots, workspaces."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Literal

from .._errors import ProtocolError, api_error
from .._http import given, query, segment
from .._models import (
    FileList,
    Image,
    ImageDetails,
    Key,
    NetworkSpec,
    NewKey,
    Pool,
    PullProgress,
    RemovedImages,
    Secret,
    Snapshot,
    Workspace,
    read,
    read_list,
)
from ._files import file_list

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._transport import AsyncTransport


class AsyncImages:
    """Images that sessions are created from: `cove.images`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> list[Image]:
        """All images."""
        return read_list(Image, await self._transport.json("GET", "/v1/images"))

    async def get(self, image: str) -> ImageDetails:
        """An image that was pulled or imported."""
        return read(ImageDetails, await self._transport.json("GET", f"/v1/images/{segment(image)}"))

    async def pull(
        self, image: str, *, if_missing: bool = False, progress: Callable[[PullProgress], None] | None = None
    ) -> ImageDetails:
        """Gets an image from a registry. If the connection is lost, the daemon goes on with it."""
        body = {"image": image, **({"if_missing": True} if if_missing else {})}
        return await self._followed("/v1/images/pull", body, progress)

    async def commit(self, session: str, image: str, *, progress: Callable[[PullProgress], None] | None = None) -> ImageDetails:
        """Makes an image from what a session has changed of its root. The session needs a writable root. For admin keys."""
        return await self._followed("/v1/images/commit", {"session_id": session, "image": image}, progress)

    async def _followed(self, path: str, body: dict[str, Any], progress: Callable[[PullProgress], None] | None) -> ImageDetails:
        import httpx

        try:
            async for name, event in self._transport.events("POST", path, body=body):
                if name == "progress" and progress is not None:
                    progress(read(PullProgress, event))
                elif name == "done":
                    return read(ImageDetails, event)
                elif name == "error":
                    raise api_error(event, status=200)
        except httpx.TransportError as error:
            raise await self._transport.unreachable(error) from error
        raise ProtocolError(f"the answer of {path} for {body['image']} ended without a result")

    async def delete(self, image: str) -> RemovedImages:
        """Removes an image. Returns what that freed."""
        return read(RemovedImages, await self._transport.json("DELETE", f"/v1/images/{segment(image)}"))

    async def prune(self) -> RemovedImages:
        """Removes what no image needs. Returns what that freed."""
        return read(RemovedImages, await self._transport.json("POST", "/v1/images/prune"))


class AsyncPools:
    """Sandboxes that are started before anybody asks: `cove.pools`. For admin keys."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> list[Pool]:
        """All pools."""
        return read_list(Pool, await self._transport.json("GET", "/v1/pools"))

    async def set(self, image: str, size: int, *, runtime: str | None = None) -> Pool:
        """Keeps `size` sandboxes of an image ready; 0 ends the pool."""
        body = given(size=size, runtime=runtime)
        answer = await self._transport.json("PUT", f"/v1/pools/{segment(image)}", body=body, repeat="always")
        return read(Pool, answer)


class AsyncKeys:
    """API keys: `cove.keys`. For admin keys."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> list[Key]:
        """All keys, without their secrets."""
        return read_list(Key, (await self._transport.json("GET", "/v1/keys"))["keys"])

    async def create(
        self,
        name: str,
        *,
        role: Literal["user", "admin"] = "user",
        max_sessions: int | None = None,
        max_memory_mb: int | None = None,
        max_network: NetworkSpec | None = None,
    ) -> NewKey:
        """Makes a key. Only this answer has its secret."""
        body = given(
            name=name,
            role=role,
            max_sessions=max_sessions,
            max_memory_mb=max_memory_mb,
            max_network=max_network,
        )
        return read(NewKey, await self._transport.json("POST", "/v1/keys", body=body))

    async def delete(self, name: str) -> None:
        """Removes a key. It is refused from now on; what it owned stays."""
        await self._transport.json("DELETE", f"/v1/keys/{segment(name)}")


class AsyncSecrets:
    """Values that the daemon adds to requests of sandboxes and never shows: `cove.secrets`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> list[Secret]:
        """The secrets of this key, without their values."""
        return read_list(Secret, (await self._transport.json("GET", "/v1/secrets"))["secrets"])

    async def set(self, name: str, value: str, *, hosts: Sequence[str] = ()) -> Secret:
        """Stores a secret, or replaces it. With `hosts` it is sent to these only."""
        body = {"value": value, **({"hosts": list(hosts)} if hosts else {})}
        answer = await self._transport.json("PUT", f"/v1/secrets/{segment(name)}", body=body, repeat="always")
        return read(Secret, answer)

    async def delete(self, name: str) -> None:
        """Removes a secret."""
        await self._transport.json("DELETE", f"/v1/secrets/{segment(name)}")


class AsyncSnapshots:
    """What was kept of sessions: `cove.snapshots`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> list[Snapshot]:
        """All snapshots, the oldest first."""
        return read_list(Snapshot, (await self._transport.json("GET", "/v1/snapshots"))["snapshots"])

    async def get(self, snapshot: str) -> Snapshot:
        """One snapshot."""
        return read(Snapshot, await self._transport.json("GET", f"/v1/snapshots/{segment(snapshot)}"))

    async def delete(self, snapshot: str) -> None:
        """Removes a snapshot. Sessions that came from it stay as they are."""
        await self._transport.json("DELETE", f"/v1/snapshots/{segment(snapshot)}")


class AsyncWorkspaces:
    """Directories that outlive sessions: `cove.workspaces`. Their files can be used without a session."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> list[Workspace]:
        """The workspaces of this key; for an admin, those of all keys."""
        return read_list(Workspace, (await self._transport.json("GET", "/v1/workspaces"))["workspaces"])

    async def create(self, workspace: str) -> None:
        """Makes a workspace. One that exists stays as it is."""
        await self._transport.json("PUT", f"/v1/workspaces/{segment(workspace)}", repeat="always")

    async def delete(self, workspace: str, *, force: bool = False) -> None:
        """Removes a workspace. With `force`, the sessions that use it are destroyed first."""
        options = query({"force": force or None})
        await self._transport.json("DELETE", f"/v1/workspaces/{segment(workspace)}{options}")

    async def files(self, workspace: str, path: str | None = None, *, recursive: bool = False) -> FileList:
        """The entries of a directory."""
        options = query({"path": path, "recursive": recursive or None})
        return file_list(await self._transport.json("GET", f"/v1/workspaces/{segment(workspace)}/fs{options}"))

    async def read(self, workspace: str, path: str, *, max_bytes: int | None = None) -> bytes:
        """The content of a file, or its first `max_bytes`."""
        options = query({"path": path, "max_bytes": max_bytes})
        answer = await self._transport.json("GET", f"/v1/workspaces/{segment(workspace)}/fs/read{options}")
        return base64.b64decode(answer["content_base64"])

    async def write(self, workspace: str, path: str, content: str | bytes) -> None:
        """Writes a small file. The workspace must exist: `create` makes one, and so does a session that names it."""
        raw = content.encode() if isinstance(content, str) else content
        body = {"path": path, "content_base64": base64.b64encode(raw).decode()}
        await self._transport.json("POST", f"/v1/workspaces/{segment(workspace)}/fs/write", body=body)

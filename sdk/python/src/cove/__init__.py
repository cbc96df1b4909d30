"""Sandboxed Linux computers for AI agents, with a shell that remembers. See README.md.

Names are imported when they are first used, so that `import cove` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__

if TYPE_CHECKING:
    from ._async._client import AsyncCove as AsyncCove
    from ._async._files import AsyncFiles as AsyncFiles
    from ._async._parts import AsyncNetwork as AsyncNetwork
    from ._async._parts import AsyncPorts as AsyncPorts
    from ._async._parts import AsyncShell as AsyncShell
    from ._async._process import AsyncProcess as AsyncProcess
    from ._async._session import AsyncSession as AsyncSession
    from ._async._stream import AsyncExecStream as AsyncExecStream
    from ._async._terminal import AsyncTerminal as AsyncTerminal
    from ._async._watch import AsyncWatch as AsyncWatch
    from ._errors import ApiError as ApiError
    from ._errors import BinaryNotFound as BinaryNotFound
    from ._errors import CommandFailed as CommandFailed
    from ._errors import CommandTimedOut as CommandTimedOut
    from ._errors import Conflict as Conflict
    from ._errors import CoveError as CoveError
    from ._errors import DaemonNotFound as DaemonNotFound
    from ._errors import DaemonUnreachable as DaemonUnreachable
    from ._errors import EmbeddedFailed as EmbeddedFailed
    from ._errors import ExecNotFound as ExecNotFound
    from ._errors import FileNotFound as FileNotFound
    from ._errors import Forbidden as Forbidden
    from ._errors import InternalError as InternalError
    from ._errors import InvalidImage as InvalidImage
    from ._errors import InvalidRequest as InvalidRequest
    from ._errors import LimitReached as LimitReached
    from ._errors import MissingExtra as MissingExtra
    from ._errors import NotFound as NotFound
    from ._errors import PortClosed as PortClosed
    from ._errors import ProtocolError as ProtocolError
    from ._errors import SandboxLost as SandboxLost
    from ._errors import SessionExpired as SessionExpired
    from ._errors import SessionNotFound as SessionNotFound
    from ._errors import ShellBusy as ShellBusy
    from ._errors import ShellNotFound as ShellNotFound
    from ._errors import StreamLost as StreamLost
    from ._errors import TooLarge as TooLarge
    from ._errors import Unauthorized as Unauthorized
    from ._errors import WaitTimedOut as WaitTimedOut
    from ._errors import WorkspaceNotFound as WorkspaceNotFound
    from ._models import AwaitingInput as AwaitingInput
    from ._models import Chunk as Chunk
    from ._models import CompactFacts as CompactFacts
    from ._models import Done as Done
    from ._models import Event as Event
    from ._models import ExecInfo as ExecInfo
    from ._models import ExecResult as ExecResult
    from ._models import FileChange as FileChange
    from ._models import FileInfo as FileInfo
    from ._models import FileList as FileList
    from ._models import Gap as Gap
    from ._models import Health as Health
    from ._models import Image as Image
    from ._models import ImageDetails as ImageDetails
    from ._models import Injection as Injection
    from ._models import Key as Key
    from ._models import NetworkDecision as NetworkDecision
    from ._models import NetworkInfo as NetworkInfo
    from ._models import NetworkSpec as NetworkSpec
    from ._models import NewKey as NewKey
    from ._models import Packages as Packages
    from ._models import Pool as Pool
    from ._models import PortInfo as PortInfo
    from ._models import PortLink as PortLink
    from ._models import PortResponse as PortResponse
    from ._models import PullProgress as PullProgress
    from ._models import Queued as Queued
    from ._models import RemovedImages as RemovedImages
    from ._models import Resources as Resources
    from ._models import Running as Running
    from ._models import RunResult as RunResult
    from ._models import Secret as Secret
    from ._models import SessionInfo as SessionInfo
    from ._models import ShellInfo as ShellInfo
    from ._models import Snapshot as Snapshot
    from ._models import Started as Started
    from ._models import Stats as Stats
    from ._models import ToolImage as ToolImage
    from ._models import ToolReply as ToolReply
    from ._models import ToolText as ToolText
    from ._models import Transferred as Transferred
    from ._models import Workspace as Workspace
    from ._settings import DEFAULT as DEFAULT
    from ._sync._client import Cove as Cove
    from ._sync._files import Files as Files
    from ._sync._parts import Network as Network
    from ._sync._parts import Ports as Ports
    from ._sync._parts import Shell as Shell
    from ._sync._process import Process as Process
    from ._sync._session import Session as Session
    from ._sync._stream import ExecStream as ExecStream
    from ._sync._terminal import Terminal as Terminal
    from ._sync._watch import Watch as Watch

_WHERE = {
    "ApiError": "_errors",
    "AsyncCove": "_async._client",
    "AsyncExecStream": "_async._stream",
    "AsyncFiles": "_async._files",
    "AsyncNetwork": "_async._parts",
    "AsyncPorts": "_async._parts",
    "AsyncProcess": "_async._process",
    "AsyncSession": "_async._session",
    "AsyncShell": "_async._parts",
    "AsyncTerminal": "_async._terminal",
    "AsyncWatch": "_async._watch",
    "AwaitingInput": "_models",
    "BinaryNotFound": "_errors",
    "Chunk": "_models",
    "CommandFailed": "_errors",
    "CommandTimedOut": "_errors",
    "CompactFacts": "_models",
    "Conflict": "_errors",
    "Cove": "_sync._client",
    "CoveError": "_errors",
    "DEFAULT": "_settings",
    "DaemonNotFound": "_errors",
    "DaemonUnreachable": "_errors",
    "Done": "_models",
    "EmbeddedFailed": "_errors",
    "Event": "_models",
    "ExecInfo": "_models",
    "ExecNotFound": "_errors",
    "ExecResult": "_models",
    "ExecStream": "_sync._stream",
    "FileChange": "_models",
    "FileInfo": "_models",
    "FileList": "_models",
    "FileNotFound": "_errors",
    "Files": "_sync._files",
    "Forbidden": "_errors",
    "Gap": "_models",
    "Health": "_models",
    "Image": "_models",
    "ImageDetails": "_models",
    "Injection": "_models",
    "InternalError": "_errors",
    "InvalidImage": "_errors",
    "InvalidRequest": "_errors",
    "Key": "_models",
    "LimitReached": "_errors",
    "MissingExtra": "_errors",
    "Network": "_sync._parts",
    "NetworkDecision": "_models",
    "NetworkInfo": "_models",
    "NetworkSpec": "_models",
    "NewKey": "_models",
    "NotFound": "_errors",
    "Packages": "_models",
    "Pool": "_models",
    "PortClosed": "_errors",
    "PortInfo": "_models",
    "PortLink": "_models",
    "PortResponse": "_models",
    "Ports": "_sync._parts",
    "Process": "_sync._process",
    "ProtocolError": "_errors",
    "PullProgress": "_models",
    "Queued": "_models",
    "RemovedImages": "_models",
    "Resources": "_models",
    "RunResult": "_models",
    "Running": "_models",
    "SandboxLost": "_errors",
    "Secret": "_models",
    "Session": "_sync._session",
    "SessionExpired": "_errors",
    "SessionInfo": "_models",
    "SessionNotFound": "_errors",
    "Shell": "_sync._parts",
    "ShellBusy": "_errors",
    "ShellInfo": "_models",
    "ShellNotFound": "_errors",
    "Snapshot": "_models",
    "Started": "_models",
    "Stats": "_models",
    "StreamLost": "_errors",
    "Terminal": "_sync._terminal",
    "TooLarge": "_errors",
    "ToolImage": "_models",
    "ToolReply": "_models",
    "ToolText": "_models",
    "Transferred": "_models",
    "Unauthorized": "_errors",
    "WaitTimedOut": "_errors",
    "Watch": "_sync._watch",
    "Workspace": "_models",
    "WorkspaceNotFound": "_errors",
}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'cove' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return value


def __dir__() -> list[str]:
    return __all__

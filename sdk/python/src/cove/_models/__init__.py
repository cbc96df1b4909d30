"""What the daemon answers, as frozen dataclasses, by topic. `read(Class, answer)` makes one from JSON."""

from __future__ import annotations

from ._read import read, read_list
from .command import CompactFacts, ExecInfo, ExecResult, Kind, OutputView, RunResult, Streams
from .daemon import Health, Image, ImageDetails, Key, NewKey, Pool, PullProgress, RemovedImages, Secret
from .event import AwaitingInput, Chunk, Done, Event, Gap, Queued, Running, Started, StreamName
from .file import ChangeKind, FileChange, FileInfo, FileList, Transferred
from .network import Injection, NetworkDecision, NetworkInfo, NetworkSpec, Packages, PortInfo, PortLink, PortResponse
from .session import Resources, SessionInfo, ShellInfo, Snapshot, Stats, Status, Workspace
from .tool import ToolImage, ToolPart, ToolReply, ToolText

__all__ = [
    "AwaitingInput",
    "ChangeKind",
    "Chunk",
    "CompactFacts",
    "Done",
    "Event",
    "ExecInfo",
    "ExecResult",
    "FileChange",
    "FileInfo",
    "FileList",
    "Gap",
    "Health",
    "Image",
    "ImageDetails",
    "Injection",
    "Key",
    "Kind",
    "NetworkDecision",
    "NetworkInfo",
    "NetworkSpec",
    "NewKey",
    "OutputView",
    "Packages",
    "Pool",
    "PortInfo",
    "PortLink",
    "PortResponse",
    "PullProgress",
    "Queued",
    "RemovedImages",
    "Resources",
    "RunResult",
    "Running",
    "Secret",
    "SessionInfo",
    "ShellInfo",
    "Snapshot",
    "Started",
    "Stats",
    "Status",
    "StreamName",
    "Streams",
    "ToolImage",
    "ToolPart",
    "ToolReply",
    "ToolText",
    "Transferred",
    "Workspace",
    "read",
    "read_list",
]

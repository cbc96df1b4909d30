"""The ten tools of roomkit-sandbox 0.5.0 give in a session what the same programs give on this machine, path by path.

Their Docker backend runs the argv of the command builder and returns status, output and errors. A subprocess in a directory of this
machine, as the user of a sandbox, does the same. Both places get the same calls in the same order, and every result is compared.
Left out is what depends on the place and not on the program: owners, times, sizes of directories, and the order of entries.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("roomkit_sandbox", reason="roomkit-sandbox needs Python 3.12")

from roomkit_sandbox import ContainerSandboxExecutor, NativeCommandBuilder

from cove import AsyncCove
from cove.agents.roomkit import CoveBackend

if TYPE_CHECKING:
    from ..daemon import Daemon

# The user of a sandbox on `local`.
USER = 1000
SECONDS = 30
DATE = "2026-01-02T03:04:05Z"
# With the same dates, commits have the same names. A workspace is a mount, at which git would stop.
ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1",
    **{f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in
       (("NAME", "test"), ("EMAIL", "test@example.com"), ("DATE", DATE))},
}  # fmt: skip

NAMES = [
    *("plain", "with space", "quo'te", 'dou"ble', "`id` $HOME", "back\\slash", "semi;colon & more", "*star?", "[a]", "-x", "~"),
    *("ünï €😀", "e\u0301", "new\nline", "tab\there", "sub/inner file", ".hidden"),
]
CONTENTS = [
    "one\ntwo\nthree\n",
    "no end of line: one",
    "",
    "\n\n",
    "'one' \"two\" $HOME `id` \\n \\ %s %d !\n",
    "crlf one\r\ntwo\r\n",
    "ä€😀 one\n",
    "-n one\n",
]
# What does not hold text, or cannot be read. Made in both places by the same command.
OTHERS = r"""
mkdir -p sub/empty; ln -s plain link; ln -s nowhere broken; ln -s . loop; mkfifo fifo; printf 'one\0two\n' > binary
printf 'one \351\n' > latin; seq 3000 > long; touch forbidden && chmod 000 forbidden; mkdir locked && chmod 000 locked
printf '#!/bin/sh\necho one\n' > script && chmod 755 script
"""
# Not `fifo`, which a program waits for.
PATHS = [
    *NAMES,
    *("sub", "sub/empty", "link", "broken", "loop", "binary", "latin", "long", "forbidden", "locked", "script"),
    *("missing", "missing/inner", "plain/inner", "/no such directory/file", ".", "", "n" * 300),
]


def calls_on(path: str) -> list[tuple[str, dict[str, Any]]]:
    """Calls that only look."""
    return [
        ("read", {"path": path}),
        ("read", {"path": path, "offset": 1, "limit": 1}),
        ("read", {"path": path, "offset": 2}),
        ("read", {"path": path, "limit": 2}),
        ("ls", {"path": path}),
        ("grep", {"pattern": "one", "path": path}),
        ("grep", {"pattern": "t[hw]", "path": path}),
        ("find", {"path": path}),
        ("find", {"path": path, "name": "*e*", "type": "f"}),
        ("diff", {"file_a": path, "file_b": "plain"}),
        ("diff", {"file_a": path, "file_b": path}),
    ]


# Not an empty text, with which their program for `edit` never ends.
EDITS = [("one", "1"), ("one", "a\nb & \\ 'c' \"d\" $HOME"), ("absent", "x"), ("two\nthree", "2\n3"), ("ä€😀", "é")]
OTHER_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ls", {}),
    ("grep", {"pattern": "one"}),
    ("grep", {"pattern": "["}),
    ("grep", {"pattern": "-e"}),
    ("grep", {"pattern": ""}),
    ("find", {}),
    ("find", {"type": "d"}),
    ("find", {"type": "nope"}),
    ("find", {"name": "*.txt"}),
    ("diff", {}),
    ("git", {"args": "status"}),
    ("git", {"args": "init -q -b main ."}),
    ("git", {"args": "status --porcelain"}),
    ("git", {"args": "add plain 'with space' \"quo'te\" 'ünï €😀'"}),
    ("git", {"args": "commit -q -m 'two words'"}),
    ("git", {"args": "log --stat"}),
    ("git", {"args": "rev-parse HEAD --show-toplevel"}),
    ("git", {"args": "show HEAD:'with space'"}),
    ("git", {"args": "diff"}),
    ("git", {"args": "nope"}),
    ("git", {}),
    ("bash", {"command": "echo out; echo err >&2; exit 3"}),
    ("bash", {"command": "kill -9 $$"}),
    ("bash", {"command": "printf 'no end'"}),
    ("bash", {"command": "printf 'a\\0b\\377c'"}),
    ("bash", {"command": 'cat; echo "status $?"'}),
    ("bash", {"command": "seq 100000"}),
    ("bash", {"command": "no-such-program"}),
    ("bash", {"command": "("}),
    ("bash", {"command": ""}),
    ("bash", {}),
    ("unheard_of", {}),
]
# Everything in the directory: names, kinds, modes and contents.
STATE = r"""
find . -path ./.git -prune -o -mindepth 1 -printf '%M %p -> %l\n' | sort
find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum
"""

Result = tuple[int, str, str]


def comparable(tool: str, exit_code: int, output: str, errors: str) -> Result:
    """A result without what depends on the place."""
    if tool == "ls":
        output = "\n".join(sorted(entry(line) for line in output.split("\n")))
    if tool == "diff":
        output = re.sub(r"^((?:---|\+\+\+) .*)\t[-\d]+ [:.\d]+ [+\d]+$", r"\1", output, flags=re.MULTILINE)
    if tool in ("find", "grep"):
        output, errors = ("\n".join(sorted(text.split("\n"))) for text in (output, errors))
    return exit_code, output, errors


def entry(line: str) -> str:
    """Of a line of `ls -la`: the mode, a file's size, and the name."""
    found = re.match(r"([-dlp]\S{9})\S*\s+\d+\s+\S+\s+\S+\s+(\d+)\s+\w{3}\s+\d+\s+[\d:]+ (.*)", line)
    if not found:
        return re.sub(r"^total \d+", "total", line)
    mode, size, name = found.groups()
    return name if name in (".", "..") else f"{mode} {size if mode[0] == '-' else ''} {name}"


class Directly:
    """Runs the argv of the command builder in a directory of this machine."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._builder = NativeCommandBuilder()
        self._home = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/workspace"}

    def execute(self, tool: str, arguments: dict[str, Any]) -> Result:
        ended = subprocess.run(
            self._builder.build(tool, arguments),
            cwd=self._directory,
            env=self._home | ENVIRONMENT,
            user=USER,
            group=USER,
            extra_groups=[],
            umask=0o022,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
        )
        output, errors = (
            text.decode(errors="replace").replace(self._directory, "/workspace") for text in (ended.stdout, ended.stderr)
        )
        # As a shell and Docker tell of a signal.
        exit_code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
        return comparable(tool, exit_code, output, errors)


async def test_every_tool_gives_what_its_program_gives_on_this_machine(daemon: Daemon) -> None:
    async with AsyncCove(daemon.url, daemon.key) as client:
        backend = CoveBackend(client, env={**ENVIRONMENT, "HOME": "/workspace"})
        executor = ContainerSandboxExecutor(
            backend=backend, session_id="native", command_builder=NativeCommandBuilder(), timeout=SECONDS
        )
        with tempfile.TemporaryDirectory(prefix="cove-native-") as parent:
            os.chmod(parent, 0o755)
            directory = f"{parent}/workspace"
            os.mkdir(directory)
            os.chown(directory, USER, USER)
            directly = Directly(directory)
            differing: list[str] = []
            compared = 0

            async def same(tool: str, /, **arguments: Any) -> None:
                nonlocal compared
                compared += 1
                result = await executor.execute(tool, arguments)
                got = comparable(tool, result.exit_code, result.output, result.error)
                wanted = directly.execute(tool, arguments)
                if got != wanted:
                    shown = (str(part)[:400] for part in (arguments, wanted, got))
                    differing.append("{} {}\n  on this machine {}\n  in a session    {}".format(tool, *shown))

            await same("write", path="sub/inner file", content="there is no such directory")
            await same("bash", command="mkdir sub")
            for number, name in enumerate(NAMES):
                await same("write", path=name, content=CONTENTS[number % len(CONTENTS)])
            await same("bash", command=OTHERS)
            await same("bash", command=STATE)
            for path in PATHS:
                for tool, arguments in calls_on(path):
                    await same(tool, **arguments)
            for tool, arguments in OTHER_CALLS:
                await same(tool, **arguments)
            for content in CONTENTS:
                for old, new in EDITS:
                    await same("write", path="edited 'file'", content=content)
                    await same("edit", path="edited 'file'", old_string=old, new_string=new)
                    await same("bash", command="od -c edited*")
            for path in PATHS:
                await same("edit", path=path, old_string="one", new_string="eins")
            await same("bash", command=STATE)
            for path in PATHS:
                if path in (".", ""):
                    continue
                await same("write", path=path, content="written\n")
                await same("read", path=path)
                await same("delete", path=path)
                await same("ls", path=path)
            await same("bash", command=STATE)
            assert differing == [], f"{len(differing)} of {compared} differ:\n" + "\n".join(differing[:20])
            assert compared > 500
        for info in await backend.list_containers():
            if info.session_id == "native":
                await backend.delete_container(info.container_id)

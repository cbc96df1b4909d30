"""Every Python program in a document prints what the document says, and every example runs.

A program in a document is a block ```python file=NAME that a block ```text prints follows. The README of this package shows its
program without a name, and its output as ```output.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cove import Cove

    from .daemon import Daemon

ROOT = Path(__file__).parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "sdk/python/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM_SECONDS = 300
# Programs in fewer pages than this mean that the search for them is broken, not that the documents have none.
FEWEST_PAGES = 10


def programs() -> list[object]:
    """Each program with the block of output after it."""
    found, pages = [], set()
    for document in DOCUMENTS:
        blocks = [(m[1].strip(), m[2]) for m in FENCE.finditer(document.read_text())]
        for (info, text), (next_info, printed) in pairwise([*blocks, ("", "")]):
            language, _, rest = info.partition(" ")
            if language == "python" and next_info in ("text prints", "output") and not rest.startswith("not-run:"):
                name = f"{document.parent.name}/{document.name}:{rest.removeprefix('file=')}"
                found.append(pytest.param(text, printed, id=name))
                pages.add(document)
    assert len(pages) >= FEWEST_PAGES, f"only {len(pages)} documents have programs"
    return found


@pytest.mark.parametrize(("program", "printed"), programs())
def test_a_program_prints_what_its_document_says(program: str, printed: str, daemon: Daemon, tmp_path: Path) -> None:
    if (
        "embedded" in program
        and "--embedded" not in subprocess.run([os.environ["COVE_BIN"], "serve", "--help"], capture_output=True, text=True).stdout
    ):
        pytest.skip("this cove has no `serve --embedded`")
    environment = {**os.environ, "COVE_DATA_DIR": str(daemon.data_dir)}
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, file], env=environment, capture_output=True, text=True, timeout=PROGRAM_SECONDS, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


# What is typed at an example that asks, and what it must have printed then.
TYPED = {
    "interactive.py": (
        "greet me\n\nworld\n!cat greeting; exit 3\ngreet me\nnot now\nbye\n",
        ["Your name? ", "Hello, world.", "I have kept that in the file greeting.", "All I can do is greet you.", "done: 3 lines"],
    )
}


@pytest.mark.parametrize("example", sorted((ROOT / "sdk/python/examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs_with_its_scripted_model(example: Path, daemon: Daemon, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    environment["COVE_DATA_DIR"] = str(daemon.data_dir)
    typed, printed = TYPED.get(example.name, ("", []))
    done = subprocess.run(
        [sys.executable, example], env=environment, input=typed, capture_output=True, text=True, timeout=PROGRAM_SECONDS, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    for text in printed:
        assert text in done.stdout
    assert done.stdout.splitlines()[-1].startswith("done: "), done.stdout


def test_every_call_in_a_migration_table_exists(cove: Cove) -> None:
    """A call is in the last column of a table, such as `session.files.read(path)`. Arguments with a name must exist too."""
    tables = [line for page in (ROOT / "docs/migrate").glob("*.md") for line in page.read_text().splitlines() if line.startswith("| ")]
    calls = {call for line in tables for call in re.findall(r"`((?:cove|session)\.[a-z_.]+[^`]*)`", line.rsplit(" | ", 1)[-1])}
    assert len(calls) > 50, f"only {len(calls)} calls were found"
    wrong = []
    with cove.session() as session:
        for call in sorted(calls):
            names, _, arguments = call.partition("(")
            root, *attributes = names.split(".")
            if attributes[0] == "agents":
                continue
            target: object = {"cove": cove, "session": session}[root]
            for attribute in attributes:
                target = getattr(target, attribute, None)
            wanted = set(re.findall(r"(\w+)=", arguments))
            if target is None or (callable(target) and wanted - set(inspect.signature(target).parameters)):
                wrong.append(call)
    assert wrong == []


def test_the_reference_is_what_the_package_says() -> None:
    tool = ROOT / "sdk/python/tools/reference.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    assert done.returncode == 0, done.stderr

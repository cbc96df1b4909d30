"""Makes `src/cove/_sync` from `src/cove/_async`, and the tests of one from those of the other: one source of truth for both clients.

    python tools/generate_sync.py            writes the files
    python tools/generate_sync.py --check    only compares; status 1 if one differs

It replaces words and lets ruff format the result. `_io.py`, which holds what really differs, is written by hand in both folders.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = [
    (ROOT / "src/cove/_async", ROOT / "src/cove/_sync"),
    (ROOT / "tests/asynchronous", ROOT / "tests/synchronous"),
]
BY_HAND = {"__init__.py", "_io.py"}

WORDS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b_?Async([A-Z])", r"\1"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bAwaitable, ", ""),
    (r"\basynchronous\b", "synchronous"),
    (r"\baiter_raw\b", "iter_raw"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\banext_or_none\b", "next_or_none"),
]
HEADER = "# Generated from {folder}/{name} by tools/generate_sync.py: change that file instead.\n"


def generated(source: Path, target: Path) -> str:
    text = source.read_text()
    for word, replacement in WORDS:
        text = re.sub(word, replacement, text)
    text = HEADER.format(folder=source.parent.name, name=source.name) + text
    ruff = [sys.executable, "-m", "ruff"]
    # Shorter names change the order of imports and the breaks of lines.
    for step in (["check", "--quiet", "--select", "I", "--fix-only"], ["format"]):
        command = [*ruff, *step, "--stdin-filename", str(target), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    only_compare = "--check" in sys.argv[1:]
    differing = []
    for source, target in FOLDERS:
        names = {file.name for file in source.glob("*.py")} - BY_HAND
        stale = {file.name for file in target.glob("*.py")} - BY_HAND - names
        for name in sorted(names | stale):
            text = generated(source / name, target / name) if name in names else None
            there = (target / name).read_text() if (target / name).exists() else None
            if text == there:
                continue
            differing.append(f"{target.name}/{name}")
            if not only_compare and text is None:
                (target / name).unlink()
            elif not only_compare and text is not None:
                (target / name).write_text(text)
    if only_compare and differing:
        print(f"not as generated: {', '.join(differing)}; run python tools/generate_sync.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

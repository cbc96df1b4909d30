"""The command `cove` of the wheel: it becomes the program that the wheel carries."""

from __future__ import annotations

import os
import sys

from ._errors import BinaryNotFound
from ._find import find_binary


def main() -> int:
    try:
        binary = find_binary()
    except BinaryNotFound as error:
        print(f"cove: {error}", file=sys.stderr)
        return 127
    os.execv(binary, ["cove", *sys.argv[1:]])
    return None

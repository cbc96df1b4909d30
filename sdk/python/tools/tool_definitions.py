"""Writes src/cove/_tools.json, the definitions of the daemon's tools.

    curl -s "$COVE_URL/v1/tools?format=mcp" -H "Authorization: Bearer $COVE_API_KEY" > FILE
    python tools/tool_definitions.py FILE

A test compares it with what the daemon serves.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src/cove/_tools.json"


def written(definitions: object) -> str:
    """The definitions as the file has them."""
    return json.dumps(definitions, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    TARGET.write_text(written(json.loads(Path(sys.argv[1]).read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A data-analysis agent that returns a plot: data goes in, the model's program runs in the sandbox, and a PNG comes out.

    python examples/data_analysis.py            writes plot.png to the current directory

Without a key, a scripted model takes the place of a real one. With ANTHROPIC_API_KEY and the package `anthropic`, Claude writes the
programs (COVE_MODEL names the model). They draw with the standard library alone, so the sandbox needs no network; in an image that has
matplotlib, or with network="packages", they could use that.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from cove import CommandFailed, Cove

ROWS = [(day, 20 + 8 * math.sin(day / 9) + (day * 37 % 11) / 4) for day in range(120)]

# The first program has a mistake, as programs of models do. The second is what the model makes of the error.
FIRST = """
import csv
rows = [(int(r["day"]), float(r["temperature"])) for r in csv.DictReader(open("data.csv"))]
print("mean", sum(t for _, t in rows) / len(rows))
"""
SECOND = """
import csv, struct, zlib
rows = [(int(r["day"]), float(r["celsius"])) for r in csv.DictReader(open("data.csv"))]
mean = sum(t for _, t in rows) / len(rows)
print(f"{len(rows)} days, mean {mean:.1f}, highest {max(t for _, t in rows):.1f}")
width, height = 480, 200
low, high = min(t for _, t in rows), max(t for _, t in rows)
pixels = [bytearray(b"\\xff" * 3 * width) for _ in range(height)]
for x in range(width):
    value = rows[x * len(rows) // width][1]
    y = height - 1 - int((value - low) / (high - low) * (height - 1))
    for row in range(y, height):
        pixels[row][3 * x:3 * x + 3] = b"\\x1f\\x77\\xb4" if row < y + 3 else b"\\xd6\\xe6\\xf4"
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
raw = b"".join(b"\\0" + bytes(row) for row in pixels)
with open("plot.png", "wb") as out:
    out.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)))
    out.write(chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))
"""


TASK = """data.csv has the columns day and celsius. Write one Python program that prints the number of days, the mean and the highest
value, and draws the values over the days into plot.png (PNG, written by hand with zlib and struct: there is nothing but the standard
library). Answer with the program alone, without a word or a fence around it."""


def scripted(errors: list[str]) -> str:
    if not errors:
        return FIRST
    assert "KeyError: 'temperature'" in errors[-1]
    return SECOND


def claude(errors: list[str]) -> str:
    import anthropic

    text = TASK + "".join(f"\n\nAn earlier program failed:\n{error}" for error in errors)
    model = os.environ.get("COVE_MODEL", "claude-sonnet-4-5")
    answer = anthropic.Anthropic().messages.create(model=model, max_tokens=4096, messages=[{"role": "user", "content": text}])
    return "".join(block.text for block in answer.content if block.type == "text")


def next_program(errors: list[str]) -> str:
    """The model: it gets the errors of its earlier programs and returns the next one."""
    return (claude if os.environ.get("ANTHROPIC_API_KEY") else scripted)(errors)


def main() -> None:
    with Cove().session("python", memory_mb=512) as session:
        session.files.write("data.csv", "day,celsius\n" + "".join(f"{day},{value:.2f}\n" for day, value in ROWS))
        errors: list[str] = []
        while len(errors) < 5:
            session.files.write("analysis.py", next_program(errors))
            try:
                result = session.exec("python3 analysis.py", check=True, timeout=60)
                break
            except CommandFailed as failed:
                errors.append(failed.output)
                print(f"the program failed: {failed.output.strip().splitlines()[-1]}")
        else:
            raise SystemExit("no program worked")
        plot = session.files.read("plot.png")
    Path("plot.png").write_bytes(plot)
    print(result.output, end="")
    print(f"done: plot.png has {len(plot)} bytes")


if __name__ == "__main__":
    main()

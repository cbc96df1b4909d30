// A data-analysis agent: it sends a table into the sandbox, and gets a plot back as PNG. The "model" is one program that a model would
// write; it uses Python's standard library alone, so it needs no network.
import { Cove } from "@cove/sdk";
import { writeFile } from "node:fs/promises";

const TABLE = "month,visits\njan,120\nfeb,150\nmar,90\napr,240\n";

const PROGRAM = `
import csv, struct, zlib
rows = [(r["month"], int(r["visits"])) for r in csv.DictReader(open("visits.csv"))]
print("mean", sum(v for _, v in rows) / len(rows), "best", max(rows, key=lambda r: r[1])[0])
width, height, bar = 160, 120, 40
picture = [bytearray(b"\\xff" * width * 3) for _ in range(height)]
for i, (_, v) in enumerate(rows):
    top = height - v * height // 250
    for y in range(top, height):
        for x in range(i * bar + 4, (i + 1) * bar - 4):
            picture[y][x * 3:x * 3 + 3] = b"\\x20\\x60\\xc0"
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
raw = b"".join(b"\\0" + bytes(line) for line in picture)
open("plot.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))
`;

await using session = await new Cove().session("base", { labels: { example: "data-analysis" }, resources: { memoryMb: 512 } });
await session.files.write("visits.csv", TABLE);
const { output } = await session.exec("python3 -", { stdin: PROGRAM, check: true, timeoutMs: 30_000 });
console.log(output.trim());
const png = await session.files.read("plot.png");
await writeFile("plot.png", png);
console.log(`plot.png is a PNG: ${String(png[1] === 0x50 && png[2] === 0x4e && png[3] === 0x47)}`);

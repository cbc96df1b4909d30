"""Logs of real programs, shell traces, and several programs in one command."""

PREFIXES = ["log", "mixed", "strace", "screen", "apt"]

APP = '''
import logging, random, sys, json, time

random.seed(7)
kind = sys.argv[1]
clock = [1767607200.0]


class Stamp(logging.Formatter):
    def formatTime(self, record, datefmt=None):
        clock[0] += random.random() * 2
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(clock[0])) + ",%03d" % (clock[0] % 1 * 1000)


handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(Stamp("%(asctime)s %(levelname)-7s [%(name)s] %(message)s"))
logging.basicConfig(level=logging.DEBUG, handlers=[handler])
web, db, jobs = (logging.getLogger(name) for name in ("web", "db.pool", "jobs"))
for n in range(2200 if kind == "huge" else 120):
    web.info("GET /api/orders/%d 200 in %d ms", random.randrange(9999), random.randrange(90))
    if n % 3 == 0:
        db.debug("connection %d returned to the pool, %d idle", random.randrange(20), random.randrange(20))
    if n % 50 == 0:
        jobs.info("job cleanup-%d finished: %d rows", n, random.randrange(999))
    if n == 57:
        db.error("query failed: deadlock detected on table orders (pid 8812)")
    if n == 80:
        web.warning("slow request: GET /api/report took 8123 ms")
    if n == 99:
        try:
            {}["customer_id"]
        except KeyError:
            web.exception("unhandled error in POST /api/orders")
jobs.info("shutdown complete after %d requests", n + 1)
'''

JSON = '''
import json, random
random.seed(3)
for n in range(500):
    level, text = "info", "request served"
    extra = {"path": f"/items/{random.randrange(500)}", "ms": random.randrange(80), "status": 200}
    if n == 321:
        level, text, extra = "error", "payment provider timed out", {"order": 4711, "provider": "acme-pay"}
    print(json.dumps({"ts": f"2026-01-05T10:{n // 60:02}:{n % 60:02}.123Z", "level": level, "msg": text, "service": "shop-web", **extra}))
'''

SYSLOG = '''
import random
random.seed(5)
for n in range(900):
    second = n * 0.137
    print(f"[{second:12.6f}] " + random.choice([
        f"usb 1-{n % 4}: new high-speed USB device number {n % 30} using xhci_hcd",
        f"eth0: link up, {random.choice([100, 1000])} Mbps",
        f"audit: type=1400 audit({n}.{n}): apparmor=ALLOWED pid={n + 300}",
        f"EXT4-fs (sda{n % 5}): mounted filesystem with ordered data mode"]))
    if n == 444:
        print(f"[{second:12.6f}] Out of memory: Killed process 4711 (java) total-vm:8123456kB, anon-rss:7012345kB")
    if n == 600:
        print(f"[{second:12.6f}] EXT4-fs error (device sda3): ext4_find_entry:1455: inode #1234: comm ls: reading directory lblock 0")
'''

SCREEN = '''
import sys
for frame in range(25):
    sys.stdout.write("\\x1b[2J\\x1b[H")
    print("\\x1b[1mbuild monitor\\x1b[0m")
    for n in range(6):
        print(f"  worker {n}: {'compiling' if frame < 24 else 'done'} {frame * 4}%")
print("worker 3 reported: disk quota exceeded")
'''

SCRIPT = '''set -ex
export MODE=test
mkdir -p out
for n in 1 2 3; do
  echo "step $n" > out/$n.txt
  wc -c out/$n.txt
done
cat out/missing.txt
echo never reached
'''


def make(r):
    place = r.project("logs", {"app.py": APP, "json_app.py": JSON, "kernel.py": SYSLOG, "monitor.py": SCREEN, "script.sh": SCRIPT})
    said = ["deadlock detected on table orders (pid 8812)", "KeyError: 'customer_id'", "unhandled error in POST /api/orders", "slow request: GET /api/report took 8123 ms"]
    r.record("log-app", "log", "python3 app.py small", said + ["shutdown complete after 120 requests"], place)
    r.record("log-app-huge", "log", "python3 app.py huge", said + ["shutdown complete after 2200 requests"], place)
    r.record("log-json", "log", "python3 json_app.py", ["payment provider timed out", "acme-pay", "4711"], place)
    r.record("log-kernel", "log", "python3 kernel.py", ["Killed process 4711 (java)", "inode #1234"], place)
    r.record("log-http-server", "log", "python3 -m http.server 18233 --bind 127.0.0.1 & P=$!; sleep 2; for n in $(seq 1 60); do curl -s -o /dev/null http://127.0.0.1:18233/app.py; done; curl -s -o /dev/null http://127.0.0.1:18233/nothing-here; kill $P; wait",
             ["nothing-here", "404"], place)
    r.record("screen-clears", "progress", "python3 monitor.py", ["worker 3 reported: disk quota exceeded", "worker 5: done 96%"], place)
    r.record("mixed-shell-trace", "mixed", "bash script.sh", ["out/missing.txt: No such file or directory"], place)
    r.record("mixed-command-not-found", "mixed", "no-such-program --now || ./missing.sh; python3 -c 'import nothing_here'",
             ["no-such-program: command not found", "./missing.sh: No such file or directory", "No module named 'nothing_here'"], place)
    r.record("mixed-logs-and-tests", "mixed", "python3 app.py small; python3 -m unittest discover -v; ls", said + ["app.py"], place)
    r.record("strace-ls", "strace", "strace ls /", ["execve(", "exited with 0"], place, needs=["strace"])
    r.record("apt-simulate", "apt", "apt-get -s install cowsay", ["cowsay"], place)
    r.record("apt-missing", "apt", "apt-get -s install no-such-package-9", ["Unable to locate package no-such-package-9"], place)
    bad = r.project("mixed-project", {
        "package.json": '{"name": "web", "version": "1.0.0", "scripts": {"test": "node test.js", "build": "echo building && false"}}',
        "test.js": "const assert = require('assert');\nassert.strictEqual(1 + 1, 3, 'sums are wrong');\n",
        "test_it.py": "def test_one():\n    assert 'a' == 'b'\n", "main.c": "int main(void) { return nope; }\n", "Makefile": "all:\n\tgcc -c main.c\n"})
    r.record("mixed-everything", "mixed", "npm test; pytest -q; make; git status",
             ["sums are wrong", "test.js:2", "assert 'a' == 'b'", "test_it.py:2", "main.c:1:25: error", "not a git repository"], bad)
    r.record("mixed-then-list", "mixed", "make; ls -la && npm run build", ["main.c:1:25: error", "package.json", "building"], bad)

"""ls, tree, find, grep, rg, du, cat, and other programs that show files."""

PREFIXES = ["ls", "tree", "find", "grep", "rg", "du", "cat", "wc", "seq", "env", "ps", "df", "base64", "binary"]

CODE = '''"""Module {n}."""

import logging

log = logging.getLogger(__name__)


def handle_{n}(request):
    # TODO: check the size of request {n}
    if request is None:
        raise ValueError("request {n} is empty")
    log.info("handling %s", request)
    return {{"id": {n}, "size": len(request)}}
'''


def make(r):
    files = {f"app/part{a}/handlers/handler_{n:03}.py": CODE.format(n=n) for a in range(4) for n in range(a * 30, a * 30 + 30)}
    files |= {f"app/part{a}/__init__.py": "" for a in range(4)} | {f"web/static/img/icon-{n}.svg": "<svg/>\n" for n in range(80)}
    files |= {"README.md": "# App\n", "config/settings.yaml": "port: 8080\n", "deploy.sh": "#!/bin/sh\nexit 0\n", "web/index.html": "<html></html>\n"}
    tree = r.project("tree", files)
    r.run("chmod 755 deploy.sh; ln -s README.md link.md; chmod 600 config/settings.yaml", tree)
    r.record("ls", "ls", "ls", ["README.md", "deploy.sh", "web"], tree)
    r.record("ls-long", "ls", "ls -la", ["README.md", "deploy.sh", "link.md -> README.md"], tree)
    r.record("ls-long-many", "ls", "ls -la app/part1/handlers", ["handler_030.py", "handler_059.py"], tree)
    r.record("ls-recursive", "ls", "ls -R", ["handler_099.py", "icon-79.svg", "app/part2/handlers"], tree)
    r.record("ls-long-recursive", "ls", "ls -lR app", ["handler_099.py", "app/part2/handlers", "__init__.py"], tree)
    r.record("ls-missing", "ls", "ls -l README.md no-such-file", ["cannot access 'no-such-file'", "README.md"], tree)
    r.record("tree", "tree", "tree", ["handler_099.py", "icon-79.svg", "directories, "], tree, needs=["tree"])
    r.record("find-all", "find", "find .", ["handler_099.py", "icon-79.svg", "settings.yaml"], tree)
    r.record("find-names", "find", "find . -name '*.py' -type f", ["handler_000.py", "handler_119.py"], tree)
    r.record("find-long", "find", "find app -name '*9.py' -ls", ["handler_119.py", "handler_009.py"], tree)
    r.record("find-errors", "find", "find app /no/such/place -maxdepth 1", ["‘/no/such/place’: No such file or directory", "app/part3"], tree)
    r.record("grep-recursive", "grep", "grep -rn TODO app", ["handler_119.py", "check the size of request 42"], tree)
    r.record("grep-many", "grep", "grep -rn 'request' app", ["request 119 is empty", "request 0 is empty", "handler_077.py"], tree)
    r.record("grep-context", "grep", "grep -n -C2 raise app/part0/handlers/handler_001.py", ["request 1 is empty"], tree)
    r.record("grep-files", "grep", "grep -rl ValueError .", ["handler_000.py", "handler_119.py"], tree)
    r.record("grep-missing", "grep", "grep -n foo no-such-file", ["no-such-file: No such file or directory"], tree)
    r.record("rg", "rg", "rg -n TODO", ["handler_119.py", "check the size of request 42"], tree, needs=["rg"])
    r.record("rg-tty", "rg", "rg --color always --heading -n 'raise ValueError' app", ["request 119 is empty", "handler_042.py"], tree, tty=True, needs=["rg"])
    r.record("rg-context", "rg", "rg -C2 raise app/part0", ["request 29 is empty", "handler_007.py"], tree, needs=["rg"])
    r.record("du", "du", "du -a app web", ["web/static", "handler_119.py"], tree)
    r.record("cat-code", "cat", "cat app/part0/handlers/handler_003.py", CODE.format(n=3).strip().splitlines()[:1] + ['raise ValueError("request 3 is empty")', "    # TODO: check the size of request 3"], tree)
    r.record("wc-lines", "wc", "find app -name '*.py' | xargs wc -l", ["total", "handler_119.py"], tree)
    r.record("seq-numbers", "cat", "seq 1 4000", ["1\n2\n3\n", "4000"], tree)
    r.record("cat-csv", "cat", "cat prices.csv", ["id,name,price", "7,item 7,21", "79,item 79,237"], r.project("tree", {"prices.csv": "id,name,price\n" + "".join(f"{n},item {n},{n * 3}\n" for n in range(80))}))
    r.record("cat-makefile", "cat", "sed -n 1,40p Makefile.sample", ["\tcc -o app main.o", ".PHONY: clean"], r.project("tree", {"Makefile.sample": "app: main.o\n\tcc -o app main.o\n\n\n.PHONY: clean\nclean:\n\trm -f app\n"}))
    r.record("base64-long-line", "cat", "head -c 60000 /dev/zero | tr '\\0' 'x' | base64 -w0; echo; echo end of key", ["end of key", "eHh4eHh4"], tree)
    r.record("binary-cat", "cat", "head -c 9000 /bin/true; echo; echo after the binary", ["after the binary"], tree)
    r.record("ps", "ps", "ps -e -o pid,comm | head -4", ["PID"], tree)
    r.record("df", "ps", "df -h / /dev/shm", ["Filesystem", "Mounted on"], tree)

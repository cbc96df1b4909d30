"""pytest, unittest, ruff, mypy, pip, uv, tracebacks and progress bars of Python programs."""

PREFIXES = ["pytest", "unittest", "ruff", "mypy", "pip", "uv", "python", "progress"]

SHOP = '''
class OutOfStock(Exception):
    pass


def total(prices, discount=0):
    return sum(prices) - discount


def reserve(stock, name, count):
    if stock.get(name, 0) < count:
        raise OutOfStock(f"only {stock.get(name, 0)} of {name} left, {count} wanted")
    stock[name] -= count
    return stock


def parse(line):
    name, price = line.split(";")
    return {"name": name, "price": int(price)}
'''

PASSING = '''
import pytest
from shop import OutOfStock, parse, reserve, total


@pytest.mark.parametrize("count", range(%d))
def test_total_of_many(count):
    assert total([1] * count) == count


def test_reserve():
    assert reserve({"pen": 3}, "pen", 2) == {"pen": 1}


def test_reserve_too_many():
    with pytest.raises(OutOfStock):
        reserve({}, "pen", 1)


def test_parse():
    assert parse("pen;3") == {"name": "pen", "price": 3}
'''

FAILING = '''
import sys
import pytest
from shop import parse, reserve, total


def test_discount_is_subtracted():
    assert total([10, 20], discount=5) == 30


def test_parse_of_a_whole_catalogue():
    expected = {"name": "pen", "price": 4, "tags": ["blue", "red"]}
    assert parse("pen;3") == expected


def test_reserve_raises():
    stock = {"ink": 2}
    reserve(stock, "ink", 5)


def test_prints_before_it_fails():
    print("connecting to database at db.internal:5432")
    print("warning: slow query", file=sys.stderr)
    assert "ready" in "state: waiting for lock"


def test_bad_number():
    parse("pen;three")


@pytest.fixture
def server():
    raise RuntimeError("port 9041 is in use")


def test_needs_a_server(server):
    pass
'''

MIXED = '''
import warnings
import pytest


@pytest.mark.skip(reason="needs a GPU")
def test_gpu():
    pass


@pytest.mark.xfail(reason="bug 4711")
def test_known_bug():
    assert 1 == 2


def test_warns():
    warnings.warn("old_call is deprecated, use new_call", DeprecationWarning)


def test_ok():
    pass
'''

MANY = '''
import pytest


@pytest.mark.parametrize("n", range(600))
def test_is_not_a_multiple_of_97(n):
    value = n * 3
    assert n == 0 or value %% 97 != 0, f"{n} gives {value}"
'''.replace("%%", "%")

UNIT = '''
import unittest
from shop import parse, reserve, total


class Totals(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(total([1, 2]), 3)

    def test_discount(self):
        self.assertEqual(total([10], discount=1), 10, "discount lost")

    def test_catalogue(self):
        self.assertEqual(parse("pen;3"), {"name": "pen", "price": 4})


class Stock(unittest.TestCase):
    def test_reserve(self):
        reserve({"ink": 2}, "ink", 5)

    @unittest.skip("no printer here")
    def test_print(self):
        pass
'''

UNIT_MANY = '''
import unittest


class Many(unittest.TestCase):
    pass


def add(n):
    def test(self):
        self.assertNotEqual(n, 137, f"row {n} is broken")
    setattr(Many, f"test_row_{n:03}", test)


for n in range(400):
    add(n)
'''

TRACE = '''
import json, sys


class ConfigError(Exception):
    pass


def read(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError("settings.json cannot be read") from error


def deep(n):
    return deep(n + 1)


def main():
    kind = sys.argv[1]
    if kind == "chain":
        read('{"a": 1,, }')
    if kind == "deep":
        deep(0)
    if kind == "key":
        {"a": 1}["user_id"]
    if kind == "group":
        raise ExceptionGroup("two uploads failed", [ValueError("part 3 is empty"), OSError("disk full on /data")])


main()
'''

BAD_TYPES = '''
import os, sys
from typing import List


def head(items: List[int]) -> str:
    return items[0]


def join(a: str, b: int) -> str:
    return a + b


x: int = head([1])
unused = undefined_name
l = lambda: 0
''' + "\n".join(f"def f{n}(a: int) -> str:\n    return a\n" for n in range(40))

BARS = '''
import sys, time
from tqdm import tqdm

for epoch in range(3):
    for _ in tqdm(range(400), desc=f"epoch {epoch}", mininterval=0):
        pass
    print(f"epoch {epoch}: loss {1 / (epoch + 2):.4f}")
print("saved model to out/model-final.bin")
'''

HAND_BARS = '''
import sys, time

names = ["base", "tools", "docs", "app"]
done = [0] * 4
print("\\n" * 3)
for step in range(160):
    done[step % 4] += 1
    sys.stdout.write("\\x1b[4A")
    for name, count in zip(names, done):
        sys.stdout.write(f"\\x1b[2K\\x1b[32m{name:6}\\x1b[0m [{'#' * count}{' ' * (40 - count)}] {count * 100 // 40}%\\n")
print("\\x1b[31merror\\x1b[0m: layer docs has a wrong checksum: expected 9f3a, found 11bc")
sys.exit(4)
'''


def make(r):
    shop = r.project("shop", {"shop.py": SHOP, "test_shop.py": PASSING % 9})
    r.record("pytest-pass", "pytest", "pytest", ["12 passed"], shop)
    r.record("pytest-pass-verbose", "pytest", "python3 -m pytest -v", ["12 passed"], shop)
    r.record("pytest-pass-quiet", "pytest", "pytest -q", ["12 passed"], shop)
    r.record("pytest-pass-tty", "pytest", "cd . && pytest -v --color=yes", ["12 passed"], shop, tty=True)
    huge = r.project("huge", {"shop.py": SHOP, "test_a.py": PASSING % 900, "test_b.py": PASSING % 700})
    r.record("pytest-huge-verbose", "pytest", "pytest -v", ["1606 passed"], huge)
    r.record("pytest-huge", "pytest", "pytest", ["1606 passed"], huge)
    r.record("pytest-huge-xdist", "pytest", "pytest -v -n 2", ["1606 passed"], huge)
    bad = r.project("bad", {"shop.py": SHOP, "test_good.py": PASSING % 40, "test_bad.py": FAILING})
    names = ["test_discount_is_subtracted", "test_parse_of_a_whole_catalogue", "test_reserve_raises", "test_prints_before_it_fails",
             "test_bad_number", "test_needs_a_server"]
    said = ["assert 25 == 30", "only 2 of ink left, 5 wanted", "invalid literal for int() with base 10: 'three'", "port 9041 is in use",
            "5 failed, 43 passed, 1 error"]
    where = ["test_bad.py:8", "shop.py:12", "shop.py:19"]
    r.record("pytest-fail", "pytest", "pytest", names + said + where + ["db.internal:5432", "'tags': ['blue', 'red']"], bad)
    r.record("pytest-fail-verbose", "pytest", "pytest -vv", names + said + where + ["state: waiting for lock"], bad)
    r.record("pytest-fail-tty", "pytest", "pytest --color=yes", names + said + where, bad, tty=True)
    r.record("pytest-fail-short", "pytest", "pytest --tb=short", names + said + where, bad)
    r.record("pytest-fail-line", "pytest", "pytest --tb=line", names + said[1:] + where, bad)
    r.record("pytest-fail-first", "pytest", "pytest -x -q test_bad.py", [names[0], said[0], where[0], "1 failed"], bad)
    r.record("pytest-fail-native", "pytest", "pytest --tb=native", names + said[1:], bad)
    r.record("pytest-fail-quiet-no-summary", "pytest", "pytest -q -r N", names + said + where, bad)
    r.record("pytest-fail-locals", "pytest", "pytest -l --tb=long test_bad.py", names + said[1:4] + where, bad)
    r.record("pytest-fail-tail", "pytest", "pytest 2>&1 | tail -12", names + ["5 failed, 43 passed, 1 error"], bad)
    mixed = r.project("mixed", {"test_mixed.py": MIXED})
    r.record("pytest-skip-xfail-warn", "pytest", "pytest -rsx",
             ["2 passed, 1 skipped, 1 xfailed, 1 warning", "needs a GPU", "bug 4711", "old_call is deprecated"], mixed)
    many = r.project("many", {"test_many.py": MANY})
    r.record("pytest-huge-fail", "pytest", "pytest", ["6 failed, 594 passed", "97 gives 291", "485 gives 1455", "test_many.py:8"], many)
    r.record("pytest-huge-fail-verbose", "pytest", "pytest -v --durations=5", ["6 failed, 594 passed", "582 gives 1746", "[194]"], many)
    broken = r.project("broken", {"test_import.py": "import no_such_module\n", "test_syntax.py": "def test(:\n    pass\n"})
    r.record("pytest-collection-error", "pytest", "pytest", ["No module named 'no_such_module'", "test_syntax.py", "SyntaxError", "2 errors"], broken)
    r.record("pytest-no-tests", "pytest", "pytest -q nothing.py", ["file or directory not found: nothing.py"], broken)
    r.record("pytest-in-make", "pytest", "make check", ["test_bad_number", "only 2 of ink left, 5 wanted", "Error 1", "test_bad.py:8"],
             r.project("bad", {"Makefile": "check:\n\t@echo starting checks\n\tpytest test_bad.py test_good.py\n"}))

    unit = r.project("unit", {"shop.py": SHOP, "test_unit.py": UNIT})
    facts = ["test_discount", "9 != 10", "discount lost", "OutOfStock: only 2 of ink left, 5 wanted", "test_unit.py\", line 11", "failures=2, errors=1"]
    r.record("unittest-fail", "unittest", "python3 -m unittest", facts, unit)
    r.record("unittest-fail-verbose", "unittest", "python3 -m unittest -v", facts + ["no printer here"], unit)
    many = r.project("unit-many", {"test_many.py": UNIT_MANY})
    r.record("unittest-huge-verbose", "unittest", "python3 -m unittest -v", ["test_row_137", "row 137 is broken", "failures=1", "Ran 400 tests"], many)
    r.record("unittest-pass", "unittest", "python3 -m unittest test_unit.Totals.test_sum", ["Ran 1 test", "OK"], unit)

    app = r.project("trace", {"trace.py": TRACE, "bad.py": "def f(:\n    pass\n"})
    r.record("python-trace-chain", "trace", "python3 trace.py chain",
             ["JSONDecodeError: Expecting property name", "ConfigError: settings.json cannot be read", "trace.py\", line 13", "direct cause"], app)
    r.record("python-trace-deep", "trace", "python3 trace.py deep", ["RecursionError: maximum recursion depth exceeded", "trace.py\", line 17"], app)
    r.record("python-trace-key", "trace", "python3 trace.py key", ["KeyError: 'user_id'", "line 27"], app)
    r.record("python-trace-group", "trace", "python3 trace.py group", ["part 3 is empty", "disk full on /data", "two uploads failed"], app)
    r.record("python-syntax-error", "trace", "python3 bad.py", ["bad.py\", line 1", "SyntaxError"], app)

    types = r.project("types", {"types_bad.py": BAD_TYPES})
    r.record("ruff-check", "ruff", "ruff check --select E,F types_bad.py", ["F401", "undefined_name", "E731"], types, needs=["ruff"])
    r.record("ruff-check-concise", "ruff", "ruff check --output-format concise .", ["F821", "undefined_name", "types_bad.py:15:10"], types, needs=["ruff"])
    r.record("mypy-errors", "mypy", "mypy types_bad.py",
             ["types_bad.py:7: error", "types_bad.py:11: error: Unsupported operand types", "undefined_name", "Found 44 errors in 1 file", "types_bad.py:60: error"],
             types, needs=["mypy"])

    pip = r.project("pip", {"requirements.txt": "requests==2.32.3\nflask==3.0.3\nrich==13.9.4\nclick<9\n"})
    r.run("python3 -m venv env", pip)
    r.record("pip-install", "pip", "env/bin/pip install -r requirements.txt", ["Successfully installed", "flask-3.0.3", "requests-2.32.3"], pip)
    r.record("pip-install-again", "pip", "env/bin/pip install -r requirements.txt", ["already satisfied"], pip)
    r.record("pip-install-tty", "pip", "env/bin/pip install --no-cache-dir --force-reinstall pygments rich==13.9.4", ["Successfully installed", "rich-13.9.4"], pip, tty=True)
    r.record("pip-no-version", "pip", "env/bin/pip install requests==99.1", ["No matching distribution found for requests==99.1"], pip)
    r.record("pip-conflict", "pip", "env/bin/pip install flask==3.0.3 werkzeug==1.0.0", ["conflict", "flask 3.0.3 depends on Werkzeug>=3.0.0"], pip)
    r.record("pip-list", "pip", "env/bin/pip list", ["Flask", "3.0.3", "requests"], pip)
    r.record("pip-build-fails", "pip", "env/bin/pip install ./broken", ["version is not known on this planet"],
             r.project("pip", {"broken/setup.py": "raise RuntimeError('version is not known on this planet')\n"}))
    r.run("uv venv uvenv", pip)
    r.record("uv-install", "uv", "VIRTUAL_ENV=uvenv uv pip install -r requirements.txt", ["flask==3.0.3", "Installed"], pip, needs=["uv"])
    r.record("uv-install-tty", "uv", "VIRTUAL_ENV=uvenv uv pip install --no-cache --reinstall rich==13.9.4", ["rich==13.9.4", "Installed"], pip, tty=True, needs=["uv"])
    r.record("uv-conflict", "uv", "VIRTUAL_ENV=uvenv uv pip install flask==3.0.3 werkzeug==1.0.0", ["unsatisfiable", "werkzeug==1.0.0"], pip, needs=["uv"])

    bars = r.project("bars", {"train.py": BARS, "layers.py": HAND_BARS})
    r.record("progress-tqdm", "progress", "python3 train.py", ["epoch 2: loss 0.2500", "saved model to out/model-final.bin"], bars)
    r.record("progress-tqdm-tty", "progress", "python3 train.py", ["epoch 1: loss 0.3333", "saved model to out/model-final.bin"], bars, tty=True)
    r.record("progress-many-bars", "progress", "python3 layers.py", ["layer docs has a wrong checksum: expected 9f3a, found 11bc"], bars)
    r.record("progress-dd", "progress", "dd if=/dev/zero of=/dev/null bs=1M count=3000 status=progress", ["3000+0 records out"], bars)

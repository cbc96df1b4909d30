"""A small git repository with a Python package, its unittest tests, and one bug. It needs nothing but Python and git."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Each module with its source, and the calls that its tests make with what they must give.
MODULES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "discounts": (
        '''"""Discounts by quantity."""


def percent_off(quantity: int) -> int:
    """Ten percent from ten pieces on, twenty from a hundred."""
    if quantity >= 100:
        return 20
    if quantity > 10:
        return 10
    return 0


def discounted(price: int, quantity: int) -> int:
    """The price of all pieces, in cents, rounded down."""
    return price * quantity * (100 - percent_off(quantity)) // 100
''',
        [(f"discounted(200, {n})", str(200 * n * (100 - (20 if n >= 100 else 10 if n >= 10 else 0)) // 100)) for n in
         (0, 1, 2, 3, 5, 8, 9, 10, 11, 12, 20, 50, 75, 98, 99, 100, 101, 150, 200, 1000)],
    ),
    "money": (
        '''"""Amounts of money, in cents."""


def shown(cents: int) -> str:
    """An amount as people write it."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"
''',
        [(f"shown({n})", repr(f"{'-' if n < 0 else ''}{abs(n) // 100}.{abs(n) % 100:02d}")) for n in
         (0, 1, 5, 9, 10, 50, 99, 100, 101, 110, 999, 1000, 12345, 99999, -1, -10, -99, -100, -101, -12345)],
    ),
    "names": (
        '''"""Names of customers."""


def initials(name: str) -> str:
    """The first letters of all words, as capitals."""
    return "".join(word[0].upper() for word in name.split())
''',
        [(f"initials({name!r})", repr("".join(word[0].upper() for word in name.split()))) for name in
         ("Ada Lovelace", "alan turing", "Grace Brewster Hopper", "plato", "", "  edsger   dijkstra ", "é b", "a-b c", "1 2 3",
          "Barbara Liskov", "donald knuth", "x y z", "Frances Allen", "tony hoare", "Niklaus Wirth", "john backus", "o'neil")],
    ),
    "stock": (
        '''"""What is in the warehouse."""


def packages(pieces: int, size: int) -> tuple[int, int]:
    """Full packages of a size, and the pieces that are left."""
    return divmod(pieces, size)
''',
        [(f"packages({n}, {size})", repr(divmod(n, size))) for n, size in
         ((0, 6), (1, 6), (5, 6), (6, 6), (7, 6), (12, 6), (13, 6), (100, 6), (100, 12), (144, 12), (145, 12), (1, 1), (9, 10),
          (10, 10), (11, 10), (99, 10), (1000, 24), (1001, 24), (23, 24), (24, 24))],
    ),
    "taxes": (
        '''"""Value added tax."""


def with_tax(cents: int, percent: int) -> int:
    """An amount with its tax, rounded to the nearest cent."""
    return (cents * (100 + percent) + 50) // 100
''',
        [(f"with_tax({n}, {percent})", str((n * (100 + percent) + 50) // 100)) for n, percent in
         ((0, 20), (1, 20), (2, 20), (3, 20), (100, 0), (100, 7), (100, 19), (100, 20), (99, 7), (99, 19), (999, 19), (12345, 7),
          (12345, 19), (1, 7), (7, 7), (8, 7), (50, 19), (150, 19), (2500, 25), (3333, 25))],
    ),
}  # fmt: skip
TESTS = sum(len(calls) for _, calls in MODULES.values())
# The one test that fails, and what its assertion says.
FAILING = "test_discounted_200_10"
MESSAGE = "AssertionError: 2000 != 1800"


def source_of_tests(module: str, calls: list[tuple[str, str]]) -> str:
    lines = [
        "import unittest",
        "",
        f"from shop.{module} import *  # noqa: F403",
        "",
        "",
        f"class Test{module.title()}(unittest.TestCase):",
    ]
    for number, (call, wanted) in enumerate(calls):
        readable = call.replace("-", " minus ")
        words = "".join(letter if letter.isalnum() and letter.isascii() else " " for letter in readable).split()
        name = "_".join(words if module != "names" else [words[0], str(number)])
        lines += [f"    def test_{name}(self) -> None:", f"        self.assertEqual({call}, {wanted})", ""]
    return "\n".join([*lines[:-1], "", "", 'if __name__ == "__main__":', "    unittest.main()", ""])


def make(root: Path) -> None:
    for folder in ("shop", "tests"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    for module, (source, calls) in MODULES.items():
        (root / "shop" / f"{module}.py").write_text(source)
        (root / "tests" / f"test_{module}.py").write_text(source_of_tests(module, calls))
    (root / "README.md").write_text("# shop\n\nPrices, taxes and stock. Run the tests with `python3 -m unittest -v`.\n")
    (root / ".gitignore").write_text("__pycache__/\n")
    git = ["git", "-C", str(root), "-c", "user.name=test", "-c", "user.email=test@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "A shop with one bug"]):
        subprocess.run([*git, *words], check=True)

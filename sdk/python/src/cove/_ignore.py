"""Decides which files an ignore file leaves out: the rules of `.gitignore`. Pure: it reads no files.

A pattern without a slash matches a name at any depth below its ignore file; one with a slash matches from there on; one that ends in a
slash matches directories. `*` and `?` do not match a slash, `**` does. `!` takes a file back in. The last pattern that matches wins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    regex: re.Pattern[str]
    is_negated: bool
    only_directories: bool


def parse(lines: list[str]) -> list[Rule]:
    """The rules of an ignore file. Lines that mean nothing are passed over, as git does."""
    return [rule for line in lines if (rule := _rule(line)) is not None]


def _rule(line: str) -> Rule | None:
    line = line.rstrip("\n").rstrip("\r")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#"):
        return None
    is_negated = line.startswith("!")
    line = line[1:] if is_negated else line
    only_directories = line.endswith("/")
    line = line.rstrip("/") if only_directories else line
    if not line:
        return None
    is_anchored = "/" in line
    line = line.removeprefix("/")
    try:
        regex = re.compile(("" if is_anchored else "(?:.*/)?") + _translated(line))
    except re.error:
        return None
    return Rule(regex, is_negated, only_directories)


def _translated(pattern: str) -> str:
    out, i = "", 0
    while i < len(pattern):
        char = pattern[i]
        if pattern.startswith("**/", i) and (i == 0 or pattern[i - 1] == "/"):
            out, i = out + "(?:.*/)?", i + 3
        elif pattern[i:] == "**" and i > 0 and pattern[i - 1] == "/":
            out, i = out + ".+", i + 2
        elif char == "*":
            while i < len(pattern) and pattern[i] == "*":
                i += 1
            out += "[^/]*"
        elif char == "?":
            out, i = out + "[^/]", i + 1
        elif char == "[" and (end := _class_end(pattern, i)) > 0:
            body = pattern[i + 1 : end]
            negation = "^/" if body[0] in "!^" else ""
            body = body[1:] if negation else body
            escaped = body.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
            out, i = f"{out}(?!/)[{negation}{escaped}]", end + 1
        elif char == "\\" and i + 1 < len(pattern):
            out, i = out + re.escape(pattern[i + 1]), i + 2
        else:
            out, i = out + re.escape(char), i + 1
    return out


def _class_end(pattern: str, start: int) -> int:
    first = start + 1
    if first < len(pattern) and pattern[first] in "!^":
        first += 1
    return pattern.find("]", first + 1)


@dataclass
class Ignore:
    """The rules for a tree: each list of rules counts below its own directory, a deeper one over a higher one."""

    levels: list[tuple[str, list[Rule]]]

    def with_rules(self, directory: str, rules: list[Rule]) -> Ignore:
        return Ignore([*self.levels, (directory, rules)]) if rules else self

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Whether a path is left out. What is below a directory that is left out need not be asked about."""
        for directory, rules in reversed(self.levels):
            below = path[len(directory) + 1 :] if directory else path
            for rule in reversed(rules):
                if rule.only_directories and not is_directory:
                    continue
                if rule.regex.fullmatch(below):
                    return not rule.is_negated
        return False

"""Writes docs/reference/python.md from the signatures and docstrings of the package.

    python tools/reference.py            writes the page
    python tools/reference.py --check    only compares; status 1 if the page differs

The page shows what a user calls: the synchronous classes, what they return, and the exceptions. Private names are left out. Signatures
are in indented blocks, because fenced ones are programs that the tests of the documents run.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

import cove
from cove import _errors, _settings, agents
from cove._models import command, event, network, session, tool
from cove._sync import _files, _resources, _stream

PAGE = Path(__file__).parents[3] / "docs/reference/python.md"
WIDTH = 116
# A longer list of parameters is shown once, if two methods have the same.
LONG_LIST = 8
HEAD = """# The Python SDK

This page is made from the package `cove-sandbox` by `sdk/python/tools/reference.py`: do not change it by hand. The
[guide](../guides/python.md) shows how the parts are used together.

`AsyncCove`, `AsyncSession` and so on have the same names: calls take `await`, iterators `async for`, context managers `async with`.
Times are in seconds and sizes in bytes, unless a name says otherwise.
"""
# What a user holds, in the order of the page, with the name that the examples give to it.
CALLED: list[tuple[str, list[tuple[type, str]]]] = [
    ("The client", [(cove.Cove, "cove")]),
    ("A session", [(cove.Session, "session")]),
    ("Output and processes", [(cove.ExecStream, "stream"), (cove.Process, "process")]),
    (
        "Parts of a session",
        [
            (cove.Files, "session.files"),
            (cove.Ports, "session.ports"),
            (cove.Network, "session.network"),
            (cove.Shell, "shell"),
            (cove.Terminal, "terminal"),
        ],
    ),
    (
        "Parts of the client",
        [
            (_resources.Workspaces, "cove.workspaces"),
            (_resources.Snapshots, "cove.snapshots"),
            (_resources.Images, "cove.images"),
            (_resources.Pools, "cove.pools"),
            (_resources.Keys, "cove.keys"),
            (_resources.Secrets, "cove.secrets"),
        ],
    ),
    ("Tools for models: `cove.agents`", [(agents.Tools, "tools"), (agents.AnthropicTools, "tools")]),
]
ALIASES = [
    (_settings, "Timeout"),
    (network, "NetworkSpec"),
    (command, "Streams"),
    (command, "OutputView"),
    (event, "StreamName"),
    (command, "Kind"),
    (session, "Status"),
    (event, "Event"),
    (_stream, "OnCancel"),
    (_files, "Content"),
    (tool, "ToolPart"),
]


def tree_of(thing: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


def documented(body: list[ast.stmt]) -> list[tuple[ast.stmt, str]]:
    """Each statement with the string after it, which is its documentation."""
    found = []
    for statement, following in zip(body, [*body[1:], None], strict=True):
        is_text = (
            isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant) and isinstance(following.value.value, str)
        )
        found.append((statement, inspect.cleandoc(following.value.value) if is_text else ""))  # type: ignore[union-attr]
    return found


def paragraphs(thing: Any) -> str:
    """A docstring with one line for each paragraph."""
    text = inspect.getdoc(thing) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def parameter(one: inspect.Parameter) -> str:
    text = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(one.kind.name, "") + str(one.name)
    if one.annotation is not inspect.Parameter.empty:
        text += f": {one.annotation}"
    if one.default is not inspect.Parameter.empty:
        value = "DEFAULT" if one.default is cove.DEFAULT else repr(one.default)
        text += f" = {value}"
    return text


def parameters(function: Any) -> list[str]:
    """The public parameters, with a `*` before the first that has to be named."""
    shown: list[str] = []
    for one in list(inspect.signature(function).parameters.values()):
        if one.name in ("self", "cls") or one.name.startswith("_"):
            continue
        if one.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        shown.append(parameter(one))
    return shown


def call(name: str, shown: list[str], answer: str) -> str:
    """A signature as an indented block. A long one continues in lines of whole parameters."""
    whole = f"{name}({', '.join(shown)}){answer}"
    if len(whole) <= WIDTH:
        return f"    {whole}\n"
    lines = [""]
    for one in shown:
        if len(lines[-1]) + len(one) > WIDTH:
            lines.append("")
        lines[-1] += f"{one}, "
    return f"    {name}(\n" + "".join(f"        {line.rstrip()}\n" for line in lines) + f"    ){answer}\n"


def answer(function: Any) -> str:
    annotation = inspect.signature(function).return_annotation
    return "" if annotation in (inspect.Signature.empty, "None", None) else f" -> {annotation}"


def comment(text: str) -> str:
    return f"  # {' '.join(text.split())}" if text else ""


def attributes(cls: type, prefix: str) -> str:
    """What `__init__` sets: parts with their class, and values with the text that follows them."""
    if "__init__" not in vars(cls):
        return ""
    made = tree_of(vars(cls)["__init__"]).body[0]  # type: ignore[attr-defined]
    lines = []
    for statement, text in documented(made.body):
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            continue
        target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
            value = statement.value
            is_part = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id[0].isupper()
            kind = f": {value.func.id}" if is_part else ""  # type: ignore[union-attr]
            lines.append(f"    {prefix}.{target.attr}{kind}{comment(text)}\n")
    return "".join(lines) + "\n" if lines else ""


def methods(cls: type, prefix: str) -> str:
    """The public methods and properties. If two have the same long list of parameters, the last one shows it."""
    text = ""
    members = {name: member for name, member in vars(cls).items() if not name.startswith("_")}
    functions = {name: getattr(member, "__func__", member) for name, member in members.items() if not isinstance(member, property)}
    lists = {name: parameters(function) for name, function in functions.items() if inspect.isfunction(function)}
    for name, member in members.items():
        if isinstance(member, property):
            text += f"    {prefix}.{name}{answer(member.fget).replace(' ->', ':')}\n\n{paragraphs(member)}\n\n"
        elif name in lists:
            later = list(lists)[list(lists).index(name) + 1 :]
            is_repeated = len(lists[name]) > LONG_LIST and any(lists[other] == lists[name] for other in later)
            owner = cls.__name__ if isinstance(member, classmethod) else prefix
            shown = ["…"] if is_repeated else lists[name]
            text += f"{call(f'{owner}.{name}', shown, answer(functions[name]))}\n{paragraphs(functions[name])}\n\n"
    return text


def called(cls: type, prefix: str) -> str:
    is_made_by_users = cls is cove.Cove or issubclass(cls, agents.Tools)
    constructor = call(cls.__name__, parameters(cls.__init__), "") + "\n" if is_made_by_users else ""  # type: ignore[misc]
    return f"### {cls.__name__}\n\n{paragraphs(cls)}\n\n{constructor}{attributes(cls, prefix)}{methods(cls, prefix)}"


def fields(cls: type) -> str:
    """The fields of a dataclass with their types, and what their documentation says, also those of a private base."""
    comments = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            definition = tree_of(base).body[0]  # type: ignore[attr-defined]
            for statement, text in documented(definition.body):
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    comments[statement.target.id] = text
    lines = []
    for one in dataclasses.fields(cls):
        default = f" = {one.default!r}" if one.default is not dataclasses.MISSING else ""
        lines.append(f"    {one.name}: {one.type}{default}{comment(comments.get(one.name, ''))}\n")
    return "".join(lines)


def value(cls: type) -> str:
    own = {name: member for base in reversed(cls.__mro__) for name, member in vars(base).items() if not name.startswith("_")}
    more = [
        f"- `{name}`: {paragraphs(member)}\n"
        for name, member in own.items()
        if isinstance(member, property) or (inspect.isfunction(member) and inspect.getdoc(member))
    ]
    tail = "".join(more) + "\n" if more else ""
    return f"### {cls.__name__}\n\n{paragraphs(cls)}\n\n{fields(cls)}\n{tail}"


def values() -> str:
    found = [getattr(cove, name) for name in cove.__all__ if name != "__version__"]
    return "".join(value(cls) for cls in found if inspect.isclass(cls) and dataclasses.is_dataclass(cls))


def exceptions() -> str:
    text = "| exception | is a | when | what to do |\n|---|---|---|---|\n"
    found = [
        cls
        for _, cls in inspect.getmembers(_errors, inspect.isclass)
        if issubclass(cls, cove.CoveError) and cls.__name__ in cove.__all__
    ]
    for cls in sorted(found, key=lambda cls: (len(cls.__mro__), cls.__name__)):
        base = cls.__mro__[1].__name__
        when = paragraphs(cls).split("\n\n", 1)[0]
        text += f"| `{cls.__name__}` | `{base}` | {when} | {cls.hint} |\n"
    return text


def aliases() -> str:
    rows = "| name | what it is |\n|---|---|\n"
    for module, name in ALIASES:
        # Some of them are below `if TYPE_CHECKING`.
        bodies = [node.body for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, (ast.Module, ast.If))]
        found = [
            (statement.value, text)
            for body in bodies
            for statement, text in documented(body)
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name
        ]
        if not found:
            raise SystemExit(f"tools/reference.py: {module.__name__} has no {name} any more")
        definition, text = found[0]
        shown = ast.unparse(definition).replace("Default.DEFAULT", "DEFAULT").replace("|", "\\|")
        rows += f"| `{name}` | `{shown}`{'. ' + ' '.join(text.split()) if text else ''} |\n"
    return rows


def page() -> str:
    parts = [HEAD]
    for title, classes in CALLED:
        parts.append(f"\n## {title}\n\n" + "".join(called(cls, prefix) for cls, prefix in classes).rstrip() + "\n")
    parts.append(f"\n## What calls return\n\n{values().rstrip()}\n")
    parts.append(f"\n## Exceptions\n\nAll are subclasses of `CoveError`, and have `message` and `hint`.\n\n{exceptions()}")
    parts.append(f"\n## Names in signatures\n\n{aliases()}")
    return "".join(parts)


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == text:
            return 0
        print(f"{PAGE.name} is not what the package says; run python tools/reference.py", file=sys.stderr)
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a package offers, so that a test can say that it uses all of it."""

from __future__ import annotations

import inspect
from typing import Any


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def surface(cls: type) -> dict[str, list[str]]:
    """The public methods of a class with their parameters, and its public properties with none."""
    methods = {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}
    found = {name: parameters(method) if callable(method) else [] for name, method in methods.items()}
    return {**found, "__init__": parameters(cls)}

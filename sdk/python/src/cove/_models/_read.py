"""Makes dataclasses from the JSON of answers.

A field that this version does not know is left out, so that a newer daemon does not break an older client; a field that is missing and
has no default is a `ProtocolError`."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from .._errors import ProtocolError

T = TypeVar("T")


def read(cls: type[T], answer: Any) -> T:
    """Makes a dataclass from a JSON object."""
    if not isinstance(answer, dict):
        raise ProtocolError(f"the answer is no JSON object but {type(answer).__name__}")
    known = {f.name: answer[f.name] for f in dataclasses.fields(cls) if f.name in answer}  # type: ignore[arg-type]
    try:
        return cls(**known)
    except TypeError as error:
        raise ProtocolError(f"the answer is not what {cls.__name__} needs: {error}") from error


def read_list(cls: type[T], answer: Any) -> list[T]:
    if not isinstance(answer, list):
        raise ProtocolError(f"the answer is no JSON array but {type(answer).__name__}")
    return [read(cls, item) for item in answer]

"""One module for each family of programs; each has PREFIXES, the starts of its recordings' names, and make(recorder)."""

from . import c, data, files, git, go, javascript, logs, python, rust

ALL = [files, git, data, logs, python, c, go, rust, javascript]

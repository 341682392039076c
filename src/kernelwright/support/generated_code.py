"""Functions compiled from generated source text, whose lines tracebacks and debuggers can show."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable
from typing import Any

_serial = itertools.count()


def function(source: str, name: str, names: dict[str, Any], title: str) -> Callable[..., Any]:
    """The function `name` that `source` defines. `names` are its globals; `title` describes it in
    tracebacks."""
    file = f"<kernelwright {title} {next(_serial)}>"
    exec(compile(source, file, "exec"), names)
    generated = names[name]
    # without a modification time linecache keeps the lines instead of looking for a file
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    weakref.finalize(generated, linecache.cache.pop, file, None).atexit = False
    return generated

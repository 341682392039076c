"""A server's first lines, and the results of `bench-serve`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType

from kernelwright.workbench.serving.result import Result, Row, Spread

from .tables import ALWAYS, Column, Note, Table
from .training import size


def url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def welcome(loaded: Any, device: Any, url: str, key: bool) -> Iterator[str]:
    """Where the server listens, what it serves, and a request to try."""
    model = loaded.model
    yield f"serving {model.name} on {device} at {url}/v1"
    yield (
        f"context {model.context} tokens; cache of {loaded.pages} pages of 16 tokens, "
        f"{size(loaded.cache)}; chat template: {'yes' if model.template else 'no'}"
    )
    body = {"model": model.name, "prompt": "The", "max_tokens": 64}
    path = "completions"
    if model.template:
        message = {"role": "user", "content": "Hello"}
        body, path = (
            {"model": model.name, "messages": [message], "max_tokens": 64},
            "chat/completions",
        )
    authorization = ' -H "Authorization: Bearer $KW_API_KEY"' if key else ""
    yield "try:"
    yield f"  curl {url}/v1/{path}{authorization} -d '{json.dumps(body)}'"
    yield "Ctrl-C ends it"


def benchmark(result: Result) -> RenderableType:
    """A row per run."""
    s, limits = result.settings, result.limits
    table = Table(
        Column("requests a second", ALWAYS),
        Column("seconds", 3, right=True),
        Column("served a second", 8, right=True),
        Column("tokens a second", ALWAYS, right=True),
        Column("with prompts", 2, right=True),
        Column("first token ms", 9, right=True),
        Column("p99", 7, right=True),
        Column("per token ms", 9, right=True),
        Column("p99 ", 6, right=True),
        Column("good a second", 8, right=True),
        Column("tokens a step", 4, right=True),
        Column("preempted", 1, right=True),
        Column("of roof", ALWAYS, right=True),
    )
    for row in result.rows:
        table.add(*_cells(row))
    notes = (
        f"{result.model}: {s['requests']} requests, {s['shortest']} to {s['longest']} tokens in "
        f"and out, on {result.environment['machine']}",
        f"weights {size(result.weights)} a step, {result.token:,} bytes of the cache a token, "
        f"read at {result.bandwidth / 1e9:.3g} GB/s",
        f"good: first token within {limits.first:g} ms, then {limits.per_token:g} ms a token",
    )
    return Group(*map(Note, notes), table)


def _cells(row: Row) -> list[str]:
    return [
        "all at once" if row.rate is None else f"{row.rate:.3g}",
        f"{row.seconds:.1f}",
        f"{row.served:.3g}",
        f"{row.generated:,.0f}",
        f"{row.total:,.0f}",
        *_spread(row.first),
        *_spread(row.per_token),
        f"{row.good:.3g}",
        f"{row.tokens_per_step:.1f}",
        str(row.preemptions),
        f"{row.of_roof:.1%}",
    ]


def _spread(spread: Spread) -> tuple[str, str]:
    return f"{spread.p50:.3g}", f"{spread.p99:.3g}"

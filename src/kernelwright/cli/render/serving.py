"""A server's first lines, and the results of `bench-serve`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .training import size


def welcome(loaded: Any, device: Any, address: tuple[str, int], key: bool) -> Iterator[str]:
    """Where the server listens, what it serves, and a request to try."""
    host, port = address
    host = f"[{host}]" if ":" in host else host
    url, model = f"http://{host}:{port}", loaded.model
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

"""The clusters that kernels name themselves: __cluster_dims__."""

from __future__ import annotations

from .rewrite import signature
from .tokens import closing, split, text_of, tokens


def clusters_of(text: str) -> dict[str, str]:
    """{name: the blocks of its clusters along x} of the kernels with __cluster_dims__."""
    all_ = tokens(text)
    found: dict[str, str] = {}
    for i, token in enumerate(all_):
        named = signature(all_, i) if token.text == "__global__" else None
        if named is None:
            continue
        for k in range(i, named[0]):
            end = closing(all_, k + 1) if all_[k].text == "__cluster_dims__" else None
            if end is not None:
                found[all_[named[0]].text] = text_of(text, all_, *split(all_, k + 2, end, ",")[0])
    return found

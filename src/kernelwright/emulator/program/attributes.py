"""What kernels say of their launches themselves: __cluster_dims__ and __launch_bounds__."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .rewrite import signature
from .tokens import closing, split, text_of, tokens

_NUMBER = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+[\d()+*/ \t]+$", re.M)


def attributes_of(texts: Iterable[str]) -> dict[str, str]:
    """{name: the first arguments of the configuration of a kernel's launches}. A bound is known if
    it consists of numbers and of macros of numbers, and is the same for all kernels of a name."""
    all_texts = list(texts)
    numbers = {m[1] for text in all_texts for m in _NUMBER.finditer(text)}
    values: dict[str, tuple[set[str], set[str]]] = {}
    for text in all_texts:
        all_ = tokens(text)
        for i, token in enumerate(all_):
            named = signature(all_, i) if token.text == "__global__" else None
            if named is None:
                continue
            clusters, bounds = values.setdefault(all_[named[0]].text, (set(), set()))
            bound = ""
            for k in range(i, named[0]):
                end = (
                    closing(all_, k + 1) if all_[k].text.endswith(("dims__", "bounds__")) else None
                )
                if end is None:
                    continue
                pieces = split(all_, k + 2, end, ",")
                a, b = pieces[0]
                value, *others = (text_of(text, all_, *piece) for piece in pieces)
                if all_[k].text == "__cluster_dims__":
                    clusters.add(", ".join([value, " * ".join(f"({x})" for x in others) or "1"]))
                elif all(t.kind != "name" or t.text in numbers for t in all_[a:b]):
                    bound = value
                else:
                    bound = "?"
            if all_[named[1] + 1].text == "{" or bound:
                bounds.add(bound)
    arguments: dict[str, str] = {}
    for name, (clusters, bounds) in values.items():
        one = next(iter(bounds)) if len(bounds) == 1 else ""
        bounded = f"kw::program::Bounded{{{one}}}, " if one and one != "?" else ""
        in_clusters = "".join(f"kw::program::InClusters{{{n}}}, " for n in sorted(clusters)[:1])
        if bounded or in_clusters:
            arguments[name] = bounded + in_clusters
    return arguments

"""Operators as torch.compile's Inductor sees them: calls that it leaves as they are."""

from __future__ import annotations

import sys
from typing import Any

from torch._library.utils import get_layout_constraint_tag


def lower(overload: Any) -> None:
    """Tell Inductor, if it is loaded, to call the operator.

    Inductor does so by itself with an operator that it does not know. But that of torch 2.11 first
    writes the call's arguments into a message, each with all that it is computed from: a residual
    stream reaches an operator on several paths a layer, so the text grows exponentially with depth.

    An operator's fake calls this. Inductor is loaded before it traces what it compiles, and no fake
    of ours is served from a cache, so every operator is known to it before it lowers a graph; and a
    program that Inductor does not compile never loads it.
    """
    if "torch._inductor.lowering" not in sys.modules:
        return
    from torch._inductor import lowering  # waits where another thread is importing it

    if overload not in lowering.lowerings:
        strides = lowering.tag_to_layout_constraint(get_layout_constraint_tag(overload))
        lowering.make_fallback(overload, layout_constraint=strides)

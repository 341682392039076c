"""Makes torch.compile's Inductor call operators without trying to lower them."""

from __future__ import annotations

import sys
from typing import Any

from torch._library.utils import get_layout_constraint_tag


def lower(overload: Any) -> None:
    """Tell Inductor, if it is loaded, to call the operator.

    Inductor does this by itself for unknown operators. But in torch 2.11 it first formats a message
    with the call's arguments, each with all nodes that it is computed from. A residual stream
    reaches an operator on several paths per layer, so this text grows exponentially with depth.

    An operator's fake calls this function. Inductor is loaded before it traces a graph, and our
    fakes are never cached, so every operator is registered before the graph is lowered. Programs
    that do not use Inductor never load it.
    """
    if "torch._inductor.lowering" not in sys.modules:
        return
    from torch._inductor import lowering  # waits if another thread is importing it

    if overload not in lowering.lowerings:
        strides = lowering.tag_to_layout_constraint(get_layout_constraint_tag(overload))
        lowering.make_fallback(overload, layout_constraint=strides)

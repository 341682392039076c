"""The graphs that torch.compile makes of a function, before Inductor generates code."""

from collections import Counter

import torch
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor import lowering
from torch._inductor.compile_fx import compile_fx


class Graphs:
    """A backend that stores the forward and backward graphs as Inductor gets them, and runs them
    unchanged.

    Attributes:
        targets, rungs: those of Kernelwright's operators in all graphs, in order.
        unknown: names of operators that Inductor did not know when it got them.
        kept: bytes by address of the backward's inputs, without the gradients of results.
    """

    def __init__(self):
        self.targets, self.rungs, self.unknown, self.kept = [], [], set(), {}

    def __call__(self, module, inputs):
        return compile_fx(module, inputs, inner_compile=self._keep)

    def _keep(self, graph, inputs, is_backward=False, **_):
        for node in graph.graph.nodes:
            if str(node.target).startswith("kernelwright"):
                self.targets.append(str(node.target))
                self.rungs.append(node.kwargs.get("rung"))
                if node.target not in lowering.lowerings:
                    self.unknown.add(str(node.target))
        if not is_backward:
            return make_boxed_func(graph.forward)
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]

        def backward(*given):
            for name, t in zip(names, given, strict=True):
                if isinstance(t, torch.Tensor) and not name.startswith("tangents"):
                    self.kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return graph.forward(*given)

        return make_boxed_func(backward)

    def operators(self):
        """How often each of Kernelwright's operators is called."""
        return Counter(target.split(".")[1] for target in self.targets)

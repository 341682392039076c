"""What a training step of GPT-2 124M keeps in memory: our model, and a model shaped as nanoGPT's
under torch.compile. Needs no GPU, and computes nothing of that size.

    python -m benchmarks.gpt2_memory --batch 32

First each tensor that the forward keeps for the backward, in bytes of a token: of a layer (the
difference between models of two layers and of one), then of the rest. Then what a step is predicted
to take, by recomputation policy, without workspaces of kernels and of cuBLAS.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from unittest import mock

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.plain_gpt2 import PlainGPT2
from kernelwright import models
from kernelwright.ops.introspect import use
from kernelwright.train import memory
from kernelwright.train.parallel import Processes
from kernelwright.train.settings import Settings
from kernelwright.train.trainer import Trainer

TOKENS, VOCABULARY = 1024, 50257
#: Operators take the path of a GPU: without a rung that is named, a CPU calls PyTorch's functions.
ON_GPU = {
    **dict.fromkeys(("linear", "matmul", "bias_gelu", "add_layer_norm", "embedding"), "native"),
    "linear_cross_entropy": "chunked",
}
MADE_OF_OPERATORS = memory.of_operators
Kept = Counter[tuple[str, str, str]]  # by who keeps it, shape and dtype: bytes


def ours(layers: int) -> Kept:
    """What autograd's graph of a loss holds; parameters left out."""
    with warnings.catch_warnings(), FakeTensorMode(), use(ON_GPU):
        warnings.simplefilter("ignore")
        torch.set_default_dtype(torch.bfloat16)
        model = models.build(models.preset("gpt2-124m", layers=layers))
        torch.set_default_dtype(torch.float32)
        tokens = torch.zeros(1, TOKENS, dtype=torch.int64)
        loss = model(tokens, tokens)
        known = {p.untyped_storage()._cdata for p in model.parameters()}
        sizes: Kept = Counter()
        for name, t in _saved(loss.grad_fn):
            storage = t.untyped_storage()
            if storage._cdata not in known:
                known.add(storage._cdata)
                sizes[name, _shape(t), _dtype(t)] += storage.nbytes()
        return sizes


def _saved(root: Any) -> Iterable[tuple[str, torch.Tensor]]:
    """The tensors that nodes of a graph hold, with the nodes' names."""
    waiting, seen = [root], {root}
    while waiting:
        node = waiting.pop()
        kept = list(getattr(node, "saved_tensors", ()))
        for name in dir(node):
            if name.startswith("_saved_"):
                value = getattr(node, name)
                kept += value if isinstance(value, (list, tuple)) else [value]
        yield from ((node.name(), t) for t in kept if isinstance(t, torch.Tensor))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def plain(layers: int) -> Kept:
    """What torch.compile's partitioner has the forward keep; arguments left out."""
    sizes: Kept = Counter()

    def partition(joint: Any, inputs: Any, **options: Any) -> Any:
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
        (results,) = (n for n in forward.graph.nodes if n.op == "output")
        for node in results.args[0][options["num_fwd_outputs"] :]:
            value = node.meta["val"] if node.op != "placeholder" else None
            if isinstance(value, torch.Tensor) and not _is_weight(node):
                size = value.numel() * value.element_size()
                sizes[str(node.target), _shape(value), _dtype(value)] += size
        return forward, backward

    compiler = partial(lambda graph, _: graph.forward)
    backend = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        partition_fn=partition,
        decompositions=select_decomp_table(),
    )
    torch._dynamo.reset()
    model = PlainGPT2(models.preset("gpt2-124m", layers=layers))
    tokens = torch.zeros(1, TOKENS, dtype=torch.int64)
    with torch.autocast("cpu", torch.bfloat16):
        torch.compile(model, backend=backend)(tokens, tokens)
    return sizes


def _is_weight(node: Any) -> bool:
    """Whether a node is a parameter, cast or transposed."""
    while node.op != "placeholder":
        inputs = node.all_input_nodes
        if len(inputs) != 1 or "scalar" in node.name:
            return False
        node = inputs[0]
    return "primals" in node.name and node.meta["val"].is_floating_point()


def _shape(t: torch.Tensor) -> str:
    return " x ".join(map(str, t.shape))


def _dtype(t: torch.Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")


def show(name: str, kept: Callable[[int], Kept]) -> None:
    one, two = kept(1), kept(2)
    layer = Counter(two)
    layer.subtract(one)
    rest = Counter(one)
    rest.subtract(layer)
    for what, rows in (("a layer", layer), ("the rest", rest)):
        total = sum(rows.values()) / TOKENS
        print(f"\n{name}, {what}: {total:,.0f} bytes a token")
        for (by, shape, dtype), size in sorted(rows.items(), key=lambda row: -row[1]):
            if size / TOKENS >= 4:
                print(f"  {size / TOKENS:10,.0f}  {dtype:9} {shape:20} {by}")


def peak(batch: int, policy: str) -> memory.Memory:
    """Of a step in bfloat16."""
    settings = Settings(model="gpt2-124m", batch=batch, precision="bfloat16", recompute=policy)

    def build() -> Any:
        trainer = Trainer(settings, VOCABULARY, Processes("none", 0, 1, torch.device("cpu")))
        tokens = torch.zeros(batch, TOKENS, dtype=torch.int64)
        return trainer, lambda: trainer.step(tokens, tokens, 1e-3)

    with use(ON_GPU), mock.patch.object(memory, "of_operators", _of_operators):
        return memory.predict(build)


def _of_operators(func: Any, *given: Any) -> Any:
    """On a GPU the loss alone is made of other operators; the rest has kernels."""
    return (
        MADE_OF_OPERATORS(func, *given) if "::linear_cross_entropy" in str(func._schema) else None
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpt2_memory")
    parser.add_argument("--batch", type=int, default=32, help="sequences of 1,024 tokens")
    asked = parser.parse_args()
    show("ours", ours)
    show("plain, torch.compile", plain)
    print(f"\n{asked.batch} x {TOKENS} tokens: GiB held, and at the peak of a step")
    for policy in ("none", "light", "selective", "full"):
        sizes = peak(asked.batch, policy)
        print(f"{policy:10} {sizes.held / 2**30:6.2f} {sizes.peak / 2**30:6.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Sharding rules: two processes compute the parts of one process's result, for every rule."""

import pytest
import torch

from kernelwright.contract import TensorSpec
from kernelwright.contract.sharding import SUM
from kernelwright.dispatch import ladders
from kernelwright.workbench.verify.candidate import all_results, map_tensors

#: Results depend on an element's index in the whole tensor (random masks), or arguments change.
WITHOUT = {
    "accumulate_weight_grad_",
    "adamw",
    "attention_varlen",
    "bernoulli",
    "bernoulli_p",
    "bias_dropout_add",
    "bias_dropout_add_with_mask",
    "clip_grads_with_norm_",
    "conv2d",
    "cross_entropy_with_grad_",
    "dropout",
    "dropout_with_mask",
    "get_total_norm",
    "grouped_mm",
    "grouped_swiglu",
    "index_add",
    "layer_norm_residual_dropout_gelu",
    "linear",
    "matmul",
    "nms",
    "quantized_linear",
    "rand",
    "randn",
    "attention_with_kv_cache",
    "sample",
    "reshape_and_cache",
    "roi_align",
    "scale_unless_one_",
    "scaled_mm",
    "spmv",
}
OPERATORS = [x.operator for x in ladders() if x.operator.sharding]


def test_an_operator_without_a_rule_is_meant_to_have_none():
    names = {x.name.removesuffix(".backward") for x in ladders() if not x.operator.sharding}
    assert names == WITHOUT


def cases(op):
    """A few cases for each number of dimensions and set of parameters."""
    found = {}
    for c in op.cases:
        plain = c.use == "verify" and c.values == "normal" and c.layout == "contiguous"
        if plain and 1 < c.numel < 5000:
            found.setdefault((len(c.shape), c.params), c)
    return found.values()


def in_double(t):
    return t.double() if t.is_floating_point() else t


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_parts_are_those_of_the_whole(op):
    splits = 0
    for c in cases(op):
        made = op.inputs(c, "cpu")
        args = map_tensors({a.name: made.get(a.name, a.default) for a in op.args}, in_double)
        whole = all_results(op, args, op.reference(**args))
        results = dict(zip(op.results, map(TensorSpec.of, whole), strict=True))
        specs = {k: TensorSpec.of(v) if isinstance(v, torch.Tensor) else v for k, v in args.items()}
        for split in op.sharding(specs, results):
            splits += 1
            parts = []
            for i in (0, 1):
                given = {k: part(v, split.get(k), i) for k, v in args.items()}
                parts.append(all_results(op, given, op.reference(**given)))
            for name, right, *both in zip(op.results, whole, *parts, strict=True):
                combined = together(both, split[name])
                torch.testing.assert_close(
                    combined, right, rtol=1e-9, atol=1e-9, equal_nan=True,
                    msg=lambda m, n=name, c=c, s=split: f"{n} of {c.id}, {s}: {m}",
                )  # fmt: skip
    assert splits, "the rule splits nothing"


def part(v, dim, i):
    return v if dim is None or not isinstance(v, torch.Tensor) else v.tensor_split(2, dim)[i]


def together(parts, dim):
    if dim == SUM:
        return parts[0] + parts[1]
    if dim is None:
        torch.testing.assert_close(*parts, equal_nan=True)
        return parts[0]
    return torch.cat(parts, dim)

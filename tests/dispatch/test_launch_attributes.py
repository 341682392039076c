"""Every operator in random sequences of sizes, with a driver that checks what it is asked for as an
H200's does (tests/support/fake_driver.c)."""

import random
from dataclasses import replace
from functools import partial
from itertools import islice

import pytest
import torch
from torch.utils._pytree import tree_leaves

import kernelwright as kw
import kernelwright.ops.every
from kernelwright import toolchain
from kernelwright.dispatch import binding, ladders, selection
from kernelwright.ops.matmul.quantized.weights import QuantizedWeight
from kernelwright.toolchain import c_extensions, modes
from support.cpp_calls import labelled, recording
from support.hosted import hosted

pytestmark = pytest.mark.skipif(
    modes.has_gpu() or c_extensions.compiler() is None,
    reason="a stand-in for a GPU, built with a C compiler",
)
#: Few rows, which have kernels of their own, and sizes around powers of two.
ROWS = (1, 2, 3, 5, 7, 8, 12, 16, 17, 33, 64, 100, 129, 1000, 4095, 4096)
MOST = 2**32  # bytes of a call's arguments
#: Calls with lists of tensors are planned for each shape (toolchain/test_pointer_arrays.py).
LADDERS = [
    x
    for x in ladders()
    if any(c.use == "bench" for c in x.operator.cases)
    and not any(a.kind == "Tensor[]" for a in x.operator.args)
]


@pytest.fixture(scope="module")
def launches(tmp_path_factory):
    """A function that returns the launches since it was called last."""
    with hosted(tmp_path_factory.mktemp("driver")), recording() as taken:
        yield taken


def sequence(operator, rng):
    """Arguments of one model's shape with other numbers of rows, the first of them again at the
    end; or, if the operator's inputs exist for the given shapes only, of such cases."""
    cases = [c for c in operator.cases if c.use == "bench"]
    template = rng.choice(cases)
    if len(template.shape) < 2:
        rng.shuffle(cases)
    else:
        rows = rng.sample(ROWS, len(ROWS))
        cases = [replace(template, shape=(n, *template.shape[1:])) for n in rows]
    calls = map(partial(arguments, operator), cases)
    chosen = [*islice((args for args in calls if args), 4)]
    return [*chosen, *chosen[:1]]


def arguments(operator, case):
    """Arguments of a case with uninitialized memory, which no kernel reads here; none if they are
    too large."""
    args = operator.with_defaults(operator.inputs(case, "meta"))
    if sum(t.nbytes for t in tree_leaves(args) if isinstance(t, torch.Tensor)) > MOST:
        return None
    return {name: on_cpu(value) for name, value in args.items()}


def on_cpu(value):
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


def called(ladder, args, launches):
    """The launches of a call, tensors by name, and the shapes and strides of its results; or the
    name of the rung, if it is PyTorch's."""
    specs, _ = ladder.operator.normalise(selection.specs_of(args))
    rung = selection.select(ladder, specs, torch.device("cuda", 0), None).rung
    if not rung.is_gpu:
        return rung.name
    launches()
    results = binding._caches[ladder.name].now(*args.values(), None)
    results = results if isinstance(results, tuple) else (results,)
    tensors = {n: t for n, t in args.items() if isinstance(t, torch.Tensor)}
    tensors |= {f"result {i}": t for i, t in enumerate(results) if t is not None}
    return labelled(launches(), tensors), [(t.shape, t.stride()) for t in results if t is not None]


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.long) for s in (1, 2, 3))])
@pytest.mark.parametrize("ladder", LADDERS, ids=lambda x: x.name)
def test_sizes_in_any_order_launch_what_each_launches_alone(ladder, seed, launches, monkeypatch):
    operator, rng = ladder.operator, random.Random(f"{ladder.name} {seed}")
    calls = sequence(operator, rng)
    assert calls
    cache = binding._caches[ladder.name]
    cache.forget()
    in_sequence = [called(ladder, args, launches) for args in calls]
    monkeypatch.setattr(toolchain, "opens", lambda args: False)
    for args, expected in zip(calls, in_sequence, strict=True):
        cache.forget()
        assert called(ladder, args, launches) == expected


@pytest.mark.parametrize(("k", "n"), [(768, 3072), (4096, 4096), (5120, 5120), (4096, 14336)])
def test_products_of_few_rows_in_any_order(k, n, launches):
    """A token, a few prompts, a token again, with the weights of models' layers."""
    dense = torch.empty(n, k, dtype=torch.bfloat16)
    scales = torch.empty(k // 128, n, 2, dtype=torch.bfloat16)
    packed = QuantizedWeight(torch.empty(n, k // 2, dtype=torch.uint8), scales, 4)
    for rows in (3, 1, 2, 16, 9, 64, 3):
        x = torch.empty(rows, k, dtype=torch.bfloat16)
        launches()
        kw.linear(x, dense)
        kw.quantized_linear(x, packed)
        assert launches()

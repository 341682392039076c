"""Operands of any strides: a call with one argument sliced out of a larger tensor, transposed or
expanded equals the call with its contiguous copy, for every argument of every operator, weights,
statistics, indices and saved tensors included."""

from dataclasses import replace

import pytest
import torch

from kernelwright.dispatch import ladders, specs_of, unsupported
from kernelwright.dispatch.launcher import launcher
from kernelwright.workbench.verify.candidate import all_results, copy_of, map_tensors, tensors
from support import cover
from support.publics import publics, with_gradients
from support.strides import STRIDES, WRITABLE, contiguous

CPU = torch.device("cpu")
EXACT = ("manual", "native")  # they take float64, in which rounding does not hide a wrong element
FEW = ("sliced", "expanded")  # of which every argument is tried in a short run
KERNELS = [(x, r) for x in ladders() for r in x.rungs if r.name not in (*EXACT, "compiled")]


def some_cases(operator, dtype, several):
    """Small cases, of distinct options or only one: (case, its arguments, contiguous)."""
    chosen = {}
    for c in operator.cases:
        plain = (c.use, c.layout, c.values) == ("verify", "contiguous", "normal")
        if plain and 8 <= c.numel < 5000:
            c = replace(c, dtype=dtype) if dtype and c.dtype.is_floating_point else c
            args = operator.with_defaults(operator.inputs(c, "cpu"))
            given = sum(len(tensors({"": v})) for v in args.values())
            chosen.setdefault((len(c.shape), c.params), (given, -c.numel, c, args))
    most = sorted(chosen.values(), key=lambda found: found[:2], reverse=True)
    for *_, c, args in most[: 12 if several else 1]:  # first those with most tensors
        yield c, map_tensors(args, contiguous)


def with_other_strides(operator, args, all_strides):
    """(argument and strides, the arguments with them, the same values contiguous)."""
    for a in operator.args:
        value = args[a.name]
        if not a.is_tensor or not all(t.ndim and t.numel() > 1 for t in tensors({"": value})):
            continue
        if value is None:
            continue
        keeps = a.mutated or any(map(is_order, tensors({"": value})))
        for name in WRITABLE if keeps else STRIDES:
            if not (all_strides or name in FEW):
                continue
            strided = STRIDES[name]
            other = map_tensors({a.name: value}, strided)
            yield f"{a.name} {name}", {**args, **other}, {**args, **map_tensors(other, contiguous)}


def takes(ladder, rung, args):
    specs = ladder.operator.normalise(specs_of(args))[0]
    return unsupported(rung, specs, CPU) is None


def is_order(t):
    """Whether they are ends of parts, or a permutation: an expanded tensor would be neither."""
    if t.is_floating_point() or t.dtype == torch.bool or not t.ndim:
        return False
    ascending = t.sort(-1).values
    return torch.equal(t, ascending) or not (ascending - torch.arange(t.shape[-1])).any().item()


def results(ladder, rung, args):
    """The results and changed arguments of a rung, or its error."""
    try:
        out = launcher(ladder, args, rung.name)(*args.values())
    except (IndexError, RuntimeError, ValueError) as e:
        return type(e)
    return all_results(ladder.operator, args, out)


def compare(ladder, rung, case, args, tolerance, all_strides=True):
    op = ladder.operator
    for what, strided, plain in with_other_strides(op, args, all_strides):
        if not takes(ladder, rung, strided):
            continue
        mine, right = (
            results(ladder, rung, {**a, **map_tensors({n: a[n] for n in op.mutated}, copy_of)})
            for a in (strided, plain)
        )
        where = f"{ladder.name}.{rung.name} {case.id}: {what}"
        if isinstance(mine, type) or isinstance(right, type):
            assert mine == right, where
            continue
        for got, want in zip(mine, right, strict=True):
            top = (
                want.abs().nan_to_num(0, 0, 0).max().item()
                if want.is_floating_point() and want.numel()
                else 1.0
            )
            by = tolerance if got.dtype == torch.float64 else max(tolerance, 1e-5)  # of the result
            torch.testing.assert_close(
                got, want, rtol=by, atol=by * max(top, 1.0), equal_nan=True,
                msg=lambda m, w=where: f"{w}: {m}",
            )  # fmt: skip


@pytest.mark.parametrize("ladder", ladders(), ids=lambda x: x.name)
def test_pytorch_rungs_read_an_argument_of_any_strides(ladder, request):
    several = cover.everything(request.config)
    for case, args in some_cases(ladder.operator, torch.float64, several):
        for rung in ladder.rungs:
            if rung.name in EXACT and takes(ladder, rung, args):
                compare(ladder, rung, case, args, 1e-9, several)


@pytest.mark.long
@pytest.mark.parametrize(
    ("ladder", "rung"), KERNELS, ids=[f"{x.name}.{r.name}" for x, r in KERNELS]
)
def test_kernels_read_an_argument_of_any_strides(ladder, rung):
    for case, args in some_cases(ladder.operator, None, False):
        if takes(ladder, rung, args):
            compare(ladder, rung, case, args, 1e-3)


@publics
def test_public_functions_read_an_argument_of_any_strides(public):
    """Values and gradients, which read the saved tensors."""
    given = public.tensors((4, 6, 10), torch.float64)
    for i in range(len(given)):
        for name, strided in STRIDES.items():
            mine = [strided(t) if j == i else t for j, t in enumerate(given)]
            plain = [contiguous(t) for t in mine]
            ours, right = (with_gradients(public.kw, args) for args in (mine, plain))
            torch.testing.assert_close(
                ours, right, rtol=1e-9, atol=1e-9, msg=lambda m, w=f"{i} {name}": f"{w}: {m}"
            )

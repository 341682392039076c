"""The rungs for Hopper's tensor cores on a GPU: sizes that no tile divides, padded rows, batches,
every epilogue, red zones around what they write."""

import pytest
import torch

from kernelwright.dispatch import launcher
from kernelwright.ops.matmul.gemm import spec, torch_rungs
from kernelwright.ops.matmul.gemm.hopper import ladder as hopper
from kernelwright.ops.matmul.gemm.hopper import tiling
from kernelwright.ops.matmul.gemm.ladder import LADDER, LADDER_LINEAR
from kernelwright.toolchain import modes, redzones

pytestmark = pytest.mark.skipif(
    not modes.has_gpu() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs TMA",
)
NAMES = [rung.name for rung in hopper.RUNGS]
LINEAR_NAMES = [rung.name for rung in hopper.LINEAR_RUNGS]
#: They reject the combination of gate, residual and keep.
LEAN = [r.name for r in hopper.LINEAR_RUNGS if r.supports is tiling.fits_linear_lean]
LAYOUTS = ("NT", "NN", "TN", "TT")


def matrix(rows, cols, by_columns=False, batch=(), dtype=torch.bfloat16):
    """A random matrix inside a larger allocation of NaN, with rows a multiple of 16 bytes apart."""
    high, wide = (cols, rows) if by_columns else (rows, cols)
    size = (*batch, high + 3, (wide + 7) // 8 * 8 + 16)
    whole = torch.full(size, float("nan"), device="cuda", dtype=dtype)
    inner = whole[..., 1 : 1 + high, 8 : 8 + wide]
    inner.copy_(torch.randn(*batch, high, wide, device="cuda"))
    return inner.mT if by_columns else inner


def agree(ladder, name, args, native, reference):
    """At most twice PyTorch's error, the same bits in each call, and nothing written outside."""
    given = {a.name: args.get(a.name, a.default) for a in ladder.operator.args}
    with redzones.guarded() as guard:
        run = launcher(ladder, given, name)
        ours, again = run(*given.values()), run(*given.values())
    assert guard.check() is None
    wide = {k: t.double() if isinstance(t, torch.Tensor) else t for k, t in args.items()}
    results = (ours, again, native(**args), reference(**wide))
    each = results if isinstance(ours, tuple) else tuple((r,) for r in results)
    for mine, same, theirs, exact in zip(*each, strict=True):
        if exact.numel():
            assert torch.equal(mine, same)
            off, peers = (mine.double() - exact).norm(), (theirs.double() - exact).norm()
            assert off <= 2 * peers + 1e-9


@pytest.mark.cover
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [(129, 1000, 520), (40, 264, 456), (1, 8, 700), (300, 72, 8)])
@pytest.mark.parametrize("name", NAMES)
def test_a_product_that_no_tile_divides(name, size, layout, dtype):
    m, n, k = size
    if k < 449 and "split" in name:
        k += 449
    a = matrix(m, k, layout[0] == "T", dtype=dtype)
    b = matrix(k, n, layout[1] == "T", dtype=dtype)
    agree(LADDER, name, {"a": a, "b": b}, torch_rungs.native, spec.reference)


@pytest.mark.parametrize("own", [(3,), ()], ids=["a matrix each", "one matrix for all"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES[:-1])  # the last takes no batch
def test_a_batch(name, layout, own):
    a = matrix(200, 136, layout[0] == "T", (3,))
    b = matrix(136, 328, layout[1] == "T", own).expand(3, -1, -1)
    agree(LADDER, name, {"a": a, "b": b}, torch_rungs.native, spec.reference)


@pytest.mark.cover
@pytest.mark.parametrize("epilogue", spec.EPILOGUES, ids=str)
@pytest.mark.parametrize("size", [(264, 520, 1032), (40, 264, 456)])
@pytest.mark.parametrize("name", LINEAR_NAMES)
def test_an_epilogue(name, size, epilogue):
    m, n, k = size
    if name in LEAN and all(epilogue.get(x) for x in ("gate", "residual", "keep")):
        epilogue = {**epilogue, "keep": False}

    def maybe(there):
        return matrix(m, n) if there else None

    args = {
        "x": matrix(m, k),
        "weight": matrix(n, k).mul_(k**-0.5),
        "bias": torch.randn(n, device="cuda").bfloat16() if epilogue.get("bias") else None,
        "gate": maybe(epilogue.get("gate")),
        "residual": maybe(epilogue.get("residual")),
        "activation": epilogue.get("activation", "none"),
        "keep": epilogue.get("keep", False),
    }
    agree(LADDER_LINEAR, name, args, torch_rungs.native_linear, spec.linear_reference)

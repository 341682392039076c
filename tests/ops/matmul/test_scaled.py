"""Products of 8-bit operands: quantizing, kinds of scales, errors, what is compiled for Hopper."""

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import H200, TensorMap, TensorSpec
from kernelwright.ops.matmul.scaled import LADDER, cuda, heuristics
from support.hopper import holds
from support.publics import DEVICE, fullgraph, randn

FP8 = torch.float8_e4m3fn
KINDS = {"tensor": ("tensor", "tensor"), "row": ("row", "row"), "block": ("block", "tile")}


@pytest.mark.parametrize("shape", [(200, 320), (1, 1), (128, 128), (5, 130)])
@pytest.mark.parametrize("per", ["tensor", "row", "block", "tile"])
def test_quantizing_uses_the_whole_range_of_each_group(shape, per):
    x = randn(*shape) * torch.logspace(-3, 3, shape[0], device=DEVICE)[:, None]
    values, scale = kw.quantize_fp8(x, per)
    high = {"tensor": shape[0], "row": 1, "block": 1, "tile": 128}[per]
    wide = {"tensor": shape[1], "row": shape[1], "block": 128, "tile": 128}[per]
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            at = slice(i * high, (i + 1) * high), slice(j * wide, (j + 1) * wide)
            assert values[at].float().abs().max() == 448
            error = (values[at].float() * scale[i, j] - x[at]).abs()
            assert bool((error <= x[at].abs() / 16 + scale[i, j] * 2**-10).all())


@pytest.mark.parametrize("per", ["tensor", "row", "block", "tile"])
def test_nothing_and_zeros_are_quantized(per):
    values, scale = kw.quantize_fp8(torch.zeros(3, 200), per)
    assert bool((values.float() == 0).all()) and bool((scale == 1).all())
    assert kw.quantize_fp8(torch.zeros(0, 200), per)[0].shape == (0, 200)
    assert kw.quantize_fp8(torch.zeros(3, 0), per)[0].shape == (3, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_scales_belong_to_their_elements(kind):
    x, w = randn(70, 320), randn(256, 320, seed=1)
    (a, of_a), (b, of_b) = (
        kw.quantize_fp8(t * torch.logspace(-2, 2, t.shape[0], device=DEVICE)[:, None], per)
        for t, per in zip((x, w), KINDS[kind], strict=True)
    )
    wide_a = of_a.repeat_interleave(128, 1)[:, :320] if kind == "block" else of_a
    wide_b = of_b.repeat_interleave(128, 0).repeat_interleave(128, 1) if kind == "block" else of_b
    wide_b = wide_b[:256, :320]
    a_, b_ = a.float() * wide_a, b.float() * wide_b
    want = a_ @ b_.t()
    # of the result's rounding, and of sums with 13 bits of a term (tensor cores of sm_90)
    limit = 2**-8 * want.abs() + 2**-10 * (a_.abs() @ b_.abs().t())
    for fast in (False, True):
        c = kw.scaled_mm(a, b.t(), of_a, of_b.t(), fast_accum=fast)
        assert bool(((c.float() - want).abs() <= limit).all())
    compiled = fullgraph(kw.scaled_mm)(a, b.t(), of_a, of_b.t())
    assert bool(((compiled.float() - want).abs() <= limit).all())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"input": torch.zeros(4, 32)}, TypeError, "input: is"),
        ({"other": torch.zeros(16, 8).to(FP8)}, ValueError, "other: has shape"),
        ({"scale_input": torch.ones(4, 2)}, ValueError, "scale_input, scale_other: have"),
        ({"scale_input": torch.ones(1).half()}, TypeError, "scale_input: is"),
        ({"input": torch.zeros(32).to(FP8)}, ValueError, "input: has 1 dim"),
    ],
)
def test_errors_name_the_argument(change, error, message):
    given = {
        "input": torch.zeros(4, 32).to(FP8),
        "other": torch.zeros(8, 32).to(FP8).t(),
        "scale_input": torch.ones(1, 1),
        "scale_other": torch.ones(1, 1),
    }
    with pytest.raises(error, match=message):
        kw.scaled_mm(**{**given, **change})
    with pytest.raises(ValueError, match="per: 'column'"):
        kw.quantize_fp8(torch.zeros(2, 2), "column")


def operands(m, n, k, kind, fast):
    blocks = -(-k // 128)
    scales = {
        "tensor": ((1, 1), (1, 1)),
        "row": ((m, 1), (n, 1)),
        "block": ((m, blocks), (-(-n // 128), blocks)),
    }[kind]
    of_a, of_b = (TensorSpec.contiguous(s, torch.float32) for s in scales)
    a, b = TensorSpec.contiguous((m, k), FP8), TensorSpec.contiguous((n, k), FP8)
    return {"a": a, "b": b, "scale_a": of_a, "scale_b": of_b, "kind": kind, "fast": fast}


@pytest.mark.cover
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "config"), [(r.name, c) for r in LADDER.rungs if r.is_gpu for c in r.configs]
)
def test_sums_stay_in_registers_and_products_do_not_wait(compiler, name, config, kind):
    rung, args = LADDER.rung(name), operands(1000, 2048, 1040, kind, True)
    if rung.supports(H200, **args):
        assert (name, kind) == ("cuda_wgmma", "block")
        return
    (step,) = getattr(cuda, rung.entry.split(":")[1])(H200, config, **args).launches
    holds(step, "QGMMA")


def test_maps_describe_the_operands():
    args = operands(1000, 2048, 1040, "row", True)
    (step,) = cuda.wgmma(H200, heuristics.FAST_CONFIGS[0], **args).launches
    a, b, c = (x for x in step.args if isinstance(x, TensorMap))
    assert (a.dtype, a.shape, a.strides[0], a.box) == (FP8, (1040, 1000, 1), 1040, (128, 128, 1))
    assert (b.dtype, b.shape, b.strides[0], b.box) == (FP8, (1040, 2048, 1), 1040, (128, 128, 1))
    assert (c.tensor, c.dtype, c.shape) == ("c", torch.bfloat16, (2048, 1000, 1))
    for t in (a, b, c):  # the conditions that toolchain.tensor_maps checks
        assert t.tensor == "c" or args[t.tensor].dtype == t.dtype


def test_what_hopper_does_not_take_is_refused():
    def why(rung="cuda_promoted", kind="row", fast=True, n=2048, k=1040, **change):
        return LADDER.rung(rung).supports(H200, **{**operands(1000, n, k, kind, fast), **change})

    assert why() is None and why("cuda_wgmma") is None
    assert "float32" in why("cuda_wgmma", fast=False)
    assert "rows of b" in why(kind="block", n=2040)
    assert "a: its rows" in why(a=TensorSpec((1000, 1040), (1, 1000), FP8))
    assert "not multiples of 16 bytes" in why(n=2044)

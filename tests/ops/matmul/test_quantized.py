"""Quantized weights: rounding, other libraries' layouts, gradients, errors, and the product that is
dispatched for few rows."""

from itertools import pairwise

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import H200
from kernelwright.ops.matmul.gemm.few_rows.tiling import shape_of
from kernelwright.ops.matmul.quantized import weights
from support.publics import DEVICE, fullgraph, randn


def integers(*shape, below, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(below, shape, generator=generator, dtype=torch.int64).to(DEVICE)


def words(values, bits, order=None):
    """int32 words, each of 32 / bits neighbours along the last dimension, the first in the lowest
    bits; `order` gives the neighbour at each place."""
    each = 32 // bits
    v = values.view(*values.shape[:-1], -1, each)
    v = v if order is None else v[..., order]
    total = (v << torch.arange(0, 32, bits, device=v.device)).sum(-1)
    return torch.where(total >= 2**31, total - 2**32, total).to(torch.int32)


@pytest.mark.parametrize("bits", [4, 8])
def test_quantize_rounds_to_the_nearest(bits):
    w = randn(24, 384) * torch.logspace(-3, 2, 24, device=DEVICE)[:, None]
    w[3] = 0  # a group without a range
    w[4] = w[4].abs()
    q = kw.quantize(w, bits)
    assert q.packed.dtype == torch.uint8 and q.packed.shape == (24, 384 * bits // 8)
    step = q.scales[..., 0].t().repeat_interleave(128, 1)
    assert bool(((q.dequantized() - w).abs() <= 0.501 * step).all())
    assert bool((q.dequantized()[3] == 0).all())


def test_an_outlier_within_the_range_is_not_lost():
    w = torch.zeros(1, 128)
    w[0, 5], w[0, 77] = -3.0, 12.0
    q = kw.quantize(w, 4)
    torch.testing.assert_close(q.dequantized(), w)


def test_packing_is_reversed():
    v = integers(5, 256, below=16).to(torch.uint8)
    packed = weights.packed_of(v, 4)
    assert torch.equal(weights.values_of(packed, 4), v)
    word = int.from_bytes(bytes(packed[0, :4].tolist()), "little")
    pairs = [(word >> 4 * i) & 0x000F000F for i in range(4)]
    assert [(p & 15, p >> 16) for p in pairs] == [tuple(x) for x in v[0, :8].view(4, 2).tolist()]


def test_awq_layout():
    k, n = 256, 24
    v, z = integers(k, n, below=16), integers(k // 128, n, below=16, seed=1)
    scales = randn(k // 128, n, dtype=torch.float16).abs()
    columns = [0, 2, 4, 6, 1, 3, 5, 7]
    q = kw.read_awq(words(v, 4, columns), words(z, 4, columns), scales)
    group = torch.arange(k, device=DEVICE) // 128
    want = (v - z[group]).float() * scales.float()[group]
    torch.testing.assert_close(q.dequantized(torch.float32), want.t())


@pytest.mark.parametrize("bits", [4, 8])
def test_gptq_layout(bits):
    k, n = 256, 24
    v, z = integers(k, n, below=2**bits), integers(k // 128, n, below=2**bits, seed=1)
    scales = randn(k // 128, n, dtype=torch.float16).abs()
    stored = (z - 1) % 2**bits
    given = words(v.t().contiguous(), bits).t(), words(stored, bits), scales
    group = torch.arange(k, device=DEVICE) // 128
    want = (v - z[group]).float() * scales.float()[group]
    for g_idx in (None, group.int()):
        q = kw.read_gptq(*given, g_idx)
        assert q.bits == bits
        torch.testing.assert_close(q.dequantized(torch.float32), want.t())
    v2 = given[0], words(z, bits), scales  # its zero points are stored as they are
    q = kw.read_gptq(*v2, group.int(), checkpoint_format="gptq_v2")
    torch.testing.assert_close(q.dequantized(torch.float32), want.t())
    with pytest.raises(ValueError, match="checkpoint_format: must be 'gptq' or 'gptq_v2', is 'm'"):
        kw.read_gptq(*given, checkpoint_format="m")
    with pytest.raises(ValueError, match="g_idx: groups are not"):
        kw.read_gptq(*given, group.flip(0).int())


@pytest.mark.parametrize("leading", [(), (5,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_means_a_linear_layer(leading, bias):
    q = kw.quantize(randn(24, 256, seed=1) / 16)
    x = randn(*leading, 256).requires_grad_()
    b = randn(24, seed=2).requires_grad_() if bias else None
    y = kw.quantized_linear(x, q, b)
    want = torch.nn.functional.linear(x, q.dequantized(), b)
    torch.testing.assert_close(y, want)
    leaves = [x, b] if bias else [x]
    g = randn(*want.shape, seed=3)
    torch.testing.assert_close(
        torch.autograd.grad(y, leaves, g), torch.autograd.grad(want, leaves, g)
    )


def test_compiles_without_a_break_and_casts_under_autocast():
    q = kw.quantize(randn(24, 256, seed=1) / 16)
    x = randn(3, 256)
    torch.testing.assert_close(fullgraph(kw.quantized_linear)(x, q), kw.quantized_linear(x, q))
    with torch.autocast(DEVICE, torch.bfloat16):
        assert kw.quantized_linear(x, q).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q, x: kw.quantize(x.long()), TypeError, "weight: must be floating"),
        (lambda q, x: kw.quantize(x, 3), ValueError, "bits: 3"),
        (lambda q, x: kw.quantize(x[:, :100]), ValueError, "weight: has shape"),
        (lambda q, x: kw.quantize(x * float("nan")), ValueError, "weight: has elements"),
        (lambda q, x: kw.quantized_linear(x[:, :128], q), ValueError, "input: has shape"),
        (lambda q, x: kw.quantized_linear(x, x), TypeError, "weight: must be a QuantizedW"),
        (lambda q, x: kw.quantized_linear(x, q, x[0]), ValueError, "bias: has shape"),
        (lambda q, x: kw.quantized_linear(x, q, x[0, :24].half()), TypeError, "bias: is"),
        (lambda q, x: kw.read_awq(x, x, x), ValueError, "qweight: should be"),
        (
            lambda q, x: kw.read_awq(
                torch.zeros(256, 3, dtype=torch.int32), torch.zeros(4, 3, dtype=torch.int32),
                torch.zeros(4, 24),
            ),
            ValueError,
            "scales: has 4 groups for 256",
        ),
    ],
)  # fmt: skip
def test_errors_name_the_argument(call, error, message):
    with pytest.raises(error, match=message):
        call(kw.quantize(randn(24, 256, seed=1)), randn(3, 256))


@pytest.mark.parametrize("m", [1, 5, 16, 33, 64])
@pytest.mark.parametrize(("n", "k"), [(128, 128), (4096, 4096), (50000, 768), (130, 70000)])
def test_every_unit_of_few_rows_is_one_blocks(m, n, k):
    """The shares of blocks cover all units of work, and a tile's first and last block are those
    whose shares hold its first and last unit, as few_rows.cuh computes them."""
    shape = shape_of(H200, {"resident": 2}, m, n, k, 128 * 256)
    assert shape.shared * shape.resident <= H200.shared_per_block + 2048 and shape.stages >= 2
    slices = -(-k // 128)
    total = shape.tiles * slices
    begins = [b * total // shape.grid for b in range(shape.grid + 1)]
    assert all(b > a for a, b in pairwise(begins))
    for unit in {0, total // 2, total - 1, slices - 1, min(slices, total - 1)}:
        block = ((unit + 1) * shape.grid - 1) // total
        assert begins[block] <= unit < begins[block + 1]

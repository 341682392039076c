"""scaled_dot_product_attention compared with PyTorch's: shapes that broadcast, masks, errors."""

import random

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, TensorSpec
from kernelwright.ops.attention.sdpa import call, heuristics, spec
from support.publics import DEVICE, randn

F64 = torch.float64


def operands(*shapes, dtype=F64):
    return [randn(*s, dtype=dtype, seed=i).requires_grad_() for i, s in enumerate(shapes)]


def same(args, **options):
    """Compare results and gradients of both in float64."""
    ours = kw.scaled_dot_product_attention(*args, **options)
    theirs = F.scaled_dot_product_attention(*args, **options)
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    leaves = [*args, *(t for t in options.values() if getattr(t, "requires_grad", False))]
    gy = randn(*ours.shape, dtype=F64, seed=9)
    for mine, native in zip(
        torch.autograd.grad(ours, leaves, gy), torch.autograd.grad(theirs, leaves, gy), strict=True
    ):
        torch.testing.assert_close(mine, native, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        (((4, 5), (7, 5), (7, 6)), {}),
        (((3, 4, 5), (3, 7, 5), (3, 7, 6)), {"is_causal": True}),
        (((2, 3, 9, 5), (2, 3, 7, 5), (2, 3, 7, 6)), {"is_causal": True}),
        (((2, 6, 4, 5), (2, 2, 7, 5), (2, 2, 7, 6)), {"enable_gqa": True}),
        (((2, 6, 4, 5), (2, 1, 7, 5), (2, 1, 7, 6)), {}),
        (((2, 1, 4, 5), (2, 6, 7, 5), (2, 6, 7, 6)), {}),
        (((2, 3, 1, 4, 5), (1, 6, 7, 5), (1, 6, 7, 5)), {}),
        (((2, 2, 4, 5), (2, 2, 7, 5), (2, 2, 7, 5)), {"scale": -0.7}),
        (((2, 2, 4, 5), (2, 2, 7, 5), (2, 2, 7, 5)), {"scale": 0.0}),
    ],
)
def test_shapes_broadcast_as_in_pytorch(shapes, options):
    same(operands(*shapes), **options)


@pytest.mark.parametrize("shape", [(4, 7), (1, 7), (3, 1, 7), (2, 1, 4, 7), (2, 3, 4, 7)])
def test_masks_broadcast_and_have_gradients(shape):
    args = operands((2, 3, 4, 5), (2, 3, 7, 5), (2, 3, 7, 6))
    same(args, attn_mask=randn(*shape, dtype=F64, seed=5).requires_grad_())
    seen = randn(*shape, dtype=F64, seed=6) > -1
    seen[..., 0] = True
    same(args, attn_mask=seen)


def test_random_calls():
    draw = random.Random(4)
    for _ in range(12):
        b, hk, group = draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 3)
        length, s, d, dv = (draw.randint(1, 40) for _ in range(4))
        args = operands((b, hk * group, length, d), (b, hk, s, d), (b, hk, s, dv))
        same(args, is_causal=draw.random() < 0.5, enable_gqa=True, scale=draw.uniform(0.01, 2))


def test_what_is_masked_counts_for_nothing():
    q, k, v = operands((1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 8))
    seen = torch.ones(4, 6, dtype=torch.bool, device=DEVICE)
    seen[:, 2] = False
    seen[1] = False
    with torch.no_grad():
        k[:, :, 2] = torch.nan
    for mask in (seen, torch.where(seen, 0.0, -torch.inf).to(F64)):
        y = kw.scaled_dot_product_attention(q, k, v, mask)
        kept = [0, 1, 3, 4, 5]
        want = F.scaled_dot_product_attention(q, k[:, :, kept], v[:, :, kept])
        torch.testing.assert_close(y[:, :, [0, 2, 3]], want[:, :, [0, 2, 3]])
        assert torch.equal(y[:, :, 1], torch.zeros_like(y[:, :, 1]))
        finite = k.nan_to_num().detach()
        y = kw.scaled_dot_product_attention(q, finite, v, mask)
        (gq,) = torch.autograd.grad(y.sum(), q)
        assert torch.equal(gq[:, :, 1], torch.zeros_like(gq[:, :, 1]))


def test_weights_are_dropped_by_the_generator_of_the_device():
    args = operands((2, 3, 40, 8), (2, 3, 50, 8), (2, 3, 50, 8), dtype=torch.float32)
    torch.manual_seed(1)
    first = kw.scaled_dot_product_attention(*args, dropout_p=0.3)
    gradients = torch.autograd.grad(first.square().sum(), args)
    torch.manual_seed(1)
    again = kw.scaled_dot_product_attention(*args, dropout_p=0.3)
    assert torch.equal(first, again)
    for a, b in zip(gradients, torch.autograd.grad(again.square().sum(), args), strict=True):
        assert torch.equal(a, b)
    ones = [t.detach().clone() for t in args]
    ones[2].fill_(1.0)
    kept = kw.scaled_dot_product_attention(*ones, dropout_p=0.3)
    assert 0.9 < kept.mean() < 1.1 and kept.std() > 0.01


def test_results_lie_as_queries_do():
    q, k, v = (randn(2, 5, 3, 8, seed=i).transpose(1, 2) for i in range(3))
    y = kw.scaled_dot_product_attention(q, k, v)
    assert y.transpose(1, 2).is_contiguous()
    assert kw.scaled_dot_product_attention(*(t.contiguous() for t in (q, k, v))).is_contiguous()


def test_autocast_casts_as_it_does_pytorchs():
    args = operands((2, 2, 4, 8), (2, 2, 4, 8), (2, 2, 4, 8), dtype=torch.float32)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert kw.scaled_dot_product_attention(*args).dtype == torch.bfloat16
        assert F.scaled_dot_product_attention(*args).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"query": torch.zeros(2, 3, 4, 8, dtype=torch.int32)}, "query"),
        ({"query": torch.zeros(8)}, "query"),
        ({"key": torch.zeros(2, 3, 4, 8, dtype=F64)}, "key"),
        ({"key": torch.zeros(2, 3, 4, 7)}, "key"),
        ({"key": torch.zeros(2, 2, 4, 8), "value": torch.zeros(2, 2, 4, 8)}, "key"),
        ({"key": torch.zeros(2, 2, 4, 8), "enable_gqa": True}, "key"),
        ({"key": torch.zeros(5, 3, 4, 8)}, "key"),
        ({"value": torch.zeros(2, 3, 5, 8)}, "value"),
        ({"attn_mask": torch.zeros(3, 4)}, "attn_mask"),
        ({"attn_mask": torch.zeros(4, 4, dtype=torch.int64)}, "attn_mask"),
        ({"attn_mask": torch.zeros(1, 2, 3, 4, 4)}, "attn_mask"),
        ({"attn_mask": torch.ones(4, 4), "is_causal": True}, "attn_mask"),
        ({"dropout_p": 1.5}, "dropout_p"),
        ({"dropout_p": 0.5j}, "dropout_p"),
        ({"scale": 1j}, "scale"),
    ],
)
def test_errors_name_the_argument(changed, name):
    args = {n: torch.zeros(2, 3, 4, 8) for n in ("query", "key", "value")} | changed
    with pytest.raises((TypeError, ValueError), match=f"^{name}:"):
        kw.scaled_dot_product_attention(**args)


def specs(q, k=None, v=None, dtype=torch.bfloat16, **options):
    made = {
        name: TensorSpec.contiguous(shape or q, dtype)
        for name, shape in (("q", q), ("k", k), ("v", v))
    }
    rest = {"mask": None, "seed": None, "causal": False, "mask_grad": False, "scale": 0.1, "p": 0.0}
    return {**made, **rest, **options}


def test_kernels_refuse_what_they_cannot_index():
    wide = heuristics.fits_triton(H200, **specs((1, 1, 8, 257)))
    assert wide and "257" in wide
    long = heuristics.fits_triton(H200, **specs((1, 1, 8, 64), (1, 1, 2**31, 64)))
    assert long and "int32" in long
    other = specs((1, 1, 8, 64)) | {"v": TensorSpec.contiguous((1, 1, 8, 64), torch.float16)}
    assert heuristics.fits_triton(H200, **other).startswith("v:")


def test_a_cost_counts_what_a_causal_mask_leaves():
    for length, s in ((5, 5), (3, 7), (7, 3)):
        args = specs((2, 3, length, 4), (2, 3, s, 4), (2, 3, s, 4))
        seen = torch.ones(length, s).tril().sum().item()
        assert spec.pairs(args["q"], args["k"], True) == 6 * seen


def test_a_mask_has_no_stride_along_what_it_repeats():
    mask = TensorSpec((1, 3, 5, 7), (999, 35, 7, 1), torch.bool)
    c = call.Call(specs((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), mask=mask))
    assert [s.value for s in c.mask_strides] == [0, 35, 7, 1]

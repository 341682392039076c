"""Decoding over a contiguous cache: step by step it is attention over all tokens; errors."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, TensorSpec
from kernelwright.dispatch import launcher, specs_of
from kernelwright.ops.attention.decode import LADDER, heuristics
from support.publics import DEVICE, randn

RUNGS = ("manual", "native", "cuda_block", "cuda_cluster")


@pytest.mark.parametrize("rung", RUNGS)
def test_steps_are_attention_over_all_tokens(rung):
    """Sequences of different lengths; memory behind their ends is never read."""
    b, h, g, s, d, steps = 2, 6, 2, 24, 16, 5
    caches = [torch.full((b, g, s, d), torch.nan, device=DEVICE) for _ in range(2)]
    before = torch.tensor([0, 17], device=DEVICE)
    tokens = [randn(b, g, s, d, seed=i) for i in range(2)]
    for cache, token in zip(caches, tokens, strict=True):
        cache[1, :, :17] = token[1, :, :17]
    for step in range(steps):
        lengths = before + step
        q = randn(b, h, d, seed=9 + step)
        new = [torch.stack([t[i, :, int(lengths[i])] for i in range(b)]) for t in tokens]
        args = {"q": q, "k": new[0], "v": new[1], "k_cache": caches[0], "v_cache": caches[1],
                "lengths": lengths, "scale": 0.4}  # fmt: skip
        y = launcher(LADDER, args, rung)(*args.values())
        for i in range(b):
            n = int(lengths[i]) + 1
            k, v = (t[i : i + 1, :, :n] for t in tokens)
            want = F.scaled_dot_product_attention(
                q[i : i + 1].unsqueeze(2), k, v, scale=0.4, enable_gqa=True
            )
            torch.testing.assert_close(y[i], want[0, :, 0], rtol=1e-5, atol=1e-5)
    for cache, token in zip(caches, tokens, strict=True):
        assert torch.equal(cache[0, :, :steps], token[0, :, :steps])
        assert bool(cache[0, :, steps:].isnan().all()) and bool(cache[1, :, 22:].isnan().all())


def test_a_cache_of_every_layer_is_sliced():
    """Views of one tensor, as a model keeps them."""
    kv = torch.zeros(3, 2, 2, 4, 32, 16, device=DEVICE)
    q, k, v = (randn(2, 4, 16, seed=i) for i in range(3))
    lengths = torch.tensor([0, 31], device=DEVICE)
    y = kw.attention_with_kv_cache(q, k, v, kv[1, 0], kv[1, 1], lengths)
    torch.testing.assert_close(y[0], v[0])
    assert torch.equal(kv[1, 0, 1, :, 31], k[1]) and not kv[[0, 2]].any()


@pytest.mark.parametrize(
    ("rung", "g", "heads_last"),
    [
        ("cuda_split_mma", 1, False),
        ("cuda_split_bulk", 1, False),
        ("cuda_split_bulk", 3, False),
        ("cuda_split_bulk", 2, True),
    ],
)
def test_split_keys_end_with_the_new_token(rung, g, heads_last):
    """Lengths around multiples of a tile; memory behind the ends is NaN, and stays NaN."""
    lengths = torch.tensor([0, 15, 16, 63, 200], device=DEVICE)
    b, h, s, d = 5, 9 * g, 201, 16
    q, k, v, *caches = (randn(*shape, dtype=torch.bfloat16, seed=i) for i, shape in enumerate(
        ((b, h, d), (b, g, d), (b, g, d), (b, g, s, d), (b, g, s, d))))  # fmt: skip
    if heads_last:
        caches = [c.transpose(1, 2).contiguous().transpose(1, 2) for c in caches]
    for i, n in enumerate(lengths):
        for cache in caches:
            cache[i, :, n:] = torch.nan
    args = {"q": q, "k": k, "v": v, "k_cache": caches[0], "v_cache": caches[1],
            "lengths": lengths, "scale": 0.4}  # fmt: skip
    before = [c.clone() for c in caches]
    y = launcher(LADDER, args, rung)(*args.values())
    wide = {n: t.double() if n != "lengths" and n != "scale" else t for n, t in args.items()}
    wide |= {"k_cache": before[0].double(), "v_cache": before[1].double()}
    torch.testing.assert_close(y.double(), LADDER.operator.reference(**wide), rtol=8e-3, atol=4e-3)
    for new, cache, old in zip((k, v), caches, before, strict=True):
        old[torch.arange(b), :, lengths] = new
        assert torch.equal(cache.nan_to_num(7), old.nan_to_num(7))


def test_bulk_copies_need_contiguous_rows_or_heads():
    caches = torch.zeros(2, 2, 2, 8, 16, dtype=torch.bfloat16)
    q, new = (torch.zeros(2, n, 16, dtype=torch.bfloat16) for n in (4, 2))
    args = {"q": q, "k": new, "v": new, "lengths": torch.tensor([3, 7]), "scale": 1.0}

    def why(gpu, caches, **more):
        args_ = {**args, "k_cache": caches[0], "v_cache": caches[1], **more}
        return heuristics.fits_bulk(gpu, **specs_of(args_))

    assert why(H200, caches) is None
    assert (
        why(replace(H200, capability=(8, 0)), caches) == "compute capability 8.0 has no bulk copies"
    )
    padded = torch.zeros(2, 2, 2, 8, 32, dtype=torch.bfloat16)[..., :16]
    assert why(H200, padded).startswith("k_cache: neither")
    heads_last = torch.zeros(2, 2, 8, 2, 16, dtype=torch.bfloat16).transpose(2, 3)
    assert why(H200, heads_last) is None
    apart = torch.zeros(2, 2, 32, dtype=torch.bfloat16)[..., :16]
    assert why(H200, heads_last, v=apart).startswith("v: its heads")


@pytest.mark.parametrize(
    ("shape", "g", "s", "size"),
    [((1, 12, 64), 12, 1024, 8), ((16, 12, 64), 12, 1024, 2), ((64, 32, 128), 8, 8192, 1),
     ((1, 12, 64), 12, 40, 1)],
)  # fmt: skip
def test_clusters_fill_the_gpu(shape, g, s, size):
    b, _, d = shape
    q, k, cache = (TensorSpec.contiguous(x, torch.bfloat16)
                   for x in (shape, (b, g, d), (b, g, s, d)))  # fmt: skip
    assert heuristics.blocks(H200, heuristics.CLUSTER[0], q, k, cache) == size


X, C = randn(2, 4, 16), randn(2, 2, 8, 16)
N, L = randn(2, 2, 16), torch.tensor([3, 7], device=DEVICE)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((X.long(), N, N, C, C, L), TypeError, "query"),
        ((X, N.half(), N, C, C, L), TypeError, "key: is torch.float16"),
        ((X[0], N, N, C, C, L), ValueError, "query: must have 3"),
        ((X, N, N, C[..., :8], C, L), ValueError, "key_cache: has shape"),
        ((X[:, :3], N, N, C, C, L), ValueError, "key_cache: 2 heads do not divide query's 3"),
        ((X, N, N, C, C[:, :1], L), ValueError, "value_cache: has shape"),
        ((X, N, N[:1], C, C, L), ValueError, "value: has shape"),
        ((X, N, N, C, C, L.int()), TypeError, "cache_seqlens: must be int64"),
        ((X, N, N, C, C, L[:1]), ValueError, "cache_seqlens: has shape"),
        ((X, N, N.clone().requires_grad_(), C, C, L), ValueError, "value: is not differentiable"),
    ],
)
def test_errors_name_the_argument(args, error, message):
    with pytest.raises(error, match=message):
        kw.attention_with_kv_cache(*args)


@pytest.mark.skipif(DEVICE == "cuda", reason="an assertion on a device ends the process")
@pytest.mark.parametrize("length", [-1, 8])
def test_a_full_sequence_is_an_error(length):
    with pytest.raises(IndexError, match=f"cache_seqlens: {length} is not between 0 and 7"):
        kw.attention_with_kv_cache(X, N, N, C, C, torch.tensor([3, length]))

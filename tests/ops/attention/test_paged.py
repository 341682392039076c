"""Caches in pages: what is written is what attention reads, whatever the order of pages."""

import random

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200
from kernelwright.ops.attention.paged import heuristics
from support.publics import DEVICE, randn


def cached(lengths, page, heads=2, d=8, dtype=torch.float32, cache=None, **scales):
    """(keys, values, caches, table) of sequences whose pages lie in random order."""
    draw = random.Random(3)
    each = -(-max(lengths) // page)
    pages = draw.sample(range(len(lengths) * each + 2), len(lengths) * each)
    table = torch.tensor(pages, dtype=torch.int32, device=DEVICE).view(len(lengths), each)
    shape = (len(lengths) * each + 2, page, heads, d)
    caches = [torch.zeros(shape, dtype=cache or dtype, device=DEVICE) for _ in range(2)]
    tokens = [[randn(n, heads, d, dtype=dtype, seed=i + 9 * j) for i, n in enumerate(lengths)]
              for j in range(2)]  # fmt: skip
    slots = [int(table[b, t // page]) * page + t % page
             for b, n in enumerate(lengths) for t in range(n)]  # fmt: skip
    order = draw.sample(range(len(slots)), len(slots))
    at = torch.tensor(slots, device=DEVICE)[order]
    keys, values = (torch.cat(t)[order] for t in tokens)
    kw.reshape_and_cache(keys, values, *caches, at, **scales)
    return *tokens, caches, table


@pytest.mark.parametrize("page", [1, 5, 16, 64])
def test_attention_reads_what_was_written(page):
    lengths = [7, 1, 33]
    keys, values, caches, table = cached(lengths, page)
    q = randn(3, 6, 8, seed=5)
    seq = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    y = kw.paged_attention(q, *caches, table, seq, 0.4)
    for b in range(3):
        k, v = (t[b].transpose(0, 1).repeat_interleave(3, 0) for t in (keys, values))
        want = F.scaled_dot_product_attention(q[b].unsqueeze(1), k, v, scale=0.4).squeeze(1)
        torch.testing.assert_close(y[b], want)


def test_what_stands_behind_a_sequence_is_not_read():
    _, _, caches, table = cached([7, 0, 3], 4)
    q, seq = randn(3, 2, 8), torch.tensor([7, 0, 3], dtype=torch.int32, device=DEVICE)
    y = kw.paged_attention(q, *caches, table, seq)
    assert torch.equal(y[1], torch.zeros_like(y[1]))
    for cache in caches:
        cache[int(table[2, 1])] = torch.nan
        cache[int(table[2, 0]), 3] = torch.nan
    table[1] = -7
    table[2, 1] = 2**30
    assert torch.equal(y, kw.paged_attention(q, *caches, table, seq))


@pytest.mark.parametrize("cache", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8])
def test_8_bits_hold_what_their_scales_say(cache):
    scales = {"k_scale": 0.02, "v_scale": 0.03}
    keys, values, caches, table = cached([9], 4, cache=cache, **scales)
    stored = [torch.cat([c[p].float() for p in table[0]])[:9] * s
              for c, s in zip(caches, scales.values(), strict=True)]  # fmt: skip
    for given, kept in zip((keys[0], values[0]), stored, strict=True):
        assert (given - kept).abs().max() < 0.2 * given.abs().max()
    q, seq = randn(1, 2, 8), torch.tensor([9], dtype=torch.int32, device=DEVICE)
    y = kw.paged_attention(q, *caches, table, seq, **scales)
    k, v = (t.transpose(0, 1) for t in stored)
    want = F.scaled_dot_product_attention(q[0].unsqueeze(1), k, v).squeeze(1)
    torch.testing.assert_close(y[0], want, rtol=1e-4, atol=1e-4)


def test_a_negative_slot_is_passed_over():
    k, v = torch.zeros(2, 4, 1, 3), torch.zeros(2, 4, 1, 3)
    kw.reshape_and_cache(torch.ones(2, 1, 3), torch.ones(2, 1, 3), k, v, torch.tensor([-1, 5]))
    assert k.nonzero()[:, :2].unique(dim=0).tolist() == [[1, 1]] and torch.equal(k, v)


Q, C, T, L = (torch.zeros(2, 4, 8), torch.zeros(3, 4, 2, 8), torch.zeros(2, 2, dtype=torch.int32),
              torch.ones(2, dtype=torch.int32))  # fmt: skip


@pytest.mark.parametrize(
    ("args", "name"),
    [
        ((Q.int(), C, C, T, L), "query"),
        ((Q[0], C, C, T, L), "query"),
        ((Q, C.double(), C, T, L), "key_cache"),
        ((Q, C[..., :7], C, T, L), "value_cache|key_cache"),
        ((Q, C, C[:2], T, L), "value_cache"),
        ((Q[:, :3], C, C, T, L), "key_cache"),
        ((Q, C, C, T.long(), L), "block_tables"),
        ((Q, C, C, T[:1], L), "block_tables"),
        ((Q, C, C, T, L[:1]), "seq_lens"),
        ((Q.clone().requires_grad_(), C, C, T, L), "query"),
    ],
)
def test_errors_name_the_argument(args, name):
    with pytest.raises((TypeError, ValueError), match=f"^({name}):"):
        kw.paged_attention(*args)


def test_splits_fill_the_machine_and_no_more():
    config = heuristics.CONFIGS[0]
    assert heuristics.splits_of(H200, config, 8, 8192) * 8 >= H200.sms
    assert heuristics.splits_of(H200, config, 10_000, 8192) == 1
    assert heuristics.splits_of(H200, config, 1, 64) == 1
    assert heuristics.splits_of(H200, config, 1, 2**20) <= heuristics.MOST_SPLITS

"""Paged caches: attention reads what was written, in whatever order the pages lie."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, case
from kernelwright.contract.symbolic_int import Trace
from kernelwright.dispatch import dynamic_shapes, launcher
from kernelwright.dispatch.launcher import entry_of
from kernelwright.ops.attention import _split_keys
from kernelwright.ops.attention.decode import LADDER as CONTIGUOUS
from kernelwright.ops.attention.paged import LADDER, heuristics, spec
from kernelwright.workbench.sanitize import report
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


SPLIT = ("cuda_split_mma", "cuda_split_bulk")


def split(rung, *args):
    """(y, lse) of a rung."""
    names = ("q", "k", "v", "table", "lengths", "scale", "k_scale", "v_scale")
    return launcher(LADDER, dict(zip(names, args, strict=True)), rung)(*args)


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("rung", SPLIT)
def test_split_keys_end_where_a_sequence_ends(rung, heads_first):
    """20 query heads for each head of the cache, pages of three tiles, different head sizes of keys
    and values; lengths around multiples of a tile. A query's range is float32's. `heads_first`: the
    rows of a head are contiguous."""
    split_keys = partial(split, rung)
    lengths, page, hk = [0, 1, 15, 16, 17, 130], 48, 2
    draw = random.Random(5)
    k, v = (randn(40, page, hk, n, seed=n).to(torch.float8_e4m3fn) for n in (32, 48))
    table = torch.tensor(draw.sample(range(40), 18), dtype=torch.int32, device=DEVICE).view(6, 3)
    seq = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    if heads_first:
        k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (k, v))
    q = randn(6, 40, 32, dtype=torch.bfloat16, seed=1)
    want = spec.reference(q.double(), k, v, table, seq, 0.2, 1.5, 0.5)
    for b, n in enumerate(lengths):  # elements behind the end are not read
        for cache in (k, v):
            behind = cache.view(torch.uint8)[table[b].long()].flatten(0, 1)
            behind[n:] = 0x7F
            cache.view(torch.uint8)[table[b].long()] = behind.unflatten(0, (3, page))
        table[b, -(-n // page) :] = 2**30
    y, lse = split_keys(q, k, v, table, seq, 0.2, 1.5, 0.5)
    torch.testing.assert_close(y.double(), want[0], rtol=8e-3, atol=4e-3)
    torch.testing.assert_close(lse.double(), want[1], rtol=1e-5, atol=1e-5)
    for power in (90.0, -60.0):
        again = split_keys(q * 2.0**power, k, v, table, seq, 0.2 * 2.0**-power, 1.5, 0.5)
        assert torch.equal(y, again[0]) and torch.equal(lse, again[1])


@pytest.mark.parametrize("rung", SPLIT)
@pytest.mark.parametrize("kind", spec.CACHES.values())
def test_every_8_bit_element_is_exact(kind, rung):
    """Sequences of one token that contain every 8-bit element: y is its value, and the score of a
    query with a single 1 is an element of its key."""
    every = torch.arange(256, dtype=torch.uint8, device=DEVICE).view(1, 1, 1, 256)
    page = every.repeat(1, 16, 1, 1).view(kind)
    q = torch.eye(256, dtype=torch.float16, device=DEVICE).view(32, 8, 256)
    table, seq = (torch.full(n, i, dtype=torch.int32, device=DEVICE)
                  for i, n in enumerate([(32, 1), (32,)]))  # fmt: skip
    finite = page.float().nan_to_num(0.0, 0.0, 0.0).to(kind)
    y, _ = split(rung, q, finite, page, table, seq, 1.0, 1.0, 1.0)
    value = page[0, 0, 0].half()
    assert torch.equal(y.isnan(), value.isnan().expand_as(y))
    assert torch.equal(y.nan_to_num(7), value.nan_to_num(7).expand_as(y))
    _, lse = split(rung, q, finite, finite, table, seq, 1.0, 1.0, 1.0)
    torch.testing.assert_close(lse.flatten(), finite[0, 0, 0].float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("items", "tokens", "splits"),
    [(128, 8192, 2), (8, 8192, 32), (512, 8192, 1), (1, 16, 1), (1, 2**20, 64), (264, 100, 1)],
)
def test_splits_take_whole_turns_of_the_gpu(items, tokens, splits):
    assert _split_keys.splits_of(2 * H200.sms, items, tokens, 64) == splits


@pytest.mark.parametrize("longest", [16, 700])
def test_blocks_find_their_share_of_many_sequences(longest):
    """More sequences than lanes, some of them empty, with fewer steps than blocks or several for
    each block; some items have more than two pieces."""
    b, hk, page = 70, 2, 16
    each = -(-longest // page)
    draw = random.Random(longest)
    lengths = [draw.choice((0, 1, draw.randint(1, longest), longest)) for _ in range(b)]
    table = torch.tensor([[draw.randrange(90) for _ in range(each)] for _ in range(b)],
                         dtype=torch.int32, device=DEVICE)  # fmt: skip
    seq = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    k, v = (randn(90, page, hk, 16, dtype=torch.bfloat16, seed=i) for i in range(2))
    q = randn(b, 4, 16, dtype=torch.bfloat16, seed=2)
    want = spec.reference(q.double(), k, v, table, seq, 0.3, 1.0, 1.0)
    y, lse = split("cuda_split_bulk", q, k, v, table, seq, 0.3, 1.0, 1.0)
    torch.testing.assert_close(y.double(), want[0], rtol=8e-3, atol=4e-3)
    torch.testing.assert_close(lse.double(), want[1], rtol=1e-5, atol=1e-5)
    again = split("cuda_split_bulk", q, k, v, table, seq, 0.3, 1.0, 1.0)
    assert torch.equal(y, again[0]) and torch.equal(lse, again[1])


@pytest.mark.skipif(DEVICE == "cuda", reason="the emulator's checks")
@pytest.mark.parametrize(
    ("ladder", "shape", "params"),
    [
        (LADDER, (3, 4, 256), {"hk": 2, "page": 16, "s": 300}),
        (CONTIGUOUS, (3, 4, 256), {"g": 2, "s": 600}),
    ],
    ids=["paged", "contiguous"],
)
def test_rings_are_used_again(ladder, shape, params):
    """Two blocks, as on a GPU of two multiprocessors: several rounds of the ring, pieces of two
    sequences in a block."""
    rung, c = ladder.rung("cuda_split_bulk"), case(shape, torch.bfloat16, **params)
    full_call = report.call_of(ladder, rung, rung.configs[0], c)
    few = replace(H200, sms=2)
    plan = entry_of(ladder, rung)(few, rung.configs[0], **full_call.specs)
    call = replace(full_call, plan=plan)
    for seed in report.SEEDS:
        got, found = call.watched(("races", "bounds", "init", "divergence"), seed)
        assert not found
    args = ladder.operator.inputs(c, "cpu")
    names = "q", "k", "v", "k_cache", "v_cache"
    wide = {n: t.double() if n in names else t for n, t in args.items()}
    want = ladder.operator.reference(**wide)
    y, want = (t[0] if isinstance(t, (tuple, list)) else t for t in (got, want))
    torch.testing.assert_close(y.double(), want, rtol=8e-3, atol=4e-3)


@pytest.mark.parametrize("rung_name", SPLIT)
@pytest.mark.parametrize("ladder", [LADDER, CONTIGUOUS], ids=lambda x: x.name)
def test_one_plan_serves_many_batches_and_lengths(ladder, rung_name):
    """The number of blocks of cuda_split_bulk does not depend on them."""

    def given(b, s):
        more = {"hk": 8, "page": 16} if ladder is LADDER else {"g": 8}
        c = case((b, 32, 128), torch.bfloat16, s=s, **more)
        args = ladder.operator.inputs(c, "meta")
        return args, *dynamic_shapes.OpenCalls(ladder)._pattern(tuple(args.values()))

    args, pattern, values = given(200, 4000)
    trace = Trace({f"n{i}": n for i, n in enumerate(values)})
    rung = ladder.rung(rung_name)
    specs = dynamic_shapes._opened(args, pattern, trace)
    assert rung.supports(H200, **specs) is None
    dynamic_shapes.plan_of(ladder, rung, specs, config=rung.configs[0])
    for b, s, holds in ((300, 7008, True), (40, 4000, rung_name == "cuda_split_bulk")):
        _, other, values = given(b, s)
        assert (other == pattern and trace.guard()(*values) is None) == holds

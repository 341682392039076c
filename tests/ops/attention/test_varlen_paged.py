"""attention_varlen over pages: compared with a loop over sequences; with fixed splits the bits of a
token do not depend on what else is computed."""

import random
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch

import kernelwright as kw
from kernelwright import toolchain
from kernelwright.contract import H200, case
from kernelwright.dispatch import specs_of
from kernelwright.dispatch.launcher import entry_of
from kernelwright.ops.attention.varlen_paged import LADDER, heuristics, spec
from support.publics import DEVICE, randn

F64 = torch.float64


@dataclass
class Sequence:
    """The keys and values of a sequence, and the queries of its last tokens."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def sequences(draw, count, *, h, hk, d, dv, dtype, longest=60):
    made = []
    for _ in range(count):
        m = draw.choice((0, 1, draw.randint(1, longest), longest))
        n = draw.choice((0, 1, 1, draw.randint(0, max(m, 1))))
        shapes = ((n, h, d), (m, hk, d), (m, hk, dv))
        made.append(Sequence(*(randn(*s, dtype=dtype, seed=draw.randrange(2**31)) for s in shapes)))
    return made


def paged(draw, given, page):
    """(keys, values, block table, key counts) with pages in random order; what stands behind a
    sequence is NaN, and what stands behind its pages in the table is no page."""
    each = max((-(-s.k.shape[0] // page) for s in given), default=0)
    free = draw.sample(range(len(given) * each + 2), len(given) * each)
    caches = [
        torch.full((len(free) + 2, page, *t.shape[1:]), torch.nan, device=DEVICE).to(t.dtype)
        for t in (given[0].k, given[0].v)
    ]
    table = torch.full((len(given), each), 2**30, dtype=torch.int32, device=DEVICE)
    for b, s in enumerate(given):
        for i in range(0, s.k.shape[0], page):
            table[b, i // page] = at = free.pop()
            for cache, t in zip(caches, (s.k, s.v), strict=True):
                cache[at, : len(t[i : i + page])] = t[i : i + page]
    counts = [s.k.shape[0] for s in given]
    return *caches, table, torch.tensor(counts, dtype=torch.int32, device=DEVICE)


def attend(draw, given, page, **options):
    """(y, lse) of each sequence."""
    keys, values, table, counts = paged(draw, given, page)
    lengths = [s.q.shape[0] for s in given]
    ends = torch.tensor([0, *lengths], device=DEVICE).cumsum(0).int()
    q = torch.cat([s.q for s in given])
    y, lse = kw.attention_varlen(
        q, keys, values, ends, None, max(lengths), 0, block_table=table, seqused_k=counts,
        return_lse=True, **options,
    )  # fmt: skip
    return list(zip(y.split(lengths), lse.t().split(lengths), strict=True))


def formula(s, *, window, softcap, sinks, slopes, scale):
    """(y, lse) of one sequence."""
    (n, h, _), m = s.q.shape, s.k.shape[0]
    k, v = (t.repeat_interleave(h // t.shape[1], 1) for t in (s.k, s.v))
    z = torch.einsum("nhd,mhd->nhm", s.q, k) * scale
    z = softcap * torch.tanh(z / softcap) if softcap else z
    columns, rows = torch.arange(m, device=DEVICE), torch.arange(n, device=DEVICE)
    away = (columns - (rows + m - n)[:, None])[:, None]
    if slopes is not None:
        z = z - slopes.view(-1, 1) * away.abs()
    left, right = window
    hidden = (away > right) if right >= 0 else torch.zeros_like(away, dtype=torch.bool)
    z = z.masked_fill(hidden | (away < -left) if left >= 0 else hidden, -torch.inf)
    column = torch.full((n, h, 1), -torch.inf, dtype=F64, device=DEVICE)
    if sinks is not None:
        column = column.clone().copy_(sinks.view(-1, 1))
    z = torch.cat((z, column), -1)
    weights = z.softmax(-1).nan_to_num(0.0)[..., :-1]
    return torch.einsum("nhm,mhd->nhd", weights, v), z.logsumexp(-1)


@pytest.mark.parametrize("split", [0, 7, 16, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_the_formula(seed, split):
    draw = random.Random(f"{seed} {split}")
    hk = draw.choice((1, 2, 3))
    h, dims = hk * draw.choice((1, 2, 5)), [draw.choice((1, 8, 13, 32)) for _ in range(2)]
    given = sequences(draw, draw.randint(1, 5), h=h, hk=hk, d=dims[0], dv=dims[1], dtype=F64)
    window = draw.choice(((-1, -1), (-1, 0), (draw.randint(0, 20), 0), (3, 2), (-1, 4)))
    options = {
        "softcap": draw.choice((0.0, 1.5)),
        "scale": draw.choice((0.3, 0.0)),
        "sinks": draw.choice((None, randn(h, dtype=F64, seed=1))),
    }
    slopes = draw.choice((None, randn(h, dtype=F64, seed=2).abs()))
    found = attend(
        draw, given, draw.choice((1, 3, 16)), window=window, alibi_slopes=slopes, split=split,
        **options,
    )  # fmt: skip
    for s, (y, lse) in zip(given, found, strict=True):
        want, want_lse = formula(s, window=window, slopes=slopes, **options)
        torch.testing.assert_close(y, want)
        torch.testing.assert_close(lse, want_lse)


def test_is_causal_is_a_window_to_the_right():
    draw = random.Random(1)
    given = sequences(draw, 3, h=4, hk=2, d=8, dv=8, dtype=F64)
    for left in (-1, 5):
        pair = [
            attend(random.Random(2), given, 4, window=(left, right), is_causal=causal)
            for right, causal in ((0, False), (7, True))
        ]
        for (a, _), (b, _) in zip(*pair, strict=True):
            assert torch.equal(a, b)


@pytest.mark.cover
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_bits_depend_on_a_query_and_its_keys_alone(seed, threads):
    """A sequence alone, one token at a time; in random batches, in random pieces, on pages of
    another size and order."""
    draw = random.Random(seed)
    hk, group = draw.choice(((1, 1), (1, 5), (2, 2), (3, 3), (2, 7)))
    dtype = draw.choice((torch.float32, torch.float32, torch.bfloat16, F64))
    dims = [draw.choice((16, 40, 64, 13)) for _ in range(2)]
    made = sequences(draw, 6, h=hk * group, hk=hk, d=dims[0], dv=dims[1], dtype=dtype, longest=90)
    given = [s for s in made if s.q.shape[0]]
    options = {
        "split": draw.choice((1, 16, 24, 32, 37)),
        "window": draw.choice(((-1, 0), (11, 0))),
        "softcap": draw.choice((0.0, 5.0)),
        "sinks": draw.choice((None, randn(hk * group, seed=3))),
        "alibi_slopes": draw.choice((None, randn(hk * group, seed=4).abs())),
    }
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        want = [attend(draw, [s], 16, **options)[0] for s in given]
        for _ in range(4):
            chosen = draw.sample(range(len(given)), draw.randint(1, len(given)))
            pieces, whole = [], []
            for b in chosen:
                s = given[b]
                n, m = s.q.shape[0], s.k.shape[0]
                cuts = sorted({0, n, *(draw.randint(0, n) for _ in range(draw.choice((0, 1, 4))))})
                for first, end in pairwise(cuts):
                    seen = max(0, m - n + end)
                    pieces.append(Sequence(s.q[first:end], s.k[:seen], s.v[:seen]))
                    whole.append([t[first:end] for t in want[b]])
            order = draw.sample(range(len(pieces)), len(pieces))
            found = attend(draw, [pieces[i] for i in order], draw.choice((1, 5, 16, 64)), **options)
            for i, (y, lse) in zip(order, found, strict=True):
                assert torch.equal(y, whole[i][0]) and torch.equal(lse, whole[i][1])
    finally:
        torch.set_num_threads(before)


def test_without_a_split_bits_may_depend_on_the_batch():
    """So the test above can fail."""
    draw = random.Random(3)
    given = [Sequence(*(randn(90, 3, 13, seed=3 * i + j) for j in range(3))) for i in range(3)]
    one = [attend(draw, [Sequence(s.q[-1:], s.k, s.v)], 16, is_causal=True)[0][0] for s in given]
    every = attend(draw, given, 16, is_causal=True)
    assert not all(torch.equal(a[0], y[-1]) for a, (y, _) in zip(one, every, strict=True))


@pytest.mark.parametrize("split", [0, 16])
@pytest.mark.parametrize("kind", spec.CACHES.values())
def test_8_bits_hold_what_their_scales_say(kind, split):
    draw = random.Random(4)
    given = sequences(draw, 4, h=4, hk=2, d=16, dv=16, dtype=torch.float32)
    stored = [
        Sequence(s.q, *(spec.quantized(t, 0.02, kind) for t in (s.k, s.v))) for s in given
    ]  # fmt: skip
    wide = [
        Sequence(s.q, s.k.float() * 0.02, s.v.float() * 0.5) for s in stored
    ]  # fmt: skip
    options = {"is_causal": True, "split": split}
    found = attend(random.Random(5), stored, 16, k_scale=0.02, v_scale=0.5, **options)
    want = attend(random.Random(5), wide, 16, **options)
    for (y, lse), (y2, lse2) in zip(found, want, strict=True):
        torch.testing.assert_close(y, y2)
        torch.testing.assert_close(lse, lse2)


@pytest.mark.parametrize("split", [0, 16])
def test_tokens_after_the_last_sequence_are_padding(split):
    q, cache = randn(6, 4, 8), randn(3, 4, 2, 8, seed=1)
    ends = torch.tensor([0, 2], dtype=torch.int32, device=DEVICE)
    table = torch.tensor([[2, 0]], dtype=torch.int32, device=DEVICE)
    count = torch.tensor([7], dtype=torch.int32, device=DEVICE)
    sinks = randn(4, seed=2)
    y, lse = kw.attention_varlen_paged(
        q, cache, cache, ends, table, count, split=split, sinks=sinks
    )
    assert torch.equal(y[2:], torch.zeros_like(y[2:])) and y[:2].abs().min() > 0
    assert torch.equal(lse[:, 2:], sinks[:, None].expand(4, 4))


def test_one_query_for_each_sequence_is_paged_attention():
    draw = random.Random(6)
    shapes = ((1, 6, 8), (40, 2, 8), (40, 2, 8))
    given = [Sequence(*(randn(*s, seed=9 * i + j) for j, s in enumerate(shapes))) for i in range(4)]
    keys, values, table, counts = paged(draw, given, 16)
    for cache in (keys, values):  # whose formula reads what stands behind a sequence
        cache.nan_to_num_(0.0)
    q = torch.cat([s.q for s in given])
    ends = torch.arange(5, dtype=torch.int32, device=DEVICE)
    y, _ = kw.attention_varlen_paged(q, keys, values, ends, table, counts)
    torch.testing.assert_close(y, kw.paged_attention(q, keys, values, table, counts))


Q, C = torch.zeros(5, 4, 8), torch.zeros(3, 4, 2, 8)
T, L, E = (torch.tensor(x, dtype=torch.int32) for x in ([[0], [1]], [3, 4], [0, 2, 5]))


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"query": Q.int()}, "query"),
        ({"query": Q[0]}, "query"),
        ({"query": Q.clone().requires_grad_()}, "query"),
        ({"query": Q[:, :3]}, "key"),
        ({"query": Q[..., :7]}, "key"),
        ({"key": C.double()}, "key"),
        ({"key": C[0]}, "key"),
        ({"value": C.to(torch.int8)}, "value"),
        ({"value": C[:2]}, "value"),
        ({"cu_seqlens_q": E.long()}, "cu_seqlens_q"),
        ({"cu_seqlens_q": E[:2]}, "block_table"),
        ({"cu_seqlens_k": E}, "cu_seqlens_k"),
        ({"block_table": T[0]}, "block_table"),
        ({"block_table": T.long()}, "block_table"),
        ({"seqused_k": L[:1]}, "seqused_k"),
        ({"seqused_k": None}, "seqused_k"),
        ({"max_seqlen_q": -1}, "max_seqlen_q"),
        ({"window": (-2, 0)}, "window"),
        ({"softcap": -1.0}, "softcap"),
        ({"sinks": torch.zeros(3)}, "sinks"),
        ({"sinks": torch.zeros(4, requires_grad=True)}, "sinks"),
        ({"alibi_slopes": torch.zeros(4, 1)}, "alibi_slopes"),
        ({"scale": -1.0}, "scale"),
        ({"split": -1}, "split"),
    ],
)
def test_errors_name_the_argument(changed, name):
    args = {
        "query": Q, "key": C, "value": C, "cu_seqlens_q": E, "cu_seqlens_k": None,
        "max_seqlen_q": 3, "max_seqlen_k": 4, "block_table": T, "seqused_k": L,
    } | changed  # fmt: skip
    with pytest.raises((TypeError, ValueError), match=f"^{name}:"):
        kw.attention_varlen(**args)


@pytest.mark.parametrize(
    ("name", "value"),
    [("seqused_k", L), ("k_scale", 2.0), ("v_scale", 0.5), ("split", 16), ("return_lse", True)],
)
def test_without_pages_their_arguments_are_refused(name, value):
    x = torch.zeros(5, 4, 8)
    with pytest.raises(ValueError, match=f"^{name}:"):
        kw.attention_varlen(x, x, x, E, E, 3, 3, **{name: value})
    with pytest.raises(TypeError, match=r"^cu_seqlens_k:"):
        kw.attention_varlen(x, x, x, E, None, 3, 3)


def triton_plan(args, sms):
    """The plan of triton_pages for a GPU of `sms` multiprocessors."""
    gpu = replace(H200, sms=sms)
    return entry_of(LADDER, LADDER.rung("triton_pages"))(gpu, heuristics.CONFIGS[0], **args)


def run_plan(plan, args):
    specs, copies = LADDER.operator.normalise(specs_of(args))
    device = torch.device("cpu")
    return toolchain.executor(plan, LADDER.operator, specs, copies, device)(*args.values())


@pytest.mark.skipif(DEVICE == "cuda", reason="of plans for other GPUs")
@pytest.mark.parametrize("sinks", [False, True])
def test_parts_are_merged_alike_in_registers_and_by_the_second_kernel(sinks):
    """Bit for bit; with a split that is no multiple of a tile of keys, and a window."""
    c = case(
        (9, 4, 16), torch.float16, lengths=(1, 8), keys=(90, 33), hk=2, page=5, right=0, left=70,
        split=24, sinks=sinks,
    )  # fmt: skip
    args = LADDER.operator.inputs(c, "cpu")
    plans = [triton_plan(specs_of(args), sms) for sms in (1, 132)]
    assert [len(plan.launches) for plan in plans] == [1, 2]
    results = [run_plan(plan, args) for plan in plans]
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_the_fixed_order_has_one_kernel_whatever_the_shapes():
    """With a split, neither the config nor sizes of the batch choose constants of the kernels."""
    kernels = set()
    for lengths, keys in (((1,), (900,)), ((1,) * 40, (30,) * 40), ((700, 1), (700, 5))):
        c = case((sum(lengths), 8, 64), torch.bfloat16, lengths=lengths, keys=keys, hk=2, page=16,
                 right=0, split=64)  # fmt: skip
        for config in heuristics.CONFIGS:
            plan = entry_of(LADDER, LADDER.rung("triton_pages"))(
                H200, config, **specs_of(LADDER.operator.inputs(c, "meta"))
            )
            kernels |= {repr(launch.kernel) for launch in plan.launches}
    assert len(kernels) == 2


@pytest.mark.parametrize("lengths", [(0, 1, 0, 0), (19, 1, 1, 0, 40, 7), (1,) * 9, (0,)])
@pytest.mark.parametrize("split", [0, 32])
def test_programs_find_their_queries(lengths, split):
    """Sequences without queries, and padding after the last one, which gets zeros."""
    draw, padding, shapes = random.Random(repr(lengths)), 3, ((1, 2, 16), (1, 1, 16), (1, 1, 16))
    given = []
    for i, n in enumerate(lengths):
        m = n + draw.randint(0, 30)
        made = (randn(k, *s[1:], dtype=torch.float16, seed=3 * i + j)
                for j, (s, k) in enumerate(zip(shapes, (n, m, m), strict=True)))  # fmt: skip
        given.append(Sequence(*made))
    keys, values, table, counts = paged(draw, given, 8)
    q = torch.cat([*(s.q for s in given), randn(padding, 2, 16, dtype=torch.float16)])
    ends = torch.tensor([0, *lengths], device=DEVICE).cumsum(0).int()
    args = q, keys, values, ends, table, counts
    y, lse = kw.attention_varlen_paged(*args, is_causal=True, split=split)
    with kw.use(attention_varlen_paged="triton_pages"):
        y2, lse2 = kw.attention_varlen_paged(*args, is_causal=True, split=split)
    torch.testing.assert_close(y2, y, rtol=4e-3, atol=4e-3)
    torch.testing.assert_close(lse2, lse, rtol=1e-4, atol=1e-4)
    assert torch.equal(y2[-padding:], torch.zeros_like(y2[-padding:]))

"""Tests of rope: layouts without copies, angles at far positions, kinds of tables."""

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import Unsupported
from kernelwright.contract.compare import ulp
from kernelwright.dispatch import launcher, specs_of, unsupported
from kernelwright.ops.embedding.rope import LADDER, spec
from support.publics import DEVICE, agree, randn, torch_rope

RUNGS = ("manual", "native", "triton_token", "cuda_vec16")


def tables(tokens, dims, dtype=torch.float32, interleaved=False):
    """cos and sin as transformers makes them: (1, T, D), each value twice."""
    angle = torch.arange(tokens)[:, None] * spec.frequencies(10000.0, dims)
    angle = angle.repeat_interleave(2, -1) if interleaved else angle.repeat(1, 2)
    return angle.cos()[None].to(DEVICE, dtype), angle.sin()[None].to(DEVICE, dtype)


def by(rung, q, k, *args, **kwargs):
    """The result of `kw.rope` by a rung; skips if the rung cannot run here."""
    try:
        with kw.use(rope=rung):
            return kw.rope(q, k, *args, **kwargs)
    except Unsupported as e:
        pytest.skip(str(e))


@pytest.mark.parametrize("rung", RUNGS)
def test_it_is_transformers_function(rung):
    q, k = randn(2, 4, 5, 16), randn(2, 2, 5, 16, seed=1)
    cos, sin = tables(5, 16)
    agree(by(rung, q, k, cos, sin), torch_rope(q, k, cos[:, None], sin[:, None]), q.dtype)


@pytest.mark.parametrize("rung", RUNGS)
def test_neighbours_are_complex_numbers(rung):
    q, k = randn(2, 4, 5, 16), randn(2, 2, 5, 16, seed=1)
    cos, sin = tables(5, 16, interleaved=True)
    turn = torch.complex(cos[..., ::2], sin[..., ::2])
    want = [
        torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)
        for x in (q, k)
    ]
    agree(by(rung, q, k, cos, sin, interleaved=True), tuple(want), q.dtype)


@pytest.mark.parametrize("rung", RUNGS)
def test_slices_of_a_packed_qkv_are_neither_copied_nor_changed(rung):
    packed = randn(2, 5, 8, 16)
    before = packed.clone()
    q, k, _ = packed.split((4, 2, 2), 2)
    cos, sin = tables(5, 16)
    yq, yk = by(rung, q, k, cos, sin, unsqueeze_dim=2)
    want = kw.rope(q.transpose(1, 2).clone(), k.transpose(1, 2).clone(), cos, sin)
    agree((yq.transpose(1, 2), yk.transpose(1, 2)), want, q.dtype)
    assert torch.equal(packed, before)
    assert yq.is_contiguous() and yk.is_contiguous()


def test_results_keep_the_order_of_memory():
    q, k = (randn(2, 5, h, 16).transpose(1, 2) for h in (4, 2))
    cos, sin = tables(5, 16)
    for y in kw.rope(q, k, cos, sin):
        assert y.transpose(1, 2).is_contiguous()
    for y in kw.rope(q.contiguous(), k.contiguous(), cos, sin):
        assert y.is_contiguous()


@pytest.mark.parametrize("interleaved", [False, True])
def test_every_form_of_a_table_gives_the_same_result(interleaved):
    q, k = randn(2, 4, 5, 16), randn(2, 2, 5, 16, seed=1)
    cos, sin = tables(5, 16, interleaved=interleaved)
    half = slice(0, 16, 2) if interleaved else slice(0, 8)
    want = kw.rope(q, k, cos, sin, interleaved=interleaved)
    for form in (
        lambda f: f[0],
        lambda f: f.repeat(2, 1, 1),
        lambda f: f[..., half],
        lambda f: f[0][:, half].contiguous(),
    ):
        got = kw.rope(q, k, form(cos), form(sin), interleaved=interleaved, rotary_dim=16)
        agree(got, want, q.dtype)
    got = kw.rope(q, k, positions=torch.arange(5, device=DEVICE), interleaved=interleaved)
    agree(got, want, q.dtype)


def test_without_a_batch():
    q, k = randn(5, 4, 16), randn(5, 2, 16, seed=1)
    cos, sin = tables(5, 16)
    want = kw.rope(q[None], k[None], cos, sin, unsqueeze_dim=2)
    for dim in (1, -2):
        got = kw.rope(q, k, cos[0], sin[0], unsqueeze_dim=dim)
        agree(got, tuple(w[0] for w in want), q.dtype)
    got = kw.rope(q.transpose(0, 1), k.transpose(0, 1), cos, sin, unsqueeze_dim=-3)
    agree(tuple(g.transpose(0, 1) for g in got), tuple(w[0] for w in want), q.dtype)


def test_each_sequence_of_a_batch_has_positions_of_its_own():
    q, k = randn(2, 4, 5, 16), randn(2, 2, 5, 16, seed=1)
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 0, 1]], device=DEVICE)
    got = kw.rope(q, k, positions=positions)
    for b in range(2):
        one = kw.rope(q[b : b + 1], k[b : b + 1], positions=positions[b].int())
        agree((got[0][b : b + 1], got[1][b : b + 1]), one, q.dtype)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_computed_angles_are_right_at_every_distance(rung, base):
    """Each cosine and sine within 3 ulp of 1, at up to 2^24 tokens: float32's product of position
    and frequency would be off by a radian."""
    positions = torch.tensor([0, 1, 2047, 131_071, 1_000_003, 2**24 - 1], device=DEVICE)
    q = torch.zeros(1, 1, len(positions), 128, device=DEVICE)
    q[..., :64] = 1.0  # so that the result is (cos, sin)
    args = {
        "q": q, "k": q, "cos": None, "sin": None, "positions": positions[None], "base": base,
        "rotary_dim": 128, "interleaved": False,
    }  # fmt: skip
    why = unsupported(LADDER.rung(rung), specs_of(args), q.device)
    if why:
        pytest.skip(why)
    y, _ = launcher(LADDER, args, rung)(*args.values())
    angle = positions[:, None].double() * spec.frequencies(base, 128, DEVICE)
    want = torch.cat((angle.cos(), angle.sin()), -1)
    assert (y[0, 0].double() - want).abs().max() <= 3 * ulp(torch.tensor(0.99).double(), q.dtype)


def test_the_backward_rotates_by_the_opposite_angle():
    q, k = randn(2, 4, 5, 16).requires_grad_(), randn(2, 2, 5, 16, seed=1).requires_grad_()
    cos, sin = tables(5, 16)
    yq, yk = kw.rope(q, k, cos, sin)
    gq, gk = torch.autograd.grad((yq, yk), (q, k), (yq.detach(), yk.detach()))
    agree((gq, gk), (q.detach(), k.detach()), q.dtype)
    (only,) = torch.autograd.grad(kw.rope(q, k, cos, sin)[1].sum(), k)
    assert only.shape == k.shape


def test_nothing_but_the_angles_is_saved():
    q, k = randn(2, 4, 5, 16).requires_grad_(), randn(2, 2, 5, 16, seed=1)
    cos, sin = tables(5, 16)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape), lambda t: t):
        kw.rope(q, k, cos, sin)
    assert saved == [(2, 5, 8)] * 2


def test_it_compiles_whole():
    q, k = randn(2, 4, 5, 16).requires_grad_(), randn(2, 2, 5, 16, seed=1)
    cos, sin = tables(5, 16)
    torch.compiler.reset()
    fn = torch.compile(lambda *a: kw.rope(*a), fullgraph=True, backend="aot_eager")
    agree(fn(q, k, cos, sin), kw.rope(q, k, cos, sin), q.dtype)
    fn(q, k, cos, sin)[0].sum().backward()
    assert q.grad is not None


Q, K, COS = (1, 2, 3, 8), (1, 1, 3, 8), (3, 8)


@pytest.mark.parametrize(
    ("shapes", "kwargs", "error", "message"),
    [
        ((Q, (1, 1, 4, 8), COS, COS), {}, ValueError, "k: "),
        ((Q[1:], K, COS, COS), {}, ValueError, "q, k: must both have 3 or 4 dimensions"),
        ((Q, K, COS, COS), {"unsqueeze_dim": 0}, ValueError, "unsqueeze_dim: "),
        ((Q, K, COS, None), {}, ValueError, "cos: pass cos and sin, or positions"),
        ((Q, K, COS, COS), {"rotary_dim": 3}, ValueError, "rotary_dim: must be even"),
        ((Q, K, (3, 10), (3, 10)), {}, ValueError, "rotary_dim: must be even, above 0 and at most"),
        ((Q, K, (4, 8), COS), {}, ValueError, "cos: has shape"),
        ((Q, K, COS, (3, 6)), {}, ValueError, "sin: has shape"),
        ((Q, K, (2, 3, 8), COS), {}, ValueError, "cos: has shape"),
        ((Q, K, (), COS), {}, ValueError, "rotary_dim: "),
        ((Q, K, COS, COS), {"positions": torch.arange(3)}, ValueError, "positions: pass either"),
        ((Q, K, None, None), {"positions": torch.arange(4)}, ValueError, "positions: have shape"),
        ((Q, K, None, None), {"positions": torch.ones(3)}, TypeError, "positions: must be int32"),
        ((Q, K, None, None), {"positions": [0, 1, 2]}, TypeError, "positions: must be a tensor"),
    ],
)
def test_what_does_not_agree_is_named(shapes, kwargs, error, message):
    given = [None if s is None else randn(*s) for s in shapes]
    with pytest.raises(error, match=message):
        kw.rope(*given, **kwargs)


def test_dtypes_and_gradients_that_it_does_not_take_are_named():
    q, k, cos = randn(*Q), randn(*K), randn(*COS)
    with pytest.raises(TypeError, match="q: must be floating point"):
        kw.rope(q.int(), k, cos, cos)
    with pytest.raises(TypeError, match="k: has dtype"):
        kw.rope(q, k.half(), cos, cos)
    with pytest.raises(TypeError, match="cos: must be floating point"):
        kw.rope(q, k, cos.int(), cos)
    with pytest.raises(ValueError, match="sin: is not differentiable"):
        kw.rope(q, k, cos, cos.clone().requires_grad_())

"""linear_attention compared with its recurrence, which autograd differentiates."""

import random

import pytest
import torch

import kernelwright as kw
from kernelwright.ops.attention.linear import chunks
from support.publics import DEVICE, fullgraph, randn


def recurrence(q, k, v, g=None, *, scale=None, initial_state=None):
    """(the outputs, the last state), in float64."""
    q, k, v = (t.double() for t in (q, k, v))
    s = q.new_zeros(*q.shape[:2], q.shape[3], v.shape[3])
    if initial_state is not None:
        s = initial_state.double()
    decay = torch.ones((), dtype=q.dtype, device=q.device).expand(q.shape[:3])
    if g is not None:
        decay = (g.view(-1, 1) if g.ndim == 1 else g).double().exp().expand(q.shape[:3])
    ys = []
    for t in range(q.shape[2]):
        s = s * decay[:, :, t, None, None] + k[:, :, t, :, None] * v[:, :, t, None]
        ys.append((q[:, :, t, None] @ s).squeeze(2))
    scale = q.shape[3] ** -0.5 if scale is None else scale
    return (torch.stack(ys, 2) if ys else v) * scale, s


def drawn(seed, dtype=torch.float64):
    """(q, k, v, options) of random sizes, with a random choice of optional arguments."""
    draw = random.Random(seed)
    b, h, d, dv = (draw.randint(1, n) for n in (2, 3, 7, 7))
    length = draw.randint(0, 90)
    shapes = ((b, h, length, d), (b, h, length, d), (b, h, length, dv))
    q, k, v = (randn(*s, dtype=dtype, seed=seed + i) for i, s in enumerate(shapes))
    options = {"scale": draw.choice((None, 0.7))}
    of = draw.choice((None, (h,), (b, h, length)))
    if of is not None:
        options["g"] = -randn(*of, dtype=dtype, seed=seed + 4).abs() * draw.choice((0.01, 1, 30))
    if draw.random() < 0.6:
        options["initial_state"] = randn(b, h, d, dv, dtype=dtype, seed=seed + 5)
    return q, k, v, options


def gradients(fn, q, k, v, options, weights):
    leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    more = {n: t.detach().clone().requires_grad_() for n, t in options.items() if n != "scale"}
    made = fn(*leaves, scale=options["scale"], **more)
    total = sum((t.double() * w).sum() for t, w in zip(made, weights, strict=True))
    return torch.autograd.grad(total, (*leaves, *more.values()))


@pytest.mark.parametrize("seed", range(5))
def test_results_and_gradients_are_the_recurrences(seed):
    q, k, v, options = drawn(seed)

    def ours(*tensors, **more):
        return kw.linear_attention(*tensors, output_final_state=True, **more)

    found, want = ours(q, k, v, **options), recurrence(q, k, v, **options)
    torch.testing.assert_close(found, want)
    weights = [randn(*t.shape, dtype=torch.float64, seed=seed + 9 + i) for i, t in enumerate(want)]
    mine, theirs = (gradients(f, q, k, v, options, weights) for f in (ours, recurrence))
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_a_final_state_that_is_not_used_has_no_gradient():
    q, k, v, options = drawn(1)
    weights = [randn(*v.shape, dtype=torch.float64, seed=9)]
    found = gradients(lambda *t, **o: kw.linear_attention(*t, **o)[:1], q, k, v, options, weights)
    want = gradients(lambda *t, **o: recurrence(*t, **o)[:1], q, k, v, options, weights)
    torch.testing.assert_close(found, want, rtol=1e-9, atol=1e-9)


def test_states_are_carried_through_groups_of_groups():
    n = chunks.GROUP**2 + 3
    last = -randn(1, 2, n, dtype=torch.float64).abs()
    added = randn(1, 2, n, 2, 3, dtype=torch.float64, seed=1)
    first = randn(1, 2, 2, 3, dtype=torch.float64, seed=2)
    torch.testing.assert_close(
        chunks.carried(last, added, first), chunks.steps(last, added, first), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("rung", ["native", "triton_chunked", "cuda_recurrent"])
def test_tokens_one_by_one_are_all_of_them(rung):
    q, k, v, g = (randn(*s, seed=i) for i, s in enumerate([(1, 2, 5, 9)] * 3 + [(1, 2, 5)]))
    g = -g.abs()
    want, last = recurrence(q, k, v, g)
    state = None
    with kw.use(linear_attention=rung):
        for t in range(5):
            now = slice(t, t + 1)
            y, state = kw.linear_attention(
                q[:, :, now], k[:, :, now], v[:, :, now], g[:, :, now],
                initial_state=state, output_final_state=True,
            )  # fmt: skip
            torch.testing.assert_close(y.double(), want[:, :, now], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state.double(), last, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rung", ["native", "triton_chunked"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_reaches_no_earlier_token(rung, value):
    q, k, v = (randn(1, 1, 40, 8, seed=i) for i in range(3))
    v[0, 0, 21, 3] = value
    q.requires_grad_()
    with kw.use({"linear_attention": rung, "linear_attention.backward": rung}):
        y, _ = kw.linear_attention(q, k, v)
        (gq,) = torch.autograd.grad(y[..., 4].sum(), q)
    bad = ~y.isfinite()
    want = torch.zeros_like(bad)
    want[0, 0, 21:, 3] = True
    assert torch.equal(bad, want)
    assert gq[0, 0, :21].isfinite().all()


@pytest.mark.parametrize("rung", ["native", "triton_chunked"])
def test_minus_infinity_begins_a_sequence(rung):
    q, k, v = (randn(1, 1, 75, 8, seed=i) for i in range(3))
    g = -randn(1, 1, 75, seed=3).abs()
    g[..., 30] = -torch.inf
    g.requires_grad_()
    with kw.use({"linear_attention": rung, "linear_attention.backward": rung}):
        y, _ = kw.linear_attention(q, k, v, g)
        (gg,) = torch.autograd.grad(y.sum(), g)
    parts = [t.split((30, 45), 2) for t in (q, k, v, g.detach())]
    want = torch.cat([recurrence(*part)[0] for part in zip(*parts, strict=True)], 2)
    torch.testing.assert_close(y.double(), want, rtol=1e-5, atol=1e-5)
    assert gg[0, 0, 30] == 0 and gg.isfinite().all()


def test_decay_below_any_number_leaves_what_follows_exact():
    """The sum of the logs is -2e5 before the last tokens, and -0.1 between them."""
    q, k, v = (randn(1, 1, 60, 8, seed=i) for i in range(3))
    g = torch.full((1, 1, 60), -4000.0, device=DEVICE)
    g[..., 50:] = -0.01
    with kw.use(linear_attention="triton_chunked"):
        y, _ = kw.linear_attention(q, k, v, g)
    torch.testing.assert_close(y.double(), recurrence(q, k, v, g)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_second_derivatives():
    q, k, v, g = (
        randn(*s, dtype=torch.float64, seed=i).requires_grad_()
        for i, s in enumerate([(1, 1, 3, 2)] * 3 + [(1, 1, 3)])
    )
    assert torch.autograd.gradgradcheck(
        lambda *t: kw.linear_attention(*t)[0], (q, k, v, g), fast_mode=True
    )


@pytest.mark.long
def test_compiles_whole():
    q, k, v = (randn(1, 2, 6, 4, seed=i).requires_grad_() for i in range(3))
    g = -randn(2, seed=4).abs()

    def call(q, k, v):
        y, final = kw.linear_attention(q, k, v, g, output_final_state=True)
        return y.sum() + final.square().sum()

    found, want = (torch.autograd.grad(f(q, k, v), (q, k, v)) for f in (fullgraph(call), call))
    torch.testing.assert_close(found, want)


def test_samples_of_vmap():
    q, k, v = (randn(3, 1, 2, 6, 4, seed=i) for i in range(3))
    found = torch.func.vmap(lambda *t: kw.linear_attention(*t)[0])(q, k, v)
    torch.testing.assert_close(
        found, kw.linear_attention(*(t[:, 0] for t in (q, k, v)))[0][:, None]
    )


def test_autocast():
    q, k, v = (randn(1, 2, 6, 4, seed=i) for i in range(3))
    with torch.autocast(DEVICE, torch.bfloat16):
        y, final = kw.linear_attention(q, k, v, output_final_state=True)
    assert (y.dtype, final.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"q": [1.0]}, TypeError),
        ({"q": torch.ones(1, 2, 6, 4, dtype=torch.int64)}, TypeError),
        ({"k": torch.ones(1, 2, 6, 4, dtype=torch.bfloat16)}, TypeError),
        ({"k": torch.ones(1, 2, 6, 5)}, ValueError),
        ({"v": torch.ones(1, 2, 5, 4)}, ValueError),
        ({"v": torch.ones(2, 6, 4)}, ValueError),
        ({"g": torch.ones(6)}, ValueError),
        ({"g": torch.ones(2, dtype=torch.int64)}, TypeError),
        ({"initial_state": torch.ones(1, 2, 4, 5)}, ValueError),
    ],
)
def test_errors_name_the_argument(change, error):
    args = {name: torch.ones(1, 2, 6, 4) for name in ("q", "k", "v")}
    (name,) = change
    with pytest.raises(error, match=f"^{name}: "):
        kw.linear_attention(**args | change)

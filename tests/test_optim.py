"""AdamW and gradient clipping over lists of tensors: operators, and optimizers made of them."""

import copy
import os
import pickle
import subprocess
import sys

import pytest
import torch

import kernelwright
import kernelwright as kw
from kernelwright import dispatch
from kernelwright.contract.compare import compare
from kernelwright.dispatch import binding

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
ADAMW = ("native", "triton_each", "triton_list", "cuda_list")


def randn(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype).to(DEVICE)


def fullgraph(fn):
    torch.compiler.reset()
    return torch.compile(fn, fullgraph=True, backend="aot_eager")


@pytest.fixture
def binds(monkeypatch):
    """Names of the operators that were bound, in order."""
    seen, launcher = [], binding.launcher

    def counted(ladder, *args):
        seen.append(ladder.name)
        return launcher(ladder, *args)

    monkeypatch.setattr(binding, "launcher", counted)
    return seen


# adamw: lists of tensors, changed in place

HYPER = {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
SHAPES = ((7, 33), (129,), (), (2, 3, 5))


def state(dtype=torch.float32, requires_grad=False):
    params = [randn(*s, dtype=dtype, seed=i).requires_grad_(requires_grad)
              for i, s in enumerate(SHAPES)]  # fmt: skip
    zeros = [[torch.zeros_like(p, requires_grad=False) for p in params] for _ in range(2)]
    steps = [torch.tensor(0.0, device=DEVICE) for _ in params]
    return params, *zeros, steps


def gradients(step, dtype=torch.float32):
    return [randn(*s, dtype=dtype, seed=100 * step + i) for i, s in enumerate(SHAPES)]


def schedule(step):
    return 1e-2 / (1 + step)


def torchs(dtype, maximize):
    params = state(dtype, requires_grad=True)[0]
    optimizer = torch.optim.AdamW(
        params,
        betas=(HYPER["beta1"], HYPER["beta2"]),
        weight_decay=HYPER["weight_decay"],
        eps=HYPER["eps"],
        maximize=maximize,
    )
    for step in range(5):
        optimizer.param_groups[0]["lr"] = schedule(step)
        for p, g in zip(params, gradients(step), strict=True):
            p.grad = g.to(dtype)
        optimizer.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("rung", ADAMW)
@pytest.mark.parametrize("maximize", [False, True])
def test_adamw_is_torchs_over_five_steps_of_a_schedule(rung, maximize, binds):
    params, m, v, steps = state()
    with kw.use(adamw=rung):
        for step in range(5):
            hyper = {**HYPER, "lr": schedule(step), "maximize": maximize}
            kw.adamw(params, gradients(step), m, v, [], steps, **hyper)
    assert binds == ["adamw"]
    assert [s.item() for s in steps] == [5.0] * len(SHAPES)
    native, exact = torchs(torch.float32, maximize), torchs(torch.float64, maximize)
    exact = [e.double() for e in exact]
    for mine, theirs, reference in zip(params, native, exact, strict=True):
        verdict = compare(mine, theirs, reference)
        assert verdict.ok, verdict.why


def call(params, grads, m, v, steps):
    kw.adamw(params, grads, m, v, [], steps, lr=1e-2, **HYPER)


@pytest.mark.parametrize("through", ["function", "torch.ops", "torch.compile"])
def test_adamw_bumps_version_counters(through):
    params, m, v, steps = state(requires_grad=True)
    grads = gradients(0)
    changed = (*params, *m, *v, *steps)
    before = [t._version for t in changed]
    if through == "torch.ops":
        numbers = [HYPER[n] for n in ("beta1", "beta2", "weight_decay", "eps")]
        torch.ops.kernelwright.adamw(params, grads, m, v, [], steps, [], 1e-2, *numbers, False)
    else:
        (call if through == "function" else fullgraph(call))(params, grads, m, v, steps)
    assert all(t._version > b for t, b in zip(changed, before, strict=True))
    assert all(p.is_leaf and p.grad_fn is None for p in params)


def test_autograd_sees_that_adamw_changed_a_saved_tensor():
    params, m, v, steps = state(requires_grad=True)
    loss = params[0].square().sum()
    call(params, gradients(0), m, v, steps)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_adamw_compiles_whole():
    mine, compiled = state(requires_grad=True), state(requires_grad=True)
    step = fullgraph(call)
    for i in range(2):
        for run, (params, *rest) in ((call, mine), (step, compiled)):
            run(params, gradients(i), *rest)
    for a, b in zip(mine, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("rung", ADAMW)
def test_adamw_checks_as_an_operator(rung):
    params, m, v, steps = state()
    args = (params, gradients(0), m, v, [], steps, [], 1e-2, 0.9, 0.95, 0.1, 1e-8, False)
    torch.library.opcheck(torch.ops.kernelwright.adamw.default, args, {"rung": rung})


def test_adamw_leaves_the_gaps_of_a_sliced_parameter():
    """PyTorch's fused CPU kernel does not."""
    whole = torch.zeros(3, 6, device=DEVICE)
    p = whole[:, :4]
    others = [torch.ones(3, 4, device=DEVICE) for _ in range(3)]
    call([p], others[:1], others[1:2], others[2:], [torch.tensor(0.0, device=DEVICE)])
    assert (whole[:, :4] != 0).all()
    assert (whole[:, 4:] == 0).all()
    for rung in ADAMW[1:]:
        with kw.use(adamw=rung), pytest.raises(ValueError, match="gaps"):
            call([p], others[:1], others[1:2], others[2:], [torch.tensor(0.0, device=DEVICE)])


def test_adamw_warms_up_on_copies():
    params, m, v, steps = state()
    before = [p.clone() for p in params]
    kw.warmup("adamw", params, gradients(0), m, v, [], steps, lr=1e-2, **HYPER)
    assert all(map(torch.equal, before, params))
    assert steps[0].item() == 0


def test_adamw_refuses_by_name():
    params, m, v, steps = state()
    grads = gradients(0)
    rest = {"lr": 1e-2, **HYPER}
    with pytest.raises(ValueError, match="max_exp_avg_sqs: has 4 tensors, amsgrad is False"):
        kw.adamw(params, grads, m, v, m, steps, **rest)
    with pytest.raises(ValueError, match="max_exp_avg_sqs: has 0 tensors, amsgrad is True"):
        kw.adamw(params, grads, m, v, [], steps, amsgrad=True, **rest)
    with pytest.raises(ValueError, match="copies: has 1 tensors, params has 4"):
        kw.adamw(params, grads, m, v, [], steps, copies=m[:1], **rest)
    for name in ("grad_scale", "found_inf", "seed"):
        with pytest.raises(ValueError, match=f"{name}: must have one element, has 2"):
            kw.adamw(params, grads, m, v, [], steps, **{name: torch.zeros(2)}, **rest)
    with pytest.raises(TypeError, match=r"exp_avgs\[0\]: a seed needs bfloat16"):
        kw.adamw(params, grads, m, v, [], steps, seed=torch.zeros(1, dtype=torch.int64), **rest)
    with pytest.raises(ValueError, match="grads: has 3 tensors, params has 4"):
        kw.adamw(params, grads[1:], m, v, [], steps, **rest)
    with pytest.raises(ValueError, match=r"exp_avgs\[0\]: has shape"):
        kw.adamw(params, grads, m[::-1], v, [], steps, **rest)
    with pytest.raises(TypeError, match=r"state_steps\[0\]: must be one float32"):
        kw.adamw(params, grads, m, v, [], [s.int() for s in steps], **rest)
    with pytest.raises(ValueError, match="lr: must have one element"):
        kw.adamw(params, grads, m, v, [], steps, **{**rest, "lr": torch.zeros(2)})
    with pytest.raises(NotImplementedError, match="adamw: changes its arguments"):
        torch.func.vmap(lambda p: call([p], [p], [p], [p], steps[:1]))(params[0])
    kw.adamw([], [], [], [], [], [], **rest)


# adamw: bfloat16 moments, rounded up or down at random

SEEDED = ("native", "triton_list", "cuda_list")


def moments(n=1000):
    """bfloat16 moments that the step changes by less than half an ulp."""
    p, g = randn(n), randn(n, seed=1)
    m, v = randn(n, seed=2).bfloat16(), randn(n, seed=3).square().bfloat16()
    return [p], [g], [m], [v], [torch.tensor(3.0, device=DEVICE)]


def seeded(rung, seed, lists, **more):
    params, grads, m, v, steps = ([t.clone() for t in ts] for ts in lists)
    with kw.use(adamw=rung):
        kw.adamw(
            params, grads, m, v, [], steps, lr=1e-2, **{**HYPER, "beta2": 0.999}, **more,
            seed=torch.tensor([seed], device=DEVICE),
        )  # fmt: skip
    return m, v


@pytest.mark.parametrize("rung", SEEDED[1:])
def test_random_rounding_is_the_same_by_every_rung(rung):
    """Permuted, misaligned and odd tensors too: an element's bits hang on its place in memory."""
    lists = [
        [
            randn(6, 50, seed=s).t().to(dtype),
            randn(131, seed=s)[1:].to(dtype),
            randn(5, seed=s).to(dtype),
        ]
        for s, dtype in ((0, torch.float32), (1, torch.float32), (2, torch.bfloat16))
    ]
    lists += [[t.abs() for t in lists[2]], [torch.tensor(1.0, device=DEVICE) for _ in range(3)]]
    for seed in (5, -(2**62)):
        for mine, native in zip(
            seeded(rung, seed, lists), seeded("native", seed, lists), strict=True
        ):
            for a, b in zip(mine, native, strict=True):
                # where the float32 results differ by a rounding, so may one in 65,536 of these
                assert (a != b).sum() <= 1


def test_random_rounding_has_the_right_mean():
    """Over many seeds the mean is the float32 moment; rounding to nearest is off by half an ulp."""
    from kernelwright.ops.adamw.stochastic import round_pair

    n, draws = 4000, 64
    x = randn(n).abs() + 0.5
    exact = x.double()
    ulp = torch.ldexp(torch.full_like(exact, 2.0**-7), torch.frexp(exact).exponent - 1)
    total_m, total_v = torch.zeros_like(exact), torch.zeros_like(exact)
    for seed in range(draws):
        m, v = round_pair(x, x, torch.tensor([seed], device=DEVICE), 3)
        for rounded, total in ((m, total_m), (v, total_v)):
            assert ((rounded.double() - exact).abs() < ulp).all()
            total += (rounded.double() - exact) / ulp
        assert not torch.equal(m, v)
    for total in (total_m, total_v):
        # the error of one draw has a standard deviation of at most half an ulp
        assert abs(total.mean().item() / draws) < 5 * 0.5 / (n * draws) ** 0.5
        assert (total / draws).abs().max() < 6 * 0.5 / draws**0.5
    assert abs(((x.bfloat16().double() - exact) / ulp).abs().mean().item() - 0.25) < 0.02


@pytest.mark.parametrize("rung", SEEDED)
def test_random_rounding_moves_a_mean_that_nearest_would_not(rung):
    zeros, ones = ([f(500, device=DEVICE)] for f in (torch.zeros, torch.ones))
    half = [ones[0].bfloat16()]
    lists = zeros, zeros, half, half, [torch.tensor(3.0, device=DEVICE)]
    _, (v,) = seeded(rung, 1, lists)
    share = (v < 1).double().mean().item()  # 0.999 lies a quarter of the way to the next below
    assert abs(share - 0.256) < 5 * (0.256 * 0.744 / 500) ** 0.5
    _, (again,) = seeded(rung, 2, lists)
    assert not torch.equal(v, again)


@pytest.mark.parametrize("rung", SEEDED)
def test_random_rounding_leaves_infinities_and_nan(rung):
    lists = moments(8)
    lists[1][0][:3] = torch.tensor([float("inf"), float("-inf"), float("nan")])
    (m,), (v,) = seeded(rung, 1, lists)
    assert m[:3].tolist()[:2] == [float("inf"), float("-inf")]
    assert v[:2].tolist() == [float("inf")] * 2
    assert m[2].isnan() and v[2].isnan() and m[3:].isfinite().all()


@pytest.mark.parametrize("rung", SEEDED)
def test_found_inf_changes_nothing(rung):
    lists = moments(70)
    copies = [lists[0][0].bfloat16()]
    number = torch.tensor(1.0, device=DEVICE)
    before = [t.clone() for ts in (*lists, copies) for t in ts]
    with kw.use(adamw=rung):
        kw.adamw(*lists[:4], [], lists[4], lr=1e-2, **HYPER, copies=copies, found_inf=number,
                 seed=torch.tensor([1], device=DEVICE))  # fmt: skip
    after = [t for ts in (*lists, copies) for t in ts]
    assert all(map(torch.equal, before, after))


# get_total_norm, clip_grads_with_norm_, clip_grad_norm_

CLIP = ("native", "triton_list", "cuda_list")


def with_gradients(dtype=torch.float32, scale=1.0):
    params = [randn(*s, dtype=dtype, seed=i).requires_grad_() for i, s in enumerate(SHAPES)]
    for i, p in enumerate(params):
        p.grad = (scale * randn(*p.shape, seed=10 + i)).to(dtype)
    return params


def using(rung):
    return kw.use({"get_total_norm": rung, "clip_grads_with_norm_": rung})


@pytest.mark.parametrize("rung", CLIP)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("norm_type", "max_norm"), [(2, 1.0), ("inf", 0.1), (1.0, 1e6)])
def test_clip_grad_norm_is_torchs(rung, dtype, norm_type, max_norm):
    mine, theirs = with_gradients(dtype), with_gradients(dtype)
    extra = torch.zeros(3, requires_grad=True, device=DEVICE)  # has no gradient
    with using(rung):
        norm = kw.clip_grad_norm_(iter([*mine, extra]), max_norm, norm_type)
    expected = torch.nn.utils.clip_grad_norm_([*theirs, extra], max_norm, norm_type)
    assert norm.dtype == expected.dtype and norm.shape == ()
    torch.testing.assert_close(norm, expected)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    if max_norm == 1e6:
        before = [g.clone() for g in (p.grad for p in with_gradients(dtype))]
        assert all(map(torch.equal, before, (p.grad for p in mine)))


@pytest.mark.parametrize("rung", CLIP)
def test_clipping_by_a_norm_that_is_no_number(rung):
    for scale in (float("inf"), float("nan")):
        mine, theirs = with_gradients(scale=scale), with_gradients(scale=scale)
        with using(rung):
            kw.clip_grad_norm_(mine, 1.0)
        torch.nn.utils.clip_grad_norm_(theirs, 1.0)
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a.grad, b.grad, equal_nan=True)
        with using(rung), pytest.raises(RuntimeError, match=r"order 2\.0 .* is non-finite"):
            kw.clip_grad_norm_(mine, 1.0, error_if_nonfinite=True)


def test_clipping_what_is_not_there():
    empty = torch.zeros(0, 3, requires_grad=True, device=DEVICE)
    assert kw.clip_grad_norm_([empty], 1.0).item() == 0.0
    assert kw.clip_grad_norm_([], 1.0).item() == 0.0
    empty.grad = torch.zeros_like(empty)
    (p, *_) = with_gradients()
    both, alone = kw.get_total_norm([empty.grad, p.grad]), kw.get_total_norm(p.grad)
    assert torch.equal(both, alone)
    assert kw.clip_grad_norm_([empty], 1.0).item() == 0.0
    norm = kw.clip_grad_norm_([empty, p], 0.5)
    torch.testing.assert_close(kw.get_total_norm([p.grad]), torch.tensor(0.5, device=DEVICE))
    assert torch.equal(norm, alone)


def test_clipping_reads_max_norm_at_each_call(binds):
    p = torch.zeros(1021, requires_grad=True, device=DEVICE)
    for bound in (1.0, 0.25):
        p.grad = torch.full_like(p, 2.0)
        with using("triton_list"):
            kw.clip_grad_norm_(p, bound)
        torch.testing.assert_close(p.grad.norm(), torch.tensor(bound, device=DEVICE))
    assert binds == ["get_total_norm", "clip_grads_with_norm_"]


def test_clipping_bumps_version_counters_and_mixes_dtypes():
    params = [*with_gradients(), *with_gradients(torch.bfloat16)]
    theirs = [*with_gradients(), *with_gradients(torch.bfloat16)]
    before = [p.grad._version for p in params]
    norm = kw.clip_grad_norm_(params, 0.1)
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(theirs, 0.1))
    assert all(p.grad._version > b for p, b in zip(params, before, strict=True))
    for a, b in zip(params, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-2, atol=1e-6)


# kw.optim.AdamW


def model():
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(8, 16),
        torch.nn.LayerNorm(16),
        torch.nn.GELU(),
        torch.nn.Linear(16, 3),
    ]
    return torch.nn.Sequential(*layers).to(DEVICE)


def train(make, steps=20, net=None, dtype=torch.float32, schedule=True):
    """Losses of a small model, its optimizer, the model."""
    net = net or model().to(dtype)
    optimizer = make(net.parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) if schedule else None
    losses = []
    for i in range(steps):
        x, target = randn(32, 8, seed=i).to(dtype), randn(32, 3, seed=1000 + i).to(dtype)
        optimizer.zero_grad()
        loss = (net(x) - target).float().square().mean()
        loss.backward()
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
    return torch.tensor(losses), optimizer, net


OPTIONS = (
    {},
    {"lr": 0.05, "weight_decay": 0.3, "betas": (0.8, 0.95), "eps": 1e-6},
    {"amsgrad": True},
    {"maximize": True},
    {"lr": torch.tensor(0.01)},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_losses_are_torchs(options):
    """Within twice the difference that float32 makes to PyTorch's own, plus rounding of a loss."""

    def losses(kind, dtype=torch.float32):  # a scheduler writes into a learning rate's tensor
        return train(lambda p: kind(p, **copy.deepcopy(options)), dtype=dtype)[0]

    mine, theirs = losses(kw.optim.AdamW), losses(torch.optim.AdamW)
    exact = losses(torch.optim.AdamW, torch.float64)
    budget = 2 * (theirs - exact).abs().max() + 4 * torch.finfo(torch.float32).eps * exact.abs()
    assert ((mine - exact).abs() <= budget).all()


@pytest.mark.parametrize("rung", SEEDED)
def test_losses_by_every_rung(rung):
    with kw.use(adamw=rung):
        mine, _, _ = train(kw.optim.AdamW, 5)
    theirs, _, _ = train(torch.optim.AdamW, 5)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}], ids=str)
@pytest.mark.parametrize("there_and_back", [True, False])
def test_state_dict_loads_both_ways(options, there_and_back):
    """Ten steps by one, ten by the other, are twenty by either."""
    kinds = [torch.optim.AdamW, kw.optim.AdamW]
    first, second = kinds if there_and_back else kinds[::-1]
    _, optimizer, net = train(lambda p: first(p, lr=0.01, **options), 10, schedule=False)

    def resumed(parameters):
        other = second(parameters, lr=0.5, **options)
        other.load_state_dict(optimizer.state_dict())
        assert other.param_groups[0]["lr"] == 0.01
        return other

    after, other, net = train(resumed, 10, net=net, schedule=False)
    _, only, reference = train(
        lambda p: torch.optim.AdamW(p, lr=0.01, **options), 10, schedule=False
    )
    expected, only, _ = train(lambda p: only, 10, net=reference, schedule=False)
    torch.testing.assert_close(after, expected)
    mine, theirs = other.state_dict(), only.state_dict()
    assert mine["state"].keys() == theirs["state"].keys()
    for k, state in theirs["state"].items():
        assert mine["state"][k].keys() == state.keys()
        for name, t in state.items():
            torch.testing.assert_close(mine["state"][k][name], t, check_device=False)
    assert theirs["param_groups"][0].keys() <= mine["param_groups"][0].keys()


def test_masters_follow_float32_where_bfloat16_would_stand_still():
    p = torch.nn.Parameter(torch.ones(64, device=DEVICE, dtype=torch.bfloat16))
    q = torch.nn.Parameter(torch.ones(64, device=DEVICE))
    mine = kw.optim.AdamW([p], lr=1e-3, master_weights=True)
    theirs = torch.optim.AdamW([q], lr=1e-3)
    for _ in range(10):
        p.grad = torch.full_like(p, 0.5)
        q.grad = torch.full_like(q, 0.5)
        mine.step()
        theirs.step()
    state = mine.state[p]
    assert {n: t.dtype for n, t in state.items()} == dict.fromkeys(
        ("step", "exp_avg", "exp_avg_sq", "master"), torch.float32
    )
    torch.testing.assert_close(state["master"], q.detach())
    assert torch.equal(p, state["master"].bfloat16()) and (p < 1).all()
    saved = mine.state_dict()
    other = kw.optim.AdamW([p], lr=1e-3, master_weights=True)
    other.load_state_dict(saved)
    for name, t in state.items():
        assert other.state[p][name].dtype == torch.float32
        assert torch.equal(other.state[p][name], t)


def test_moments_in_bfloat16_train_as_well():
    torch.manual_seed(1)
    mine, optimizer, net = train(
        lambda p: kw.optim.AdamW(p, lr=0.01, state_dtype=torch.bfloat16), 30
    )
    theirs, _, _ = train(lambda p: torch.optim.AdamW(p, lr=0.01), 30)
    states = [optimizer.state[p] for p in net.parameters()]
    assert {s[n].dtype for s in states for n in ("exp_avg", "exp_avg_sq")} == {torch.bfloat16}
    torch.testing.assert_close(mine, theirs, rtol=0.02, atol=0)
    saved = optimizer.state_dict()
    other = kw.optim.AdamW(net.parameters(), state_dtype=torch.bfloat16)
    other.load_state_dict(saved)
    assert other.state[next(net.parameters())]["exp_avg"].dtype == torch.bfloat16


def test_an_optimizer_skips_adds_and_calls():
    used, unused, late = (torch.nn.Parameter(torch.ones(3, device=DEVICE)) for _ in range(3))
    optimizer = kw.optim.AdamW([used, unused], lr=0.1)
    optimizer.add_param_group({"params": [late], "lr": 0.2, "weight_decay": 0.0})
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = (used * used).sum() + late.sum()
        loss.backward()
        calls.append(loss.item())
        return loss

    assert optimizer.step(closure).item() == calls[0] == 6.0
    assert unused not in optimizer.state and torch.equal(unused, torch.ones_like(unused))
    torch.testing.assert_close(late.detach(), torch.full_like(late, 0.8))
    torch.testing.assert_close(used.detach(), torch.full_like(used, 1 - 0.1 - 0.1 * 0.01))
    again = pickle.loads(pickle.dumps(optimizer))
    assert again.param_groups[1]["lr"] == 0.2 and len(again.state) == 2
    assert kw.optim is kernelwright.optim and "optim" in dir(kw)


def test_an_optimizer_takes_mixed_dtypes_and_complex_parameters():
    def parameters():
        dtypes = (torch.float32, torch.bfloat16, torch.complex64, torch.float64)
        made = [torch.nn.Parameter(torch.ones(5, dtype=d, device=DEVICE)) for d in dtypes]
        for p in made:
            p.grad = torch.linspace(-1, 1, 5, device=DEVICE).to(p.dtype)
        return [*made, torch.nn.Parameter(torch.ones(0, device=DEVICE))]

    mine, theirs = parameters(), parameters()
    mine[-1].grad, theirs[-1].grad = torch.zeros_like(mine[-1]), torch.zeros_like(theirs[-1])
    for params, kind in ((mine, kw.optim.AdamW), (theirs, torch.optim.AdamW)):
        optimizer = kind(params, lr=0.1)
        for _ in range(3):
            optimizer.step()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_a_gradscaler_hands_over_its_scale():
    p, q = (torch.nn.Parameter(torch.ones(6, device=DEVICE)) for _ in range(2))
    mine, theirs = kw.optim.AdamW([p], lr=0.1), torch.optim.AdamW([q], lr=0.1)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=128.0)
    for bad in (False, True, False):
        p.grad, q.grad = None, None
        factor = float("inf") if bad else 1.0
        scaler.scale((p * p * factor).sum()).backward()
        (q * q).sum().backward()
        scaler.step(mine)
        scaler.update()
        if not bad:
            theirs.step()
        torch.testing.assert_close(p.detach(), q.detach())
    assert mine.state[p]["step"].item() == 2


def test_an_optimizer_refuses_by_name():
    p = torch.nn.Parameter(torch.ones(3))
    for options, message in (
        ({"lr": -1.0}, "lr: must not be negative"),
        ({"lr": torch.zeros(2)}, "lr: must have one element|Boolean value"),
        ({"eps": -1.0}, "eps: must not be negative"),
        ({"weight_decay": -1.0}, "weight_decay: must not be negative"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\]: must be at least 0 and less than 1"),
        ({"differentiable": True}, "differentiable: "),
        ({"state_dtype": torch.float16}, "state_dtype: must be float32 or bfloat16"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=message):
            kw.optim.AdamW([p], **options)
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="params: AdamW takes no sparse gradients"):
        kw.optim.AdamW(table.parameters()).step()


@pytest.mark.parametrize("rung", ["triton_list", "cuda_list"])
def test_a_step_is_one_launch(rung):
    """For all parameters of a group, whatever their number."""
    params, m, v, steps = state()
    ladder = dispatch.ladder("adamw")
    values = (params, gradients(0), m, v, [], steps, [], 0.1, 0.9, 0.99, 0.0, 1e-8, False)
    args = {a.name: a.default for a in ladder.operator.args}
    args |= dict(zip(args, values, strict=False))
    plan = dispatch.plan_of(ladder, ladder.rung(rung), dispatch.specs_of(args))
    assert len(plan.launches) == 1


SHARDED = """
import sys, torch, torch.distributed as dist
import kernelwright as kw
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))

def net(dtype=torch.float32):
    torch.manual_seed(0)
    layers = torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 1)
    return torch.nn.Sequential(*layers).to(dtype)

def run(make, clip, sharded=True, dtype=torch.float32, steps=4):
    m = net(dtype)
    if sharded:
        fully_shard(m, mesh=mesh)
    optimizer, norms = make(m.parameters()), []
    for i in range(steps):
        torch.manual_seed(i)
        x = torch.randn(8, 6).to(dtype)
        optimizer.zero_grad()
        (m(x).float().square().mean() * 3).backward()
        norm = clip(m.parameters(), 0.5)
        norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        optimizer.step()
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in m.parameters()]
    return [t.detach() for t in (*norms, *whole)], optimizer, m

torch_clip = torch.nn.utils.clip_grad_norm_
mine, optimizer, m = run(lambda p: kw.optim.AdamW(p, lr=0.1), kw.clip_grad_norm_)
for other in (
    run(lambda p: torch.optim.AdamW(p, lr=0.1), torch_clip)[0],
    run(lambda p: torch.optim.AdamW(p, lr=0.1), torch_clip, sharded=False)[0],
):
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b)
p = next(m.parameters())
state = optimizer.state[p]
assert isinstance(state["exp_avg"], DTensor) and state["exp_avg"].placements == p.placements
again = kw.optim.AdamW(m.parameters(), lr=0.1)
again.load_state_dict(optimizer.state_dict())
assert isinstance(again.state[p]["exp_avg"], DTensor)
version = p._version
again.step()
assert p._version > version
half, optimizer, m = run(lambda p: kw.optim.AdamW(p, lr=0.1, master_weights=True),
                         kw.clip_grad_norm_, dtype=torch.bfloat16)
p = next(m.parameters())
assert optimizer.state[p]["master"].dtype == torch.float32
assert torch.equal(optimizer.state[p]["master"].to_local().bfloat16(), p.to_local())
dist.destroy_process_group()
print("done")
"""


def test_shards_of_two_ranks(tmp_path):
    """FSDP2's parameters, and the norm of their gradients over both ranks, on CPUs."""
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, str(script), str(rank), str(tmp_path / "store")],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         env=environment)
        for rank in range(2)
    ]  # fmt: skip
    said = [r.communicate(timeout=240)[0] for r in ranks]
    assert [r.returncode for r in ranks] == [0, 0], "\n".join(said)


@gpu
@pytest.mark.parametrize("rung", SEEDED)
@pytest.mark.parametrize("options", [{}, {"state_dtype": torch.bfloat16}], ids=str)
def test_a_step_in_a_cuda_graph(rung, options):
    """Replays read the gradients and the learning rate of then, count on and draw new seeds."""
    lr = torch.tensor(0.01, device=DEVICE)
    p, q = (torch.nn.Parameter(torch.ones(1000, device=DEVICE)) for _ in range(2))
    p.grad, q.grad = torch.zeros_like(p), torch.zeros_like(q)
    mine = kw.optim.AdamW([p], lr=lr, capturable=True, **options)
    theirs = torch.optim.AdamW([q], lr=lr.clone(), fused=True)
    with kw.use(adamw=rung):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            mine.step()
        torch.cuda.synchronize()
        theirs.step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            mine.step()
    moments = []
    for i in range(5):
        for r in (p, q):
            r.grad.copy_(randn(1000, seed=i))
        lr.fill_(0.01 / (1 + i))
        theirs.param_groups[0]["lr"].copy_(lr)
        graph.replay()
        theirs.step()
        moments.append(mine.state[p]["exp_avg"].clone())
    torch.cuda.synchronize()
    assert mine.state[p]["step"].item() == 6
    tolerance = {"rtol": 1e-2, "atol": 1e-3} if options else {}
    torch.testing.assert_close(p, q, **tolerance)


@gpu
def test_gradients_may_move_between_steps():
    """New addresses are written before the kernel reads them, on every stream."""
    p, q = (torch.nn.Parameter(torch.ones(3000, device=DEVICE)) for _ in range(2))
    mine, theirs = kw.optim.AdamW([p]), torch.optim.AdamW([q], fused=True)
    kept = []
    streams = [torch.cuda.Stream() for _ in range(2)]
    with kw.use(adamw="cuda_list"):
        for i in range(12):
            g = randn(3000, seed=i)
            torch.cuda.synchronize()
            with torch.cuda.stream(streams[i % 2]):
                p.grad, q.grad = g.clone(), g
                kept.append(p.grad)
                mine.step()
                theirs.step()
            torch.cuda.synchronize()
    torch.testing.assert_close(p, q)

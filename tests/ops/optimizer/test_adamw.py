"""The operator adamw: lists changed in place, moments rounded at random."""

import pytest
import torch

import kernelwright as kw
from kernelwright import dispatch
from kernelwright.contract.compare import compare
from support.parameter_lists import HYPER, SHAPES, gradients, state
from support.publics import DEVICE, fullgraph, randn

ADAMW = ("native", "triton_each", "triton_list", "cuda_list")


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
    """PyTorch's fused CPU kernel overwrites them."""
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
    with pytest.raises(TypeError, match=r"exp_avgs\[0\]: is torch.float32, must be bfloat16"):
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
    """Permuted, misaligned and odd tensors too: the random bits depend on the place in memory."""
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
                # where float32 results differ by a rounding, one in 65,536 of these may differ
                assert (a != b).sum() <= 1


def test_random_rounding_has_the_right_mean():
    """Over many seeds the mean is the float32 moment; rounding to nearest is off by half an ulp."""
    from kernelwright.ops.optimizer.adamw.stochastic import round_pair

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
    if rung == "native" and m.is_cuda:  # PyTorch's lerp makes inf - inf of them before any rounding
        assert m[:2].isnan().all() and v[:2].isnan().all()
    else:
        assert m[:2].tolist() == [float("inf"), float("-inf")]
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


@pytest.mark.parametrize("rung", ["triton_list", "cuda_list"])
def test_all_parameters_are_one_launch(rung):
    params, m, v, steps = state()
    ladder = dispatch.ladder("adamw")
    values = (params, gradients(0), m, v, [], steps, [], 0.1, 0.9, 0.99, 0.0, 1e-8, False)
    args = {a.name: a.default for a in ladder.operator.args}
    args |= dict(zip(args, values, strict=False))
    plan = dispatch.plan_of(ladder, ladder.rung(rung), dispatch.specs_of(args))
    assert len(plan.launches) == 1

"""AdamW and gradient clipping over lists of tensors: operators, and optimizers made of them."""

import pytest
import torch

import kernelwright as kw
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

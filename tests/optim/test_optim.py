"""kw.optim.AdamW, compared with torch.optim.AdamW: losses, state_dicts, shards, CUDA graphs."""

import copy
import os
import pickle
import subprocess
import sys

import pytest
import torch

import kernelwright
import kernelwright as kw
from support.publics import DEVICE, gpu, randn

RUNGS = ("native", "triton_list", "cuda_list")


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
    """(the losses of a small model, its optimizer, the model)."""
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
    # on a GPU PyTorch accepts tensors for betas only without foreach
    {"betas": (torch.tensor(0.9), torch.tensor(0.99)), "foreach": False},
    {"foreach": True},
    {"fused": True},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_losses_are_torchs(options):
    """Within twice the effect of float32 on PyTorch's own losses, plus rounding of a loss."""

    def losses(kind, dtype=torch.float32):  # a scheduler writes to the learning rate's tensor
        return train(lambda p: kind(p, **copy.deepcopy(options)), dtype=dtype)[0]

    mine, theirs = losses(kw.optim.AdamW), losses(torch.optim.AdamW)
    exact = losses(torch.optim.AdamW, torch.float64)
    budget = 2 * (theirs - exact).abs().max() + 4 * torch.finfo(torch.float32).eps * exact.abs()
    assert ((mine - exact).abs() <= budget).all()


@pytest.mark.parametrize("rung", RUNGS)
def test_losses_by_every_rung(rung):
    with kw.use(adamw=rung):
        mine, _, _ = train(kw.optim.AdamW, 5)
    theirs, _, _ = train(torch.optim.AdamW, 5)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}], ids=str)
@pytest.mark.parametrize("there_and_back", [True, False])
def test_state_dict_loads_both_ways(options, there_and_back):
    """Ten steps of one and ten of the other are equal to twenty of either."""
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


def test_float32_masters_make_updates_that_bfloat16_rounds_away():
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


def test_a_step_in_compiled_code_breaks_its_graph_once():
    """No part of it is traced, for any number of parameters and any learning rate."""

    def losses(kind, wrap, net):
        optimizer = kind(net.parameters(), lr=0.1)
        step = wrap(lambda: optimizer.step())
        for i in range(4):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + i)
            loss = net(randn(32, 8, seed=i)).square().mean()
            loss.backward()
            step()
            optimizer.zero_grad()
            yield loss.item()

    graphs = []

    def compiled(fn):
        torch.compiler.reset()
        return torch.compile(fn, backend=lambda graph, inputs: graphs.append(graph) or graph)

    theirs = list(losses(torch.optim.AdamW, lambda fn: fn, model()))
    assert list(losses(kw.optim.AdamW, compiled, model())) == pytest.approx(theirs)
    assert not graphs


def test_an_optimizer_steps_in_the_backward():
    """A gradient is freed after its parameter's step, so that not all are in memory at once."""
    net, other = model(), model()
    optimizers = {p: kw.optim.AdamW([p], lr=0.1) for p in net.parameters()}

    def move(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(move)
    theirs = torch.optim.AdamW(other.parameters(), lr=0.1)
    for i in range(3):
        x = randn(32, 8, seed=i)
        net(x).square().mean().backward()
        theirs.zero_grad()
        other(x).square().mean().backward()
        theirs.step()
    assert all(p.grad is None for p in net.parameters())
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q)


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


def test_a_gradscaler_passes_its_scale():
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
        ({"foreach": True, "fused": True}, "foreach: and fused cannot both be True"),
        ({"state_dtype": torch.float16}, "state_dtype: must be float32 or bfloat16"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=message):
            kw.optim.AdamW([p], **options)
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="params: AdamW does not support sparse gradients"):
        kw.optim.AdamW(table.parameters()).step()


SHARDED = """
import os, sys, torch, torch.distributed as dist
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
dist.barrier()
dist.destroy_process_group()
print("done", flush=True)
os._exit(0)  # the interpreter's own end now and then finds a thread of gloo's, and aborts
"""


@pytest.mark.long
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
    assert all("done" in text for text in said)


@gpu
@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("options", [{}, {"state_dtype": torch.bfloat16}], ids=str)
def test_a_step_in_a_cuda_graph(rung, options):
    """Replays read the current gradients and learning rate, count steps and draw new seeds."""
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

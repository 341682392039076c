"""The trainer: a step, its options, its reports."""

import json
import math
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import kernelwright as kw
from kernelwright.machine import clock
from kernelwright.support.errors import UsageError
from kernelwright.train import log, memory, picture, recompute, roof, run, schedule, selected
from kernelwright.train.memory import Storages
from kernelwright.train.parallel import Processes
from kernelwright.train.settings import Settings
from kernelwright.train.trainer import Trainer, padded
from support import training_runs as runs

ALONE = Processes("none", 0, 1, runs.CPU)
pytestmark = pytest.mark.usefixtures("few_threads")


def trainer(**changes):
    return Trainer(Settings(**{"context": 16, "batch": 4, **changes}), 32, ALONE)


def tokens(seed=0):
    draw = torch.Generator().manual_seed(seed)
    both = torch.randint(32, (4, 17), generator=draw)
    return both[:, :-1], both[:, 1:]


def weights(made):
    return torch.cat([p.detach().flatten().clone() for p in made.model.parameters()])


@pytest.mark.parametrize("in_adamw", [False, True])
@pytest.mark.parametrize("clip", [1.0, 50.0, 0.0])  # below the norm, above it, none
def test_a_step_is_pytorchs(clip, in_adamw):
    made, other = trainer(clip=clip), trainer()
    made.clips_in_adamw = in_adamw
    for one in (made, other):
        one.model.double()
    decayed = [p for p in other.model.parameters() if p.ndim > 1]
    rest = [p for p in other.model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    theirs = torch.optim.AdamW(groups, betas=(0.9, 0.99))
    for i in range(3):
        x, y = tokens(i)
        lr = 1e-2 / (i + 1)
        loss, norm = made.step(x, y, lr)
        expected = F.cross_entropy(other.model(x).flatten(0, 1), y.flatten())
        expected.backward()
        total = torch.nn.utils.clip_grad_norm_(other.model.parameters(), clip or math.inf)
        for group in theirs.param_groups:
            group["lr"] = lr
        theirs.step()
        theirs.zero_grad()
        torch.testing.assert_close(loss.double(), expected.detach())
        torch.testing.assert_close(norm, total)
    torch.testing.assert_close(weights(made), weights(other))


@pytest.mark.parametrize("model", ["gpt2-tiny", "llama-tiny"])
@pytest.mark.parametrize(
    "changes, tolerance",
    [
        ({"micro": 1}, 1e-5),
        ({"recompute": "full"}, 0.0),
        ({"recompute": "full", "dropout": 0.3}, 0.0),
        ({"precision": "autocast"}, 3e-2),
        ({"precision": "bfloat16"}, 3e-2),
    ],
)
def test_options_change_the_way_but_not_the_losses(model, changes, tolerance):
    same = {"model": model, "dropout": changes.get("dropout", 0.0)}
    made, other = trainer(**same), trainer(**{**same, **changes})
    for i in range(3):
        found = []
        for one in (made, other):
            torch.manual_seed(i)  # the same dropout
            found.append(one.step(*tokens(i), 1e-3)[0])
        assert abs(found[0] - found[1]) <= tolerance


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        names = ("mm", "addmm", "matmul", "linear")
        self.count += func._schema.name.split("::")[1] in names
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("model", ["gpt2-tiny", "llama-tiny"])
@pytest.mark.parametrize("kernels", [False, True], ids=["cpu", "as_on_a_gpu"])
def test_activations_are_computed_again_but_no_product(model, kernels):
    as_on_a_gpu = dict.fromkeys(("linear", "bias_gelu", "swiglu"), "native") if kernels else {}
    tokens_ = [torch.randint(32, (4, 16)) for _ in range(2)]
    kept, weights_, products = {}, {}, {}
    with kw.use(**as_on_a_gpu):
        for policy in ("none", "light", "selective", "full"):
            made, storages, counted = trainer(model=model, recompute=policy), Storages(), Products()
            storages.add(list(made.model.parameters()))
            with storages:
                loss = made.loss(*tokens_)
                kept[policy] = storages.live
            del loss
            with counted:
                made.step(*tokens_, 1e-3)
            weights_[policy], products[policy] = weights(made), counted.count
    activation = 4 * 16 * made.model.blocks[0].mlp_out.weight.shape[1] * 4  # bytes
    assert kept["none"] - kept["light"] == 2 * activation  # of blocks 0 and 3
    assert kept["none"] - kept["selective"] == 4 * activation
    assert kept["full"] < kept["selective"]
    for policy, found in weights_.items():
        assert torch.equal(found, weights_["none"]), policy
    assert products["none"] == products["light"] == products["selective"] < products["full"]


@pytest.mark.parametrize("model, policy", [("gpt2-tiny", "full"), ("llama-tiny", "selective")])
def test_one_block_is_compiled_for_all(model, policy, monkeypatch):
    torch._dynamo.reset()
    counted, plain = CompileCounter(), torch.compile
    monkeypatch.setattr(torch, "compile", lambda forward: plain(forward, backend=counted))
    made, other = trainer(model=model, compile="block", recompute=policy), trainer(model=model)
    for i in range(2):
        assert made.step(*tokens(i), 1e-3) == other.step(*tokens(i), 1e-3)
    assert counted.frame_count == 1


def test_a_chunk_of_logits_counts():
    x, weight = torch.randn(300, 8), torch.randn(700, 8)
    with kw.use(linear_cross_entropy="chunked"), Storages() as storages:
        kw.linear_cross_entropy(x, weight, torch.zeros(300, dtype=torch.long))
    assert storages.peak > 300 * 700 * 4 > 4 * storages.live


def test_what_is_computed_again_by_default():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    found = [recompute.resolved("auto", *x) for x in ((gpu, False), (gpu, True), (cpu, False))]
    assert found == ["light", "none", "none"]
    assert recompute.resolved("full", cpu, False) == "full"


@pytest.mark.parametrize("policy, as_on_a_gpu", [("full", False), ("light", True)])
def test_memory_is_predicted(policy, as_on_a_gpu):
    options = {"recompute": policy, "model": "llama-tiny" if as_on_a_gpu else "gpt2-tiny"}
    names = ("linear", "swiglu", "rms_norm", "add_rms_norm", "embedding")
    rungs = {**dict.fromkeys(names, "native"), "linear_cross_entropy": "chunked"}
    made = trainer(**options)

    def build():
        fake = trainer(**options)
        x = torch.zeros(4, 16, dtype=torch.long)
        return fake, lambda: fake.step(x, x, 1e-3)

    with kw.use(**rungs if as_on_a_gpu else {}):
        found = memory.predict(build)
        made.step(*tokens(), 1e-3)
        _, real = memory.measure(lambda: made.step(*tokens(), 1e-3), made.held(), runs.CPU)
    assert found.held == pytest.approx(real.held, rel=0.02)
    assert found.peak == pytest.approx(real.peak, rel=0.05)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_skips_the_step(value):
    made = trainer()
    made.step(*tokens(), 1e-3)
    before, states = weights(made), [s["exp_avg"].clone() for s in made.optimizer.state.values()]
    hook = made.model.norm.bias.register_hook(lambda g: g + value)
    made.step(*tokens(), 1e-3)
    hook.remove()
    assert torch.equal(weights(made), before)
    assert all(
        torch.equal(a, s["exp_avg"])
        for a, s in zip(states, made.optimizer.state.values(), strict=True)
    )
    assert made.bad == 1
    made.step(*tokens(), 1e-3)
    assert not torch.equal(weights(made), before)
    assert made.bad == 1


def test_too_many_bad_steps_stop_the_run_and_its_state_is_saved(tmp_path):
    settings = runs.tiny(tmp_path, lr=1e30, clip=0.0, max_bad_steps=3, warm_up=0, dropout=0.0)
    with pytest.raises(run.BadSteps, match=r"3 steps .* the state is saved in"):
        run.begin(settings, tmp_path / "run", runs.CPU)
    steps = [e for e in log.read(tmp_path / "run") if e["event"] == "step"]
    assert steps[-1]["bad"] == 3
    assert [e["norm"] is None for e in steps][-3:] == [True] * 3
    saved = run.checkpoint.check(run.checkpoint.find(tmp_path / "run"))
    assert saved["bad"] == 3


class Noted(run.Silent):
    def __init__(self):
        self.start, self.steps = None, []

    def started(self, start):
        self.start = start

    def stepped(self, step):
        self.steps.append(step)


def test_a_run_learns_and_leaves_its_files(tmp_path):
    noted = Noted()
    settings = runs.tiny(tmp_path, steps=60, lr=3e-3, batch=8, dropout=0.0, eval_every=30,
                         save_every=0)  # fmt: skip
    result = run.begin(settings, tmp_path / "run", runs.CPU, noted)
    assert [s.number for s in noted.steps] == list(range(1, 61))
    assert result.loss < noted.steps[0].loss / 1.5
    assert result.validation < noted.steps[0].loss / 1.5
    assert 0.8 < noted.start.predicted.peak / result.measured.peak < 1.25
    assert len(result.samples) == 2 and all(result.samples)
    events = log.read(tmp_path / "run")
    assert [e["step"] for e in events if e["event"] == "validation"] == [30, 60]
    assert runs.losses(tmp_path / "run") == [s.loss for s in noted.steps]
    svg = (tmp_path / "run" / "loss.svg").read_text()
    assert svg.count("<path") == 3 and "NaN" not in svg
    state = json.loads((run.checkpoint.find(tmp_path / "run") / "state.json").read_text())
    assert state["rungs"]["adamw"] == {"native": 2}


def test_rates_of_each_schedule():
    steps, warm_up = random.randint(50, 500), random.randint(1, 20)
    for name in schedule.NAMES:
        rates = [schedule.rate(i, steps, warm_up, name) for i in range(steps)]
        assert rates[0] == pytest.approx(1 / warm_up)
        assert max(rates) == pytest.approx(1.0)
        assert all(
            a >= b - 1e-12 for a, b in zip(rates[warm_up:], rates[warm_up + 1 :], strict=False)
        )
        assert schedule.rate(steps, steps, warm_up, name) == pytest.approx(
            1.0 if name == "constant" else 0.1
        )
    middle = schedule.rate((steps + warm_up) // 2, steps, warm_up, "cosine")
    assert middle == pytest.approx(0.55, abs=0.02)
    assert schedule.rate(int(0.79 * steps), steps, 1, "wsd") == 1.0


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"model": "gpt5"}, "model: 'gpt5' is not one of"),
        ({"steps": 0}, "steps: must be at least 1"),
        ({"lr": -1.0}, "lr: must be at least"),
        ({"precision": "fp8"}, "precision: 'fp8' is not one of"),
        ({"recompute": "some"}, "recompute: 'some' is not one of"),
        ({"compile": "graph", "parallel": "ddp"}, "compile: a CUDA graph"),
    ],
)
def test_settings_are_checked(changes, says):
    with pytest.raises(UsageError, match=says):
        Settings(**changes)


def test_a_large_vocabulary_is_padded():
    assert [padded(v) for v in (65, 1024, 50257)] == [65, 1024, 50304]


def test_rungs_and_configs_are_noted_and_compared():
    made = trainer()
    with kw.use(add_layer_norm="manual"), selected.Selected() as noted:
        made.step(*tokens(), 1e-3)
    found = noted.rungs()
    assert found["add_layer_norm"] == {"manual": 9}
    noted.check()
    other = {**found, "add_layer_norm": {"native": 9}}
    assert selected.changes(other, found) == ["add_layer_norm native to manual"]
    assert selected.changes(found, found) == []
    noted.varying.add("sum.cuda_atomic")
    with pytest.raises(UsageError, match=r"sum\.cuda_atomic may give different bits"):
        noted.check()


def test_the_roof_is_measured(monkeypatch):
    monkeypatch.setitem(roof._SIDE, "cpu", 256)

    def measure(candidates, device, rule):
        times = clock.measure(candidates, device, rule).times["product"]
        return SimpleNamespace(times={"product": replace(times, cold=(500.0,))})  # microseconds

    monkeypatch.setattr(roof, "measure", measure)
    before = torch.get_rng_state()
    assert runs.MEASURED(runs.CPU, "float32") == pytest.approx(2 * 256**3 / 500e-6)
    assert torch.equal(torch.get_rng_state(), before)  # of dropout in this process


def test_operations_of_a_token():
    made = trainer(model="gpt2-tiny").model
    matrices = 4 * (12 * 128 * 128) + 32 * 128  # of four layers, and the output layer
    assert roof.of_token(made) == 6 * matrices + 6 * 4 * 128 * 16


def test_a_curve_without_width_or_with_gaps_is_drawn():
    found = picture.curves("a", [picture.Curve("b", [1, 2, 3], [5.0, math.nan, 5.0])])
    assert "nan" not in found.lower()
    assert "<path" in picture.curves("a", [picture.Curve("b", [1, 64], [1, 10])], log_x=True)
    assert picture.smooth([1.0, 3.0, 5.0, 7.0], 2) == [1.0, 2.0, 4.0, 6.0]

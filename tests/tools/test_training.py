"""The training check: its measurements, that it can fail, and its records."""

import json
from dataclasses import replace

import pytest
import torch
from benchmarks import training
from benchmarks.swappable_gpt2 import GPT2, Config, Operators
from benchmarks.training import Parts, Sizes, Training, TrainingRun
from torch.nn import functional as F

import kernelwright as kw

SMALL = Config(layers=2, heads=2, width=32, context=16, vocabulary=256)
CPU = {"gpu": None}
RUNGS = {
    "triton": {
        "embedding": "triton_rows", "embedding.backward": "triton_rows",
        "layer_norm": "triton_row", "add_layer_norm": "triton_row", "softmax": "triton_row",
        "bias_gelu": "triton_rows", "linear_cross_entropy": "chunked",
        "cross_entropy_with_grad_": "triton_online", "adamw": "triton_list",
        "get_total_norm": "triton_list", "clip_grads_with_norm_": "triton_list",
    },
    "cuda": {
        "embedding": "cuda_vec16", "embedding.backward": "cuda_sorted",
        "layer_norm": "cuda_warp", "add_layer_norm": "cuda_warp", "softmax": "cuda_warp",
        "bias_gelu": "cuda_vec16", "linear_cross_entropy": "chunked",
        "cross_entropy_with_grad_": "cuda_block", "adamw": "cuda_list",
        "get_total_norm": "cuda_list", "clip_grads_with_norm_": "cuda_list",
    },
}  # fmt: skip
#: calls of a step, by operator; a model of two layers
CALLS = {
    "embedding": {"embedding": 1, "embedding.backward": 1},
    "layer_norm": {"layer_norm": 1, "layer_norm.backward": 1},
    "add_layer_norm": {"add_layer_norm": 4, "add_layer_norm.backward": 4},
    "softmax": {"softmax": 2, "softmax.backward": 2},
    "bias_gelu": {"bias_gelu": 2, "bias_gelu.backward": 2},
    "linear_cross_entropy": {"linear_cross_entropy": 1, "scale_unless_one_": 2},
    "AdamW": {"adamw": 1},
    "clip_grad_norm_": {"get_total_norm": 1, "clip_grads_with_norm_": 1},
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data():
    return training.tokens()


# each of ours


def test_every_operator_of_the_model_and_the_trainer_is_swapped():
    assert set(training.SWAPS) == CALLS.keys()
    for name in training.SWAPS:
        mine, theirs = Parts.swapped(name), Parts()
        places = [(mine.operators, theirs.operators, n) for n in vars(theirs.operators)]
        places += [(mine, theirs, n) for n in ("adamw", "clip")]
        changed = [n for a, b, n in places if getattr(a, n) is not getattr(b, n)]
        assert changed == [{"AdamW": "adamw", "clip_grad_norm_": "clip"}.get(name, name)]


@pytest.mark.cover
@pytest.mark.parametrize("language", RUNGS)
@pytest.mark.parametrize("swap", training.SWAPS)
def test_each_operator_trains_as_pytorchs(swap, language, data, monkeypatch):
    if language == "triton" and torch.cuda.is_available():
        pytest.skip("Triton's interpreter needs a machine without a GPU")
    monkeypatch.setattr(training, "EVERY", 1)
    sizes = Sizes(SMALL, batch=2, steps=3)
    native = training.run(data, Parts(), 0, sizes)
    with kw.use(RUNGS[language]):
        found = training.run(data, Parts.swapped(swap), 0, sizes)
    assert found.curve == pytest.approx(native.curve, rel=1e-3)
    assert found.error <= found.budget, found.worst
    asked = {"scale_unless_one_": "native", **RUNGS[language]}
    rung = {n: asked.get(n) or asked[n.removesuffix(".backward")] for n in CALLS[swap]}
    assert found.served == {n: {rung[n]: count} for n, count in CALLS[swap].items()}


def test_the_order_of_the_data_is_what_a_seed_changes(data, monkeypatch):
    monkeypatch.setattr(training, "EVERY", 1)
    sizes = Sizes(SMALL, batch=2, steps=3)
    first = training.run(data, Parts(), 0, sizes)
    assert training.run(data, Parts(), 0, sizes) == first
    assert training.run(data, Parts(), 1, sizes).curve != first.curve


# faults are detected


class WrongGelu(torch.autograd.Function):
    """A slope that is 5% off: too steep above 0, too flat below."""

    @staticmethod
    def forward(ctx, x, bias):
        ctx.save_for_backward(x, bias)
        return F.gelu(x + bias, approximate="tanh")

    @staticmethod
    def backward(ctx, gy):
        z = sum(ctx.saved_tensors).detach().requires_grad_()
        with torch.enable_grad():
            y = F.gelu(z, approximate="tanh")
        gz = torch.autograd.grad(y, z, gy)[0] * (1 + 0.05 * z.sign())
        return gz, gz.flatten(0, -2).sum(0)


class WithoutCorrection(torch.optim.AdamW):
    """Adam without bias correction of its moments."""

    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state.setdefault("exp_avg", torch.zeros_like(p))
            state.setdefault("exp_avg_sq", torch.zeros_like(p))
            state["step"] = torch.tensor(1e6)
        super().step()


def operators(**changed):
    return Parts(replace(Operators(), **changed))


FAULTS = {
    "a slope of gelu that is 5% off": operators(bias_gelu=WrongGelu.apply),
    "a bias without a gradient": operators(
        bias_gelu=lambda x, bias: F.gelu(x + bias.detach(), approximate="tanh")
    ),
    "a softmax of 5% more": operators(softmax=lambda x, dim: F.softmax(1.05 * x, dim)),
    "weights of a softmax that sum to 1.02": operators(
        softmax=lambda x, dim: 1.02 * F.softmax(x, dim)
    ),
    "a residual without a gradient": operators(
        add_layer_norm=lambda x, h, *rest: (F.layer_norm(x + h, *rest), x + h.detach())
    ),
    "a row of the embedding without a gradient": operators(
        embedding=lambda i, w: F.embedding(i, w, padding_idx=32)
    ),
    "an epsilon of 1e-2": operators(layer_norm=lambda *x: F.layer_norm(*x, 1e-2)),
    "a loss whose targets are smoothed": operators(
        linear_cross_entropy=lambda x, w, t: F.cross_entropy(x @ w.mT, t, label_smoothing=0.02)
    ),
    "AdamW without bias correction": Parts(adamw=WithoutCorrection),
    "AdamW without weight decay": Parts(
        adamw=lambda p, **more: torch.optim.AdamW(p, **{**more, "weight_decay": 0.0})
    ),
    "a clip that does not clip": Parts(clip=lambda parameters, norm: None),
    "a clip of 5% more": Parts(
        clip=lambda parameters, norm: torch.nn.utils.clip_grad_norm_(parameters, 1.05 * norm)
    ),
}
TINY = Sizes(
    Config(layers=4, heads=4, width=32, context=32, vocabulary=256),
    batch=8,
    steps=40,
    warm_up=10,
    seeds=3,
)


def check(data, parts, native, seeds=range(TINY.seeds)):
    runs = tuple(training.run(data, parts, seed, TINY) for seed in seeds)
    runs = tuple(replace(r, served=r.served or {"something": {"native": 1}}) for r in runs)
    return Training(TINY, native, {"swap": runs}, {}, CPU).wrong()


@pytest.fixture(scope="module")
def native(data):
    return tuple(training.run(data, Parts(), seed, TINY) for seed in range(TINY.seeds))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, data, native):
    assert any(check(data, FAULTS[fault], native, [seed]) for seed in range(TINY.seeds))


def test_other_roundings_are_not_reported_as_faults(data, native):
    """Sums in another order, and results rounded once more or once less, are accepted."""

    def softmax(x, dim):
        e = (x - x.amax(dim, keepdim=True)).float().exp()
        return e / e.sum(dim, keepdim=True)

    def bias_gelu(x, bias):
        return F.gelu(x.float() + bias.float(), approximate="tanh").to(x.dtype)

    def clip(parameters, norm):
        return torch.nn.utils.clip_grad_norm_(list(parameters)[::-1], norm)

    parts = Parts(Operators(softmax=softmax, bias_gelu=bias_gelu), torch.optim.AdamW, clip)
    assert check(data, parts, native) == []


# the verdict


def made(curve, **changes):
    return replace(
        TrainingRun(curve, {"softmax": {"cuda_warp": 4}}, "gradient of x", 1.0, 2.0), **changes
    )


NATIVE = (made((4.0, 3.0)), made((4.2, 3.1)))
INSIDE = made((4.1, 3.05))


def verdict(*runs, environment=CPU, **failed):
    return Training(training.SIZES, NATIVE, {"softmax": runs}, failed, environment)


def test_the_band_is_a_tenth_wider():
    found = verdict(INSIDE, INSIDE)
    assert found.band() == [pytest.approx(x) for x in ((3.99, 4.21), (2.995, 3.105))]
    assert found.wrong() == [] and found.room("softmax") == 0.0
    assert verdict(INSIDE, made((4.1, 3.104))).wrong() == []
    assert verdict(INSIDE, made((4.1, 3.104))).room("softmax") == pytest.approx(0.04)


def test_a_curve_outside_the_band_is_named():
    (line,) = verdict(INSIDE, made((4.1, 3.2))).wrong()
    assert line == "softmax, order 1, steps to 20: 3.2000 is outside 2.9950 to 3.1050"
    assert len(verdict(made((float("nan"), 3.05)), INSIDE).wrong()) == 1


def test_an_error_beyond_its_budget_is_named():
    (line,) = verdict(INSIDE, made((4.1, 3.05), error=2.5)).wrong()
    assert line == "softmax, order 1, the last step: gradient of x errs by 2.5, allowed 2"
    assert len(verdict(made((4.1, 3.05), error=float("nan"))).wrong()) == 1


def test_a_swap_without_effect_is_named():
    assert verdict(made((4.1, 3.05), served={})).wrong() == ["softmax: was never called"]
    by_pytorch = made((4.1, 3.05), served={"softmax": {"native": 4}})
    assert verdict(by_pytorch).wrong() == []
    (line,) = verdict(by_pytorch, environment={"gpu": {"name": "H200"}}).wrong()
    assert line == "softmax: PyTorch served every call of it: nothing was swapped"


def test_a_swap_that_raises_leaves_the_others():
    assert verdict(INSIDE, rope="ValueError: no").wrong() == ["rope: raised ValueError: no"]


@pytest.mark.long
def test_the_command(monkeypatch, tmp_path, capsys, data):
    """The command's processes, record and table; one swap cannot run."""
    monkeypatch.setattr(training, "SIZES", Sizes(SMALL, batch=2, steps=10, seeds=2))
    kept = replace(training.records.settings(), records=tmp_path)
    monkeypatch.setattr(training.records, "settings", lambda: kept)
    monkeypatch.setattr(training, "SWAPS", ("softmax", "rope"))
    monkeypatch.setattr(training, "here", lambda: torch.device("cpu"))
    assert training.main(["--record", "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    assert "rope: raised ValueError: names: GPT-2 has no operator 'rope'" in said
    assert "softmax native x2, softmax.backward native x2" in said
    (file,) = tmp_path.glob("*/training.json")
    found = training.load(file.parent.name, tmp_path)
    assert json.loads(json.dumps(found, default=vars)) == json.loads(file.read_text())
    assert found.sizes.model == SMALL and len(found.swapped["softmax"]) == 2
    assert training.load("elsewhere", tmp_path) is None


# the model


def test_an_operator_that_the_model_has_not():
    with pytest.raises(ValueError, match=r"names: GPT-2 has no operator 'rope'; it has .*softmax"):
        Operators.with_kernels("rope")


def test_every_parameter_gets_a_gradient():
    torch.manual_seed(0)
    model = GPT2(SMALL, Operators.with_kernels())
    tokens = torch.randint(256, (2, 17))
    model(tokens[:, :-1], tokens[:, 1:]).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_no_token_depends_on_later_ones():
    torch.manual_seed(0)
    model, tokens = GPT2(SMALL), torch.randint(256, (1, 16))
    later = tokens.clone()
    later[0, 9:] = 7
    assert torch.equal(model.hidden(tokens)[0, :9], model.hidden(later)[0, :9])

"""kw.tune: which calls of a model are recorded and timed, and which choices change."""

import importlib
import json

import pytest
import torch
from torch import nn

import kernelwright as kw
from kernelwright.contract import H200
from kernelwright.dispatch import invalidate_selection, ladder, select, selection
from kernelwright.machine import clock
from kernelwright.ops import introspect
from kernelwright.support import cache
from kernelwright.support.settings import Settings
from kernelwright.workbench.bench import model_calls, tune_model
from kernelwright.workbench.bench.tune import NoGpu, Tried
from support.publics import DEVICE, randn

CPU = torch.device("cpu")
SOFTMAX = ladder("softmax")
FAR = float("inf")


class Model(nn.Module):
    """Two norms of one shape, an activation, a softmax of columns, and a running mean."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.weight = nn.Parameter(torch.rand(6) + 0.5)
        self.mean = nn.BatchNorm1d(6)
        self.to(DEVICE)

    def forward(self, x, scale=1.0):
        x = kw.rms_norm(self.mean(x) * scale, (6,), self.weight)
        x = x + torch.rand(1, device=x.device)
        x = kw.rms_norm(x, (6,), self.weight)
        return {"y": kw.softmax(kw.gelu(self.up(x)).t(), -1), "n": 3}


def counts(calls):
    return {c.ladder.name: len(c.us) for c in calls}


FORWARD = {"rms_norm": 2, "gelu": 1, "softmax": 1}
BACKWARD = {f"{name}.backward": n for name, n in FORWARD.items()}


@pytest.mark.parametrize("given", [{"x": randn(5, 6)}, (randn(5, 6), 2.0), [randn(5, 6)]])
def test_calls_of_a_step_are_counted_by_what_they_look_like(given):
    torch.manual_seed(0)
    model = Model()
    kept = {n: t.clone() for n, t in model.state_dict().items()}
    random = torch.get_rng_state()
    calls = model_calls.recorded(model, given)
    assert counts(calls) == FORWARD | BACKWARD
    assert [c.total for c in calls] == sorted((sum(c.us) for c in calls), reverse=True)
    assert min(t for c in calls for t in c.us) > 0
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(t, kept[n]) for n, t in model.state_dict().items())
    assert counts(model_calls.recorded(model.eval(), given)) == FORWARD
    assert counts(model_calls.recorded(model.train().requires_grad_(False), given)) == FORWARD


def test_other_shapes_strides_and_values_are_other_calls():
    class Softmaxes(nn.Module):
        def forward(self, x):
            for t in (x, x * 2, x[:, :4], x.t(), x.double()):
                kw.softmax(t, -1)
            kw.softmax(x, 0)
            with kw.use(softmax="manual"):
                kw.softmax(x[:2], -1)  # the user has selected a rung

    x = randn(5, 6)
    calls = {c.name: c for c in model_calls.recorded(Softmaxes(), x)}
    assert {name: len(c.us) for name, c in calls.items()} == {
        "softmax(x=float32[5, 6], dim=-1)": 2,
        "softmax(x=float32[5, 4] by [6, 1], dim=-1)": 1,
        "softmax(x=float32[6, 5] by [1, 6], dim=-1)": 1,
        "softmax(x=float64[5, 6], dim=-1)": 1,
        "softmax(x=float32[5, 6], dim=-2)": 1,
    }
    kept = calls["softmax(x=float32[6, 5] by [1, 6], dim=-1)"].args["x"]
    assert kept.stride() == (1, 6) and torch.equal(kept, x.t().cpu())


def test_a_compiled_model_and_the_loss_of_a_transformers_output():
    class Out(dict):
        loss = None

    class Two(nn.Module):
        def forward(self, x):
            out, w = Out(), kw.rms_norm(x, (6,), self.weight)
            out["states"] = kw.softmax(w, -1)
            out.loss = kw.gelu(w).sum()
            return out

    model = Two()
    model.weight = nn.Parameter(torch.ones(6, device=DEVICE))
    compiled = torch.compile(model, backend="eager")
    found = counts(model_calls.recorded(compiled, randn(5, 6)))
    assert found == {
        "rms_norm": 1, "softmax": 1, "gelu": 1, "gelu.backward": 1, "rms_norm.backward": 1
    }  # fmt: skip


def softmax_call(rows=5, device=CPU):
    calls = model_calls.recorded(_Softmax(), randn(rows, 40))
    (call,) = calls
    call.device = device
    return call


class _Softmax(nn.Module):
    def forward(self, x):
        return kw.softmax(x, -1)


def test_what_is_right_is_timed_and_what_is_not_says_why(monkeypatch):
    tried = [(SOFTMAX.rung(name), {}) for name in ("native", "manual", "compiled", "cuda_warp")]
    real = tune_model.launcher

    def launched(lad, args, rung, config):
        if rung == "compiled":
            return lambda x, dim: torch.zeros_like(x)
        if rung == "cuda_warp":
            raise RuntimeError("no such register")
        return real(lad, args, rung, config)

    monkeypatch.setattr(tune_model, "choices", lambda *_: iter(tried))
    monkeypatch.setattr(tune_model, "launcher", launched)
    monkeypatch.setattr(tune_model, "RULE", clock.CPU_QUICK)
    call = softmax_call()
    with clock.session(CPU):
        found, note = tune_model.try_all(call, FAR)
    native, manual, compiled, warp = found
    assert note == "" and native.us > 0 and manual.us > 0
    assert {t.case for t in found} == {call.name}
    assert compiled.us is None and "200 of 200 elements" in compiled.why
    assert warp.us is None and "no such register" in warp.why
    with clock.session(CPU):
        found, note = tune_model.try_all(call, 0.0)
    assert [t.rung for t in found] == ["native", "manual"]
    assert note == "the budget was spent before every config was tried"


@pytest.fixture
def on_an_h200(monkeypatch, tmp_path):
    """Selection as on an H200, with a separate cache folder; the test replaces `_timed`."""
    facts = importlib.import_module("kernelwright.machine.facts")  # a function has the same name
    monkeypatch.setattr(facts, "_gpu", lambda index: H200)
    monkeypatch.setattr(selection.availability, "missing", lambda *_: None)
    made = Settings(tmp_path, None, None)
    tmp_path.chmod(0o700)
    for module in (selection, cache):
        monkeypatch.setattr(module, "settings", lambda: made)
    selection.tuned_table.cache_clear()
    yield tmp_path / "tuned" / "nvidia-h200"
    monkeypatch.undo()
    selection.tuned_table.cache_clear()


def test_the_fastest_is_dispatched_from_then_on(on_an_h200, monkeypatch):
    """The most expensive calls first, until the budget is spent; timed calls are not repeated."""
    cuda = torch.device("cuda", 0)
    calls = [softmax_call(rows, cuda) for rows in (4, 300, 20000)]
    first = tune_model.dispatched(calls[0])
    other = next(
        (r, c)
        for r, c in tune_model.choices(SOFTMAX, selection.specs_of(calls[0].args), cuda)
        if r.is_gpu and r is not first.rung
    )
    bucket = SOFTMAX.bucket(**selection.specs_of(calls[0].args))
    asked, said = [], []

    def timed(call, deadline):
        asked.append(call.name)
        if call is calls[1]:
            return [], "there is not enough free memory to time it"
        tried = [(first.rung, first.config, 30.0), (other[0], other[1], 10.0)]
        found = [Tried(call.name, bucket, r.name, c, us) for r, c, us in tried]
        return [*found, Tried(call.name, bucket, "native", {}, None, "wrong")], ""

    monkeypatch.setattr(tune_model, "_timed", timed)
    lines, (table,) = tune_model.tuned(calls[:2], FAR, said.append)
    assert table == on_an_h200 / "softmax.sm_90.json"
    assert asked == [c.name for c in calls[:2]]
    assert said[0] == f"1 of 2, 1 x {calls[0].name}"
    now = tune_model.dispatched(calls[0])
    assert (now.rung, now.config) == other
    assert "measured fastest" in now.why
    assert (lines[0].gain, lines[0].note) == (3.0, "")
    assert lines[0].before.split()[0] == first.rung.name
    assert lines[0].after.split()[0] == other[0].name
    assert (lines[1].gain, lines[1].note) == (None, "there is not enough free memory to time it")
    shown = str(tune_model.Tuning(tuple(lines), (table,), 2.0))
    assert "1 of 2 distinct calls timed in 2 s" in shown and "3.00x" in shown

    again, none = tune_model.tuned([calls[0], calls[2]], 0.0, said.append)
    assert [x.note for x in again] == ["timed before", "the budget was spent"]
    assert none == [] and len(asked) == 2 == len(said)
    assert again[0].after == lines[0].after == again[0].before

    assert list(json.loads(table.read_text())["buckets"]) == [bucket]
    made_of = on_an_h200 / "tried" / table.name
    changed = json.loads(made_of.read_text())
    changed["sources"]["triton_row"] = "of another version"
    made_of.write_text(json.dumps(changed))
    assert tune_model.read(table, SOFTMAX).complete == frozenset()


def test_a_call_that_was_tried_in_part_is_tried_again(on_an_h200, monkeypatch):
    cuda = torch.device("cuda", 0)
    call = softmax_call(4, cuda)
    before = tune_model.dispatched(call)
    bucket = SOFTMAX.bucket(**selection.specs_of(call.args))
    found = [Tried(call.name, bucket, before.rung.name, before.config, 5.0)]
    notes = iter(["the budget was spent before every config was tried", ""])
    monkeypatch.setattr(tune_model, "_timed", lambda *_: (found, next(notes)))
    for done in (False, True):
        (line,), (table,) = tune_model.tuned([call], FAR, lambda words: None)
        assert line.gain == 1.0
        assert (call.name in tune_model.read(table, SOFTMAX).complete) == done


def test_choices_begin_with_what_is_dispatched_and_launch_different_things(on_an_h200):
    specs = selection.specs_of({"x": randn(64, 1024).bfloat16(), "dim": -1})
    cuda = torch.device("cuda", 0)
    found = list(tune_model.choices(SOFTMAX, specs, cuda))
    chosen = select(SOFTMAX, specs, cuda, None)
    assert found[0] == (chosen.rung, chosen.config)
    names = {r.name for r, _ in found}
    assert "native" in names and len(names) > 2
    assert not {"manual", "compiled"} & names
    assert all(r.dispatchable for r, _ in found)
    as_text = [(r.name, json.dumps(c, sort_keys=True)) for r, c in found]
    assert len(set(as_text)) == len(as_text)


def test_calls_are_selected_anew_after_a_table_has_changed(binds):
    x = randn(3, 47)
    for _ in range(2):
        kw.softmax(x, -1)
    assert binds.count("softmax") <= 1
    del binds[:]
    invalidate_selection(SOFTMAX)
    for _ in range(2):
        torch.testing.assert_close(kw.softmax(x, -1), x.softmax(-1))
    assert binds == ["softmax"]


def test_functions_without_a_ladder_are_no_calls():
    """For example the gradient of a grouped product's matrices."""

    class Grouped(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(2, 6, 8, device=DEVICE))

        def forward(self, x):
            return kw.grouped_mm(
                x, self.weight, torch.tensor([2, 5], dtype=torch.int32, device=x.device)
            )

    x = randn(5, 6).requires_grad_()
    assert counts(model_calls.recorded(Grouped(), x)) == {"grouped_mm": 1}
    with introspect.Serving() as seen:
        Grouped()(x).sum().backward()
    assert {n: dict(c) for n, c in seen.calls.items()} == {"grouped_mm": {"native": 2}}


def test_what_cannot_be_tuned(monkeypatch):
    x = randn(5, 6)
    with pytest.raises(TypeError, match="model: is a function, not a torch"):
        kw.tune(lambda x: x, x)
    with pytest.raises(ValueError, match="seconds: is 0, should be positive"):
        kw.tune(Model(), x, seconds=0)
    if not torch.cuda.is_available():
        with pytest.raises(NoGpu, match="tune needs a GPU, and there is none here"):
            kw.tune(Model(), x)
    monkeypatch.setattr(tune_model, "gpu_of", lambda device: H200)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(tune_model.NotTuned, match="a CUDA graph is being captured"):
        kw.tune(Model(), x)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with pytest.raises(ValueError, match="model: calls no operator of ours on a GPU"):
        kw.tune(nn.Linear(6, 2, device=DEVICE), x, progress=lambda words: None)
    monkeypatch.setattr(cache, "writable", lambda: False)
    with pytest.raises(tune_model.NotTuned, match="cannot be written to: set KW_CACHE"):
        kw.tune(Model(), x)

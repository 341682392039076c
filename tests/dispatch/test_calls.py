"""Which rung a call dispatches to, errors of wrong calls, and arguments that change."""

import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import UnknownRung, Unsupported
from kernelwright.dispatch import UnknownOperator
from kernelwright.dispatch.override import active
from support.publics import DEVICE, PUBLIC, agree, gpu, ladders_by_name, randn


@pytest.mark.parametrize("name", ["softmax", "gelu", "rms_norm", "dropout"])
def test_use_holds_in_a_backward_that_runs_after_it(name, served):
    public = PUBLIC[name]
    tensors = public.tensors((2, 3, 29), grad=True)
    rung = ladders_by_name()[name].names[0]
    with kw.use({name: rung}):
        y = public.kw(*tensors)
    y.sum().backward()
    assert served == [(name, rung), (f"{name}.backward", rung)]


def test_use_names_a_backward_alone(served):
    x = randn(2, 31).requires_grad_()
    with kw.use({"softmax.backward": "manual"}):
        y = kw.softmax(x, -1)
    y.sum().backward()
    assert served == [("softmax", None), ("softmax.backward", "manual")]


def test_use_nests_and_ends_with_an_error(served):
    x = [randn(2, n) for n in (51, 52, 53, 54)]
    with kw.use(softmax="manual"):
        kw.softmax(x[0], -1)
        with pytest.raises(ZeroDivisionError), kw.use(softmax="native"):
            kw.softmax(x[1], -1)
            raise ZeroDivisionError
        kw.softmax(x[2], -1)
    kw.softmax(x[3], -1)
    assert [rung for _, rung in served] == ["manual", "native", "manual", None]


def test_overlapping_use_blocks_restore_the_selection():
    """Two threads may close blocks in another order than the reverse of opening them."""
    first, second = kw.use(softmax="manual"), kw.use(softmax="native", gelu="manual")
    first.__enter__()
    second.__enter__()
    assert active == {"softmax": "native", "gelu": "manual"}
    first.__exit__(None, None, None)
    assert active == {"softmax": "native", "gelu": "manual"}
    second.__exit__(None, None, None)
    assert active == {}


def test_unknown_names():
    with pytest.raises(UnknownRung, match=r"rung 'nope': softmax has no such rung; it has manual"):
        kw.use(softmax="nope").__enter__()
    with pytest.raises(UnknownOperator, match=r"operator 'sotfmax': .*softmax"):
        kw.use(sotfmax="native").__enter__()
    with pytest.raises(UnknownOperator, match="nope"):
        kw.explain("nope", randn(3))
    assert torch.equal(kw.softmax(randn(3), 0), torch.softmax(randn(3), 0))  # nothing remains


def test_a_named_rung_that_does_not_fit_says_why():
    with (
        kw.use(softmax="triton_row"),
        pytest.raises(Unsupported, match=r"softmax\.triton_row .*dim"),
    ):
        kw.softmax(randn(3, 4, 5), 1)
    with kw.use(softmax="triton_row"), pytest.raises(Unsupported, match=r"float64"):
        kw.softmax(randn(3, 4, dtype=torch.float64), -1)


def test_explain_names_the_dispatched_rung_and_why_each_other_is_not():
    x = randn(4, 64)
    found = kw.explain("softmax", x, dim=-1)
    assert found.operator == "softmax"
    assert {found.serves.rung.name, *found.others} == set(ladders_by_name()["softmax"].names)
    assert all(found.others.values())
    assert f"softmax: {found.serves.rung.name} is dispatched" in str(found)
    with kw.use(softmax="manual"):
        assert kw.explain("softmax", x, dim=-1).serves.why == "chosen by kw.use"
    backward = kw.explain("softmax.backward", x, x, -1)
    assert backward.operator == "softmax.backward"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: kw.softmax(torch.arange(3), 0), TypeError, "input: .*int64"),
        (lambda: kw.softmax([1.0], 0), TypeError, "input: must be a tensor, is a list"),
        (lambda: kw.gelu(1.0), TypeError, "input: must be a tensor, is a float"),
        (lambda: kw.sum([1.0]), TypeError, "input: must be a tensor, is a list"),
        (lambda: kw.rms_norm(None, (4,)), TypeError, "input: must be a tensor, is a NoneType"),
        (lambda: kw.dropout(1.0), TypeError, "input: must be a tensor, is a float"),
        (lambda: kw.softmax(randn(3, 4), 2), IndexError, "dim: 2 is out of range .* 2 dim"),
        (lambda: kw.softmax(randn(3, 4), -3), IndexError, "dim: -3 is out of range"),
        (lambda: kw.gelu(torch.arange(3)), TypeError, "input: .*int64"),
        (lambda: kw.gelu(randn(3), "tan"), ValueError, "approximate: .*'tan'"),
        (lambda: kw.sum(randn(3, 4), 2), IndexError, "dim: 2 is out of range"),
        (lambda: kw.sum(randn(3, 4), (0, 0)), ValueError, "dim: .*twice"),
        (lambda: kw.rms_norm(randn(3, 4), (5,)), ValueError, r"normalized_shape: \(5,\)"),
        (lambda: kw.rms_norm(randn(3, 4), (4,), randn(5)), ValueError, "weight: .*shape"),
        (lambda: kw.rms_norm(torch.arange(4), (4,)), TypeError, "input: .*int64"),
        (lambda: kw.dropout(randn(3), 1.5), ValueError, "p: .*1.5"),
        (lambda: kw.dropout(torch.arange(3)), TypeError, "input: .*int64"),
        (
            lambda: kw.rms_norm(randn(3, 4), (4,), randn(4, device="meta")),
            (ValueError, RuntimeError),
            "weight is on meta, but x is on",
        ),
    ],
)  # fmt: skip
def test_a_bad_argument_is_named(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


@gpu
def test_tensors_of_two_devices_are_named():
    with pytest.raises(ValueError, match="weight is on cpu, but x is on cuda:0"):
        kw.rms_norm(randn(3, 4), (4,), randn(4, device="cpu"))


def test_calls_of_one_address_and_different_kinds_have_separate_cache_entries():
    x = randn(64, 64)
    views = [x, x.mT, x[:32], x[:, :32], x.view(16, 256), x.view(torch.int32).view(torch.float32)]
    views += [x.view(-1)[1:], x.view(-1)[:63], x.half(), x.double(), x[0].expand(8, 64)]
    for v in (*views, *views):
        agree(kw.softmax(v, -1), torch.softmax(v, -1), v.dtype)
        agree(kw.sum(v, -1), torch.sum(v, -1), torch.float16)


def test_floats_are_read_at_each_call():
    x = randn(4, 16)
    for eps in (1e-6, 1.0, 100.0):
        agree(kw.rms_norm(x, (16,), eps=eps), F.rms_norm(x, (16,), eps=eps), x.dtype)


#: Modules of this package that `kw.softmax` on a CPU may import; with a dot: whole packages.
FOR_SOFTMAX = (
    "contract.",
    "dispatch.",
    "support.",
    "machine",
    "machine.facts",
    "machine.nvml",
    "toolchain",
    "toolchain.availability",
    "toolchain.c_extensions",
    "toolchain.cpp_extension",
    "toolchain.inductor",
    "toolchain.interpreter",
    "toolchain.modes",
    "toolchain.redzones",
    "toolchain.versions",
    "ops",
    "ops._superset",
    "ops.reduce",
    "ops.reduce.softmax",
    "ops.reduce.softmax.heuristics",
    "ops.reduce.softmax.heuristics_superset",
    "ops.reduce.softmax.spec",
    "ops.reduce.softmax.tiling",
    "ops.reduce.softmax.torch_rungs",
)
SOFTMAX = """
import json, sys, torch
before = set(sys.modules)
import kernelwright as kw
kw.softmax(torch.ones(2, 3), -1)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_a_call_imports_its_operator_alone():
    done = subprocess.run([sys.executable, "-c", SOFTMAX], capture_output=True, text=True)
    loaded = json.loads(done.stdout)
    ours = {m.removeprefix("kernelwright.") for m in loaded if m.startswith("kernelwright.")}
    rooms = {name for name in FOR_SOFTMAX if name.endswith(".")}
    others = {m for m in ours if f"{m.split('.')[0]}." not in rooms} - {*FOR_SOFTMAX}
    assert sorted(others) == []
    assert not {*loaded} & {"triton", "numba", "cuda.bindings", "typer", "rich"}


def test_importing_the_operators_imports_no_kernel_language():
    code = "import kernelwright.ops, sys; print({'triton', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def adamw_arguments():
    lists = [[randn(*s, seed=10 * i + k) for k, s in enumerate([(5, 7), (3,)])] for i in range(4)]
    lists[3] = [v.abs() for v in lists[3]]
    steps = [torch.tensor(1.0, device=DEVICE) for _ in range(2)]
    return lists, steps


STEP = {"beta1": 0.9, "beta2": 0.99, "lr": 0.1, "weight_decay": 0.01, "eps": 1e-8}


def test_changed_arguments_count_a_version():
    (p, g, m, v), steps = adamw_arguments()
    before = {id(t): t._version for t in (*p, *g, *m, *v, *steps)}
    kw.adamw(p, g, m, v, [], steps, **STEP)
    assert all(t._version > before[id(t)] for t in (*p, *m, *v, *steps))
    assert all(t._version == before[id(t)] for t in g)


def test_a_changed_argument_that_was_saved_is_noticed():
    (p, g, m, v), steps = adamw_arguments()
    leaf = randn(5, 7).requires_grad_()
    loss = (leaf * p[0]).sum()
    kw.adamw(p, g, m, v, [], steps, **STEP)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_changed_arguments_in_a_compiled_step():
    torch.compiler.reset()
    (p, g, m, v), steps = adamw_arguments()
    (p2, g2, m2, v2), steps2 = adamw_arguments()

    def step(p, g, m, v, steps):
        kw.adamw(p, g, m, v, [], steps, **STEP)

    torch.compile(step, backend="aot_eager", fullgraph=True)(p, g, m, v, steps)
    step(p2, g2, m2, v2, steps2)
    assert all(map(torch.equal, (*p, *m, *v, *steps), (*p2, *m2, *v2, *steps2)))

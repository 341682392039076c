"""Operators under torch.compile, torch.export and opcheck."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from benchmarks.swappable_gpt2 import GPT2, Config, Operators
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing._internal.optests.generate_tests import OpCheckError

import kernelwright as kw
from kernelwright.contract.case import Case
from kernelwright.dispatch import ladders
from kernelwright.dispatch.override import active
from kernelwright.workbench.verify.candidate import copy_of, map_tensors
from kernelwright.workbench.verify.verify import thorough_cases
from support.graphs import Graphs
from support.publics import DEVICE, PUBLIC, agree, fullgraph, publics, randn, with_gradients


@pytest.mark.cover
@publics
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiled_whole_forward_and_backward(public, dynamic):
    torch.compiler.reset()
    compiled = torch.compile(public.ours, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for shape in ((4, 6, 33), (2, 5, 40))[: 1 + dynamic]:
        tensors = public.tensors(shape)
        ours = with_gradients(lambda *t: public.call(compiled, *t), tensors)
        agree(ours, with_gradients(public.pytorch, tensors), torch.float32)


@pytest.mark.parametrize(
    "name", [*(pytest.param(n, marks=pytest.mark.long) for n in ("softmax", "gelu")), "rms_norm"]
)
def test_compiled_by_inductor(name):
    torch.compiler.reset()
    public = PUBLIC[name]
    tensors = public.tensors((8, 5, 16))
    rest = public.rest
    compiled = torch.compile(lambda *t: public.ours(*t, *rest) * 2, fullgraph=True)
    ours = with_gradients(compiled, tensors)
    agree(ours, with_gradients(lambda *t: public.torch(*t, *rest) * 2, tensors), torch.float32)


def test_a_compiled_graph_shows_the_rung_and_follows_use():
    torch.compiler.reset()
    graphs = Graphs()
    counter = CompileCounterWithBackend(graphs)
    compiled = torch.compile(lambda x: kw.softmax(x, -1), backend=counter, fullgraph=True)
    x = randn(4, 8).requires_grad_()
    compiled(x).sum().backward()
    assert graphs.targets == [
        "kernelwright.softmax.default",
        "kernelwright.softmax_backward.default",
    ]
    assert graphs.rungs == [None, None]
    with kw.use(softmax="manual"):
        y = compiled(x)
    y.sum().backward()
    assert counter.frame_count == 2
    assert graphs.rungs[2:] == ["manual", "manual"]
    compiled(x)
    with kw.use(softmax="manual"):
        compiled(x)
    assert counter.frame_count == 2


def test_inductor_knows_the_operators_of_a_deep_model(monkeypatch):
    """For an unknown operator, torch 2.11's Inductor formats the nodes that it is computed from,
    with one path per layer through which or past which a tensor goes."""
    from torch._inductor.lowering import lowerings

    for overload in [x for x in lowerings if str(x).startswith("kernelwright")]:
        monkeypatch.delitem(lowerings, overload)
    torch.compiler.reset()
    graphs = Graphs()
    sizes = Config(layers=6, heads=1, width=8, context=8, vocabulary=16)
    model = GPT2(sizes, Operators.with_kernels()).to(DEVICE)
    tokens = torch.arange(8, device=DEVICE).view(1, 8)
    torch.compile(model, backend=graphs, fullgraph=True)(tokens, tokens).backward()
    found = graphs.operators()
    assert (found["add_layer_norm"], found["add_layer_norm_backward"]) == (12, 12)
    assert (found["softmax"], found["softmax_backward"]) == (6, 6)
    assert graphs.unknown == set()


def test_a_fake_tensor_loads_no_inductor():
    script = """
import sys, torch, kernelwright as kw
from torch._subclasses import FakeTensorMode
with FakeTensorMode():
    assert kw.softmax(torch.empty(2, 3), -1).shape == (2, 3)
assert "torch._inductor.lowering" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_use_inside_compiled_code():
    torch.compiler.reset()
    graphs = Graphs()

    def chosen(x):
        with kw.use(softmax="manual"):
            y = kw.softmax(x, -1)
        return kw.softmax(y, -1)

    x = randn(4, 8)
    compiled = torch.compile(chosen, backend=graphs, fullgraph=True)
    agree(compiled(x), torch.softmax(torch.softmax(x, -1), -1), x.dtype)
    assert graphs.rungs == ["manual", None]
    assert active == {}


def test_the_compiler_sees_the_formula_of_gelu():
    torch.compiler.reset()
    graphs = Graphs()
    compiled = torch.compile(lambda x: kw.gelu(x + 1), backend=graphs, fullgraph=True)
    x = randn(4, 8)
    agree(compiled(x), F.gelu(x + 1), x.dtype)
    assert graphs.targets == []


def test_use_of_a_backward_compiles_again():
    torch.compiler.reset()
    graphs = Graphs()
    compiled = torch.compile(lambda x: kw.softmax(x, -1), backend=graphs, fullgraph=True)
    x = randn(4, 8).requires_grad_()
    compiled(x).sum().backward()
    with kw.use({"softmax.backward": "manual"}):
        y = compiled(x)
    y.sum().backward()
    assert graphs.rungs == [None, None, "/manual", "manual"]


def test_a_cache_of_graphs_does_not_hide_the_rung_of_a_backward(tmp_path, monkeypatch, served):
    """PyTorch's cache on disk identifies a graph by its operators and their arguments."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = randn(3, 47).requires_grad_()
    for rung in (None, "manual"):
        torch.compiler.reset()
        compiled = torch.compile(lambda t: kw.softmax(t, -1), fullgraph=True)
        with kw.use(**{"softmax.backward": rung} if rung else {}):
            y = compiled(x)
        y.sum().backward()
    assert [r for name, r in served if name == "softmax.backward"] == [None, "manual"]


class Softmax(torch.nn.Module):
    def forward(self, x):
        return kw.softmax(x, -1)


def test_an_exported_program_keeps_the_rung_and_has_gradients():
    with kw.use(softmax="manual"):
        program = torch.export.export(Softmax(), (randn(4, 8),))
    assert "rung = 'manual'" in program.graph_module.code.replace('"', "'")
    run, x = program.module(), randn(4, 8, seed=5)
    agree(run(x), torch.softmax(x, -1), x.dtype)
    ours, theirs = (with_gradients(f, [x]) for f in (run, Softmax()))
    agree(ours, theirs, x.dtype)
    leaf = x.clone().requires_grad_()
    with kw.use(softmax="manual"):
        program = torch.export.export(Softmax(), (leaf,))
    agree(with_gradients(program.module(), [x]), theirs, x.dtype)


def test_an_operator_called_by_its_name_has_gradients_or_raises():
    x = randn(4, 8)
    named = torch.ops.kernelwright.softmax
    agree(with_gradients(lambda t: named(t, -1), [x]), with_gradients(Softmax(), [x]), x.dtype)
    leaf = randn(4, 4).requires_grad_()
    norm = torch.ops.kernelwright.get_total_norm([leaf, 2 * leaf], "2.0")
    with pytest.raises(NotImplementedError, match="get_total_norm cannot be differentiated"):
        norm.backward()


def test_an_argument_without_a_gradient_raises():
    q, table = randn(1, 2, 3, 4), randn(1, 3, 2).requires_grad_()
    rope = torch.ops.kernelwright.rope
    y, _ = rope(q, q, table, table.detach(), None, 1e4, 4, False)
    with pytest.raises(NotImplementedError, match="cos: rope has no gradient"):
        y.sum().backward()


MODULES = {
    "LayerNorm": (lambda nn: nn.LayerNorm(8), (4, 8)),
    "RMSNorm": (lambda nn: nn.RMSNorm(8), (4, 8)),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), (3, 4, 5)),
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(4, track_running_stats=False), (6, 4)),
    "InstanceNorm1d": (lambda nn: nn.InstanceNorm1d(4, affine=True), (3, 4, 5)),
    "Embedding": (lambda nn: nn.Embedding(5, 4), None),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_compiled_gradient_by_a_modules_parameters(name):
    """torch.func.functional_call, as meta-learning and ensembles use it."""
    make, shape = MODULES[name]
    x = torch.tensor([[0, 3, 0]], device=DEVICE) if shape is None else randn(*shape)
    found = []
    for nn in (kw.nn, torch.nn):
        torch.manual_seed(0)
        module = make(nn).to(DEVICE)
        weights = {k: randn(*v.shape, seed=7) for k, v in module.named_parameters()}

        def loss(weights, x, module=module):
            return torch.func.functional_call(module, weights, (x,)).sin().sum()

        gradient = torch.func.grad(loss)
        found.append(fullgraph(gradient)(weights, x) if nn is kw.nn else gradient(weights, x))
    agree(*found, torch.float16)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_batch_sizes_share_a_graph_as_pytorchs_do(name):
    w, counts = randn(16).requires_grad_(), []
    for fn in (getattr(kw, name), getattr(F, name)):
        torch.compiler.reset()
        counter = CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(
            lambda x, fn=fn: fn(x, (16,), w), backend=counter, fullgraph=True, dynamic=True
        )
        for batch in (4, 3, 8, 5):
            x = randn(batch, 7, 16).requires_grad_()
            y = compiled(x)
            agree(y, fn(x, (16,), w), x.dtype)
            y.sum().backward()
        counts.append(counter.frame_count)
    assert counts == [1, 1]


def layouts_of(ladder):
    first: dict[str, Case] = {}
    for c in thorough_cases(ladder):
        if c.dtype == torch.float32 and c.layout in ("contiguous", "sliced", "permuted"):
            first.setdefault(c.layout, c)
    return first


#: Whose compiled formulas take minutes.
SLOW = ("attention_varlen.backward", "linear_attention.backward")
LAYOUTS = [
    pytest.param(x, o, id=f"{x.name}-{o}", marks=pytest.mark.long if x.name in SLOW else ())
    for x in ladders()
    for o in layouts_of(x)
]


#: Arguments without a gradient.
CONSTANT = {
    "batch_norm_inference": {"mean", "var"},
    "rope": {"cos", "sin"},
    "spmv": {"values"},
}


@pytest.mark.cover
@pytest.mark.parametrize(("ladder", "layout"), LAYOUTS)
def test_opcheck(ladder, layout):
    """All of its tests, the registration of autograd included, with gradients by every argument."""
    op, case = ladder.operator, layouts_of(ladder)[layout]
    args = map_tensors(op.with_defaults(op.inputs(case, DEVICE)), copy_of)
    overload = getattr(torch.ops.kernelwright, op.torch_name).default
    torch.library.opcheck(overload, tuple(args.values()), {"rung": "native"})
    if op.mutated:
        return
    leaves = map_tensors(args, lambda t: t.requires_grad_(t.is_floating_point()))
    for name in CONSTANT.get(op.name, ()):
        leaves[name] = leaves[name].detach()
    try:
        torch.library.opcheck(overload, tuple(leaves.values()), {"rung": "native"})
    except OpCheckError as error:
        assert f"{op.name} cannot be differentiated" in str(error)


def test_float_attributes_of_a_module_under_dynamic_shapes():
    """An eps and a label smoothing that the module holds, each used twice."""

    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.smoothing, self.eps = torch.nn.Linear(8, 5), 0.1, 1e-5

        def forward(self, x, target):
            z = self.head(kw.rms_norm(x, (8,), eps=self.eps))
            losses = (kw.cross_entropy(s * z, target, label_smoothing=self.smoothing)
                      for s in (1, 2))  # fmt: skip
            return sum(losses) + kw.rms_norm(z, (5,), eps=self.eps).sum()

    torch.compiler.reset()
    model = Head().to(DEVICE)
    compiled = torch.compile(model, dynamic=True, fullgraph=True, backend="aot_eager")
    for n in (6, 7):
        x, target = randn(n, 8), torch.arange(n, device=DEVICE) % 5
        gradients = [
            torch.autograd.grad(call(x, target), model.head.weight)[0] for call in (compiled, model)
        ]
        torch.testing.assert_close(*gradients)

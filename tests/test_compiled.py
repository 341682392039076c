"""Operators under torch.compile, torch.export and opcheck."""

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func

import kernelwright as kw
from kernelwright.contract.case import Case
from kernelwright.dispatch import ladders
from kernelwright.dispatch.override import active
from kernelwright.workbench.trial import copy_of, map_tensors
from kernelwright.workbench.verify import thorough_cases
from publics import DEVICE, PUBLIC, agree, publics, randn, with_gradients


class Graphs:
    """A backend that keeps the forward and backward graphs, and runs them as they are."""

    def __init__(self):
        self.targets, self.rungs = [], []

    def __call__(self, module, inputs):
        def keep(graph, inputs):
            for node in graph.graph.nodes:
                if str(node.target).startswith("kernelwright"):
                    self.targets.append(str(node.target))
                    self.rungs.append(node.kwargs.get("rung"))
            return make_boxed_func(graph.forward)

        return aot_module_simplified(module, inputs, fw_compiler=keep, bw_compiler=keep)


@pytest.mark.cover
@publics
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiled_whole_forward_and_backward(public, dynamic):
    torch.compiler.reset()
    compiled = torch.compile(public.ours, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for shape in ((4, 6, 33), (2, 5, 40)):
        tensors = public.tensors(shape)
        ours = with_gradients(lambda *t: public.call(compiled, *t), tensors)
        agree(ours, with_gradients(public.pytorch, tensors), torch.float32)


@pytest.mark.parametrize("name", ["softmax", "gelu", "rms_norm"])
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


def test_an_exported_program_keeps_the_rung():
    class Model(torch.nn.Module):
        def forward(self, x):
            return kw.softmax(x, -1)

    with kw.use(softmax="manual"):
        program = torch.export.export(Model(), (randn(4, 8),))
    assert "rung = 'manual'" in program.graph_module.code.replace('"', "'")
    x = randn(4, 8, seed=5)
    agree(program.module()(x), torch.softmax(x, -1), x.dtype)


def layouts_of(ladder):
    first: dict[str, Case] = {}
    for c in thorough_cases(ladder):
        if c.dtype == torch.float32 and c.layout in ("contiguous", "sliced", "permuted"):
            first.setdefault(c.layout, c)
    return first


LAYOUTS = [(x, layout) for x in ladders() for layout in layouts_of(x)]


@pytest.mark.cover
@pytest.mark.parametrize(("ladder", "layout"), LAYOUTS, ids=[f"{x.name}-{o}" for x, o in LAYOUTS])
def test_opcheck(ladder, layout):
    op, case = ladder.operator, layouts_of(ladder)[layout]
    made = op.inputs(case, DEVICE)
    args = map_tensors({a.name: made.get(a.name, a.default) for a in op.args}, copy_of)
    overload = getattr(torch.ops.kernelwright, op.torch_name).default
    torch.library.opcheck(overload, tuple(args.values()), {"rung": "native"})

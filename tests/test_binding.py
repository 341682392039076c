"""What PyTorch asks of an operator: autograd, autocast, torch.compile, torch.func, errors."""

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch.utils.checkpoint import checkpoint

import kernelwright as kw
from kernelwright.contract import UnknownRung, Unsupported
from kernelwright.contract.case import Case
from kernelwright.dispatch import UnknownOperator, binding, entry_of, ladders
from kernelwright.ops.dropout.philox import factor
from kernelwright.workbench.checks import same_bits
from kernelwright.workbench.trial import all_results, copy_of, map_tensors
from kernelwright.workbench.verify import thorough_cases

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")


def randn(*shape, dtype=torch.float32, seed=0, device=DEVICE):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(device, dtype)


def torch_dropout(x, p):
    """Dropout's definition in plain PyTorch, drawing its seed as `kw.dropout` does."""
    seed = torch.randint(2**63 - 1, (1,), dtype=torch.int64, device=x.device)
    return x * factor(x.shape, seed, p).to(x.dtype)


@dataclass(frozen=True)
class Public:
    """A public function of tensors, and PyTorch's; `more`: shapes of further tensors, `rest`:
    other arguments."""

    ours: Callable
    torch: Callable
    more: tuple = ()
    rest: tuple = ()

    def call(self, fn, *tensors):
        torch.manual_seed(3)
        return fn(*tensors, *self.rest)

    def kw(self, *tensors):
        return self.call(self.ours, *tensors)

    def pytorch(self, *tensors):
        return self.call(self.torch, *tensors)

    def tensors(self, shape=(4, 6, 33), dtype=torch.float32, grad=False):
        shapes = (shape, *((shape[-1],) if m == "columns" else m for m in self.more))
        made = [randn(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]
        return [t.requires_grad_() for t in made] if grad else made


PUBLIC = {
    "softmax": Public(kw.softmax, F.softmax, rest=(-1,)),
    "softmax dim 1": Public(lambda x: kw.softmax(x, 1), lambda x: F.softmax(x, 1)),
    "gelu": Public(kw.gelu, F.gelu),
    "gelu tanh": Public(
        lambda x: kw.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")
    ),
    "sum": Public(kw.sum, torch.sum),
    "sum dims": Public(lambda x: kw.sum(x, (0, -1)), lambda x: torch.sum(x, (0, -1))),
    "sum keepdim": Public(
        lambda x: kw.sum(x, 1, keepdim=True), lambda x: torch.sum(x, 1, keepdim=True)
    ),
    "rms_norm": Public(
        lambda x, w: kw.rms_norm(x, w.shape, w),
        lambda x, w: F.rms_norm(x, w.shape, w),
        more=("columns",),
    ),
    "rms_norm without weight": Public(
        lambda x: kw.rms_norm(x, x.shape[-1:]), lambda x: F.rms_norm(x, x.shape[-1:])
    ),
    "dropout": Public(kw.dropout, torch_dropout, rest=(0.4,)),
}
# no vmap over a random operator without saying how samples draw; adamw changes its arguments
MAPPED = {k: v for k, v in PUBLIC.items() if k != "dropout"}
publics = pytest.mark.parametrize("public", PUBLIC.values(), ids=PUBLIC)
mapped = pytest.mark.parametrize("public", MAPPED.values(), ids=MAPPED)
dtypes = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)
LAYOUT = {
    "transposed": lambda t: t.mT.contiguous().mT,
    "sliced": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]],
    "permuted": lambda t: t.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "expanded": lambda t: t[:1].expand(t.shape),
}


def test_every_operator_stands_in_the_table():
    forwards = {x.name for x in ladders() if not x.name.endswith(".backward")}
    assert forwards - {"adamw"} == {k.split()[0] for k in PUBLIC}


def with_gradients(fn, tensors, grad=None):
    """(result, gradients) of a function of tensors."""
    leaves = [copy_of(t.detach()).requires_grad_() for t in tensors]
    y = fn(*leaves)
    if grad is None:
        grad = randn(*y.shape, dtype=y.dtype, seed=9)
    return y, torch.autograd.grad(y, leaves, grad)


def agree(ours, theirs, dtype):
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3}
    t = tolerance.get(dtype, 2e-2)
    torch.testing.assert_close(ours, theirs, rtol=t, atol=t)


# autograd


@publics
@dtypes
def test_result_and_gradients_are_pytorchs(public, dtype):
    tensors = public.tensors(dtype=dtype)
    agree(with_gradients(public.kw, tensors), with_gradients(public.pytorch, tensors), dtype)


@publics
@pytest.mark.parametrize("layout", LAYOUT.values(), ids=LAYOUT)
def test_strides_change_no_result(public, layout):
    x, *rest = public.tensors()
    x = layout(x)
    agree(
        with_gradients(public.kw, [x, *rest]), with_gradients(public.pytorch, [x, *rest]), x.dtype
    )


@publics
def test_gradients_agree_with_finite_differences(public):
    assert torch.autograd.gradcheck(public.kw, public.tensors((2, 3, 5), torch.float64, grad=True))


@mapped
@pytest.mark.parametrize("how", ["expanded", "transposed"])
def test_the_incoming_gradient_may_have_any_strides(public, how):
    tensors = public.tensors()
    shape = public.pytorch(*tensors).shape
    grad = torch.ones((), device=DEVICE).expand(shape)
    if how == "transposed" and len(shape) > 1:
        grad = randn(*shape, seed=4).mT.contiguous().mT
    ours, theirs = (with_gradients(f, tensors, grad) for f in (public.kw, public.pytorch))
    agree(ours, theirs, torch.float32)


@mapped
def test_the_incoming_gradient_may_be_the_result_itself(public):
    def twice(fn):
        tensors = public.tensors(grad=True)
        y = fn(*tensors)
        return torch.autograd.grad(y, tensors, y.detach())

    agree(twice(public.kw), twice(public.pytorch), torch.float32)


@publics
def test_without_gradient_nothing_is_saved(public):
    tensors = public.tensors(grad=True)
    with torch.no_grad():
        assert public.kw(*tensors).grad_fn is None
    assert public.kw(*tensors).grad_fn is not None
    with torch.inference_mode():
        assert public.kw(*tensors).is_inference()
    assert not public.kw(*(t.detach() for t in tensors)).requires_grad


@publics
def test_only_the_wanted_gradients_come(public):
    x, *rest = public.tensors()
    y = public.kw(x.requires_grad_(), *rest)
    y.sum().backward()
    assert x.grad is not None
    assert all(t.grad is None for t in rest)


@pytest.mark.parametrize("name", ["softmax", "gelu", "rms_norm", "dropout"])
def test_double_backward_says_that_it_is_not_there(name):
    public = PUBLIC[name]
    x, *rest = public.tensors(grad=True)
    (gx,) = torch.autograd.grad((public.kw(x, *rest) ** 2).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match=rf"{name}.*double backward is not implemented"):
        gx.sum().backward()


def test_sum_is_twice_differentiable_its_gradient_being_a_view():
    x = randn(3, 4).requires_grad_()
    (gx,) = torch.autograd.grad(kw.sum(x**3), x, create_graph=True)
    (ggx,) = torch.autograd.grad(gx.sum(), x)
    torch.testing.assert_close(ggx, 6 * x)


def test_a_saved_result_that_was_changed_is_noticed():
    x = randn(3, 4).requires_grad_()
    y = kw.softmax(x, -1)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@publics
def test_checkpoint_recomputes_the_same(public):
    tensors = public.tensors()
    plain = with_gradients(public.kw, tensors)
    again = with_gradients(lambda *t: checkpoint(public.kw, *t, use_reentrant=False), tensors)
    assert all(map(same_bits, plain[1], again[1]))


@publics
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_gives_pytorchs_dtype(public, dtype):
    for inner in (torch.float32, dtype):
        tensors = public.tensors(dtype=inner, grad=True)
        with torch.autocast(DEVICE, dtype=dtype):
            ours, theirs = public.kw(*tensors), public.pytorch(*tensors)
        assert ours.dtype == theirs.dtype
        (g,) = torch.autograd.grad(ours.sum(), tensors[:1])
        assert g.dtype == inner


@publics
def test_a_parameter_is_a_tensor_and_a_subclass_reaches_the_dispatcher(public):
    class Sub(torch.Tensor):
        pass

    x, *rest = public.tensors()
    want = public.kw(x, *rest)
    agree(public.kw(torch.nn.Parameter(x), *rest), want, x.dtype)
    agree(public.kw(x.as_subclass(Sub), *rest).as_subclass(torch.Tensor), want, x.dtype)


@pytest.mark.parametrize(
    ("ladder", "rung"),
    [
        pytest.param(x, r, id=f"{x.name}.{r.name}")
        for x in ladders()
        for r in x.rungs
        if r.backend == "torch"
    ],
)
def test_float64_stays_float64(ladder, rung):
    op = ladder.operator
    case = next(c for c in thorough_cases(ladder) if c.dtype == torch.float32)
    made = op.inputs(case, DEVICE)
    args = {a.name: made.get(a.name, a.default) for a in op.args}
    want = map_tensors(args, lambda t: t.double() if t.is_floating_point() else t.clone())
    # a step of adamw stays float32
    got = map_tensors(want, lambda t: t.float() if t.numel() == 1 and op.mutated else t.clone())
    results = all_results(op, want, op.reference(**want))
    ours = all_results(op, got, entry_of(ladder, rung)(*got.values()))
    for mine, reference in zip(ours, results, strict=True):
        tolerance = 1e-11 if mine.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(mine.double(), reference, rtol=tolerance, atol=tolerance)


# torch.compile


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
    return first.values()


@pytest.mark.parametrize(
    ("ladder", "case"),
    [pytest.param(x, c, id=f"{x.name}-{c.layout}") for x in ladders() for c in layouts_of(x)],
)
def test_opcheck(ladder, case):
    op = ladder.operator
    made = op.inputs(case, DEVICE)
    args = map_tensors({a.name: made.get(a.name, a.default) for a in op.args}, copy_of)
    overload = getattr(torch.ops.kernelwright, op.torch_name).default
    torch.library.opcheck(overload, tuple(args.values()), {"rung": "native"})


# torch.func


@mapped
@pytest.mark.parametrize("where", [0, 1])
def test_vmap_is_a_loop_over_samples(public, where):
    x, *rest = public.tensors((5, 7, 16))
    got = torch.func.vmap(public.kw, in_dims=(where, *(None for _ in rest)))(x, *rest)
    want = torch.stack([public.pytorch(s, *rest) for s in x.unbind(where)])
    agree(got, want, x.dtype)


def test_vmap_over_every_tensor():
    x, w = randn(5, 3, 16), randn(5, 16, seed=1)
    got = torch.func.vmap(lambda a, b: kw.rms_norm(a, (16,), b))(x, w)
    agree(got, torch.stack([F.rms_norm(a, (16,), b) for a, b in zip(x, w, strict=True)]), x.dtype)


@mapped
def test_gradients_under_vmap(public):
    x, *rest = public.tensors((5, 3, 16))

    def loss(fn):
        return lambda t: (fn(t, *rest) ** 2).sum()

    got = torch.func.vmap(torch.func.grad(loss(public.kw)))(x)
    want = torch.stack([torch.func.grad(loss(public.pytorch))(s) for s in x])
    agree(got, want, x.dtype)


def test_nested_vmap():
    x = randn(3, 4, 5, 6)
    got = torch.func.vmap(torch.func.vmap(lambda t: kw.softmax(t, 0)))(x)
    agree(got, torch.softmax(x, 2), x.dtype)


@mapped
def test_jacobian_by_rows(public):
    x, *rest = public.tensors((1, 2, 6))
    got = torch.func.jacrev(lambda t: public.kw(t, *rest))(x)
    agree(got, torch.func.jacrev(lambda t: public.pytorch(t, *rest))(x), x.dtype)


@publics
def test_forward_mode_raises(public):
    x, *rest = public.tensors()
    with pytest.raises((NotImplementedError, RuntimeError), match=r"(?i)forward.*mode|jvp"):
        torch.func.jvp(lambda t: public.kw(t, *rest), (x,), (torch.ones_like(x),))


# use, explain, errors


@pytest.fixture
def served(monkeypatch):
    """Names of (operator, rung) as they are bound; an unusual shape is bound anew."""
    seen = []

    def spy(ladder, args, rung=None, config=None):
        seen.append((ladder.name, rung))
        return launcher(ladder, args, rung, config)

    launcher = binding.launcher
    monkeypatch.setattr(binding, "launcher", spy)
    return seen


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


def test_unknown_names():
    with pytest.raises(UnknownRung, match=r"rung 'nope': softmax has no such rung; it has manual"):
        kw.use(softmax="nope").__enter__()
    with pytest.raises(UnknownOperator, match=r"operator 'sotfmax': .*softmax"):
        kw.use(sotfmax="native").__enter__()
    with pytest.raises(UnknownOperator, match="nope"):
        kw.explain("nope", randn(3))
    assert torch.equal(kw.softmax(randn(3), 0), torch.softmax(randn(3), 0))  # nothing stays behind


def test_a_named_rung_that_does_not_fit_says_why():
    with (
        kw.use(softmax="triton_row"),
        pytest.raises(Unsupported, match=r"softmax\.triton_row .*dim"),
    ):
        kw.softmax(randn(3, 4, 5), 1)
    with kw.use(softmax="triton_row"), pytest.raises(Unsupported, match=r"float64"):
        kw.softmax(randn(3, 4, dtype=torch.float64), -1)


def test_explain_says_who_serves_and_why_the_others_do_not():
    x = randn(4, 64)
    found = kw.explain("softmax", x, dim=-1)
    assert found.operator == "softmax"
    assert {found.serves.rung.name, *found.others} == set(ladders_by_name()["softmax"].names)
    assert all(found.others.values())
    assert f"softmax: {found.serves.rung.name} serves" in str(found)
    with kw.use(softmax="manual"):
        assert kw.explain("softmax", x, dim=-1).serves.why == "named by kw.use"
    backward = kw.explain("softmax.backward", x, x, -1)
    assert backward.operator == "softmax.backward"


def ladders_by_name():
    return {x.name: x for x in ladders()}


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: kw.softmax(torch.arange(3), 0), TypeError, "input: .*int64"),
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


def test_calls_of_one_address_but_another_kind_do_not_meet_in_the_cache():
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


def test_importing_the_operators_imports_no_kernel_language():
    code = "import kernelwright.ops, sys; print({'triton', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# arguments that change


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


# threads, streams, graphs, sizes


def test_threads_do_not_disturb_each_other():
    xs = [randn(16, 64 + i) for i in range(8)]
    found, errors = {}, []

    def work(i):
        try:
            for rung in ("native", "triton_row") * 3:
                with torch.no_grad():
                    out = torch.ops.kernelwright.softmax(xs[i], -1, rung=rung)
                found.setdefault(i, []).append(out)
        except Exception as e:  # noqa: BLE001 - shown below
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    for i, outs in found.items():
        for out in outs:
            agree(out, torch.softmax(xs[i], -1), torch.float32)


@gpu
@publics
def test_captured_forward_and_backward_replay_on_new_data(public):
    tensors = public.tensors(grad=True)
    rest = public.rest
    grad = torch.ones_like(public.kw(*tensors))

    def step():
        y = public.ours(*tensors, *rest)
        return y, *torch.autograd.grad(y, tensors, grad)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in (5, 6):
        with torch.no_grad():
            for k, t in enumerate(tensors):
                t.copy_(randn(*t.shape, seed=seed + k))
        graph.replay()
        torch.cuda.synchronize()
        if public.ours is not kw.dropout:
            agree(captured[0], public.pytorch(*tensors), torch.float32)
        else:
            kept = captured[0] != 0
            agree(captured[0][kept], (tensors[0] / 0.6)[kept], torch.float32)


@gpu
def test_nothing_is_compiled_during_capture():
    from kernelwright.toolchain import CompiledDuringCapture

    x = randn(3, 1237)
    with kw.use(softmax="triton_row"):
        with (
            pytest.raises(CompiledDuringCapture, match=r"kw\.warmup"),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            kw.softmax(x, -1)
        kw.warmup("softmax", x, -1)
        with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
            y = kw.softmax(x, -1)
        graph.replay()
    agree(y, torch.softmax(x, -1), x.dtype)


@gpu
def test_a_call_runs_on_the_current_stream():
    x = randn(4096, 4096)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x.mul_(2)
        y = kw.softmax(x, -1)
        stream.synchronize()
    agree(y, torch.softmax(x, -1), x.dtype)


@gpu
def test_rows_beyond_two_to_the_31_elements():
    free, _ = torch.cuda.mem_get_info()
    if free < 20 * 2**30:
        pytest.skip("needs 20 GiB of free GPU memory")
    x = torch.zeros(2**17 + 1, 16384, device="cuda", dtype=torch.bfloat16)
    x[-1].normal_()
    y = kw.softmax(x, -1)
    agree(y[-1], torch.softmax(x[-1], -1), x.dtype)
    assert (y[0] == 1 / 16384).all()


@gpu
def test_out_of_memory_leaves_nothing_behind():
    _, total = torch.cuda.mem_get_info()
    x = torch.zeros(total // 8, device="cuda", dtype=torch.uint8).view(torch.bfloat16)
    hog = []
    try:
        while True:
            hog.append(torch.empty(total // 16, device="cuda", dtype=torch.uint8))
    except torch.OutOfMemoryError:
        pass
    with pytest.raises(torch.OutOfMemoryError):
        kw.gelu(x)
    hog.clear()
    assert not kw.gelu(x[:1024]).any()
    assert kw.gelu(x).shape == x.shape

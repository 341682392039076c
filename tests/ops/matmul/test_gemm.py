"""matmul and linear: their public functions, and what a backward computes and keeps."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import kernelwright as kw
from kernelwright.dispatch import ladder
from kernelwright.ops.matmul.gemm import derivatives, spec
from support.publics import DEVICE, fullgraph, randn

MATMUL, LINEAR = ladder("matmul"), ladder("linear")
SHAPES = (
    ((5,), (5,)),
    ((5,), (5, 3)),
    ((4, 5), (5,)),
    ((4, 5), (5, 3)),
    ((2, 4, 5), (5, 3)),
    ((2, 4, 5), (5,)),
    ((5,), (2, 5, 3)),
    ((4, 5), (2, 5, 3)),
    ((2, 4, 5), (2, 5, 3)),
    ((2, 1, 4, 5), (6, 5, 3)),
    ((2, 6, 4, 5), (5, 3)),
    ((1, 4, 5), (7, 5, 3)),
    ((0, 5), (5, 3)),
    ((4, 0), (0, 3)),
    ((0,), (0,)),
    ((2, 4, 0), (0, 3)),
    ((0, 4, 5), (0, 5, 3)),
    ((3, 4, 5), (5, 0)),
)
EPILOGUES = [
    (activation, gate, residual)
    for activation in (None, "relu", "gelu", "gelu_tanh", "silu")
    for gate in (False, True)
    for residual in (False, True)
]


class Products(TorchDispatchMode):
    """The shapes of the products that reach the dispatcher."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name() == "kernelwright::matmul":
            self.seen.append((tuple(args[0].shape), tuple(args[1].shape)))
        return func(*args, **(kwargs or {}))


def torch_linear(x, w, b, activation, gate, residual):
    z = F.linear(x, w, b)
    act = {
        None: lambda z: z,
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
        "silu": F.silu,
    }[activation]
    y = act(z) if gate is None else act(z) * gate
    return y if residual is None else y + residual


# meaning


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_matmul_means_what_torch_means(a, b):
    tensors = [randn(*s, dtype=torch.float64, seed=i) for i, s in enumerate((a, b))]
    ours, theirs = ([t.clone().requires_grad_() for t in tensors] for _ in range(2))
    y, want = kw.matmul(*ours), torch.matmul(*theirs)
    torch.testing.assert_close(y, want)
    g = randn(*want.shape, dtype=torch.float64, seed=5)
    torch.testing.assert_close(
        torch.autograd.grad(y, ours, g), torch.autograd.grad(want, theirs, g)
    )


@pytest.mark.parametrize("leading", [(), (4,), (2, 4), (2, 1, 4), (0,), (3, 0)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_linear_means_what_torch_means(leading, bias):
    x, w = randn(*leading, 6, dtype=torch.float64), randn(3, 6, dtype=torch.float64, seed=1)
    b = randn(3, dtype=torch.float64, seed=2) if bias else None
    torch.testing.assert_close(kw.linear(x, w, b), F.linear(x, w, b))
    one = kw.linear(x, w[0], b[0] if bias else None)
    torch.testing.assert_close(one, x @ w[0] + (b[0] if bias else 0))


@pytest.mark.parametrize(("activation", "gate", "residual"), EPILOGUES)
def test_epilogues_and_their_gradients(activation, gate, residual):
    shapes = [(2, 3, 6), (5, 6), (5,)] + [(2, 3, 5)] * (gate + residual)
    leaves = [randn(*s, dtype=torch.float64, seed=i).requires_grad_() for i, s in enumerate(shapes)]

    def split(ts):
        extra = list(ts[3:])
        return (*ts[:3], extra.pop(0) if gate else None, extra.pop(0) if residual else None)

    def ours(*ts):
        x, w, b, g, r = split(ts)
        return kw.linear(x, w, b, activation=activation, gate=g, residual=r)

    x, w, b, g, r = split(leaves)
    torch.testing.assert_close(ours(*leaves), torch_linear(x, w, b, activation, g, r))
    assert torch.autograd.gradcheck(ours, leaves)


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_second_derivatives(activation):
    shapes = ((3, 4), (5, 4), (5,), (3, 5))
    leaves = [randn(*s, dtype=torch.float64, seed=i).requires_grad_() for i, s in enumerate(shapes)]
    assert torch.autograd.gradgradcheck(
        lambda x, w, b, g: kw.linear(x, w, b, activation=activation, gate=g), leaves
    )
    assert torch.autograd.gradgradcheck(kw.matmul, [leaves[0], leaves[1].detach().t()])


def test_between_product_and_result_nothing_is_rounded():
    """native rounds the product, the activation and the gate; the reference shows by how much."""
    case = next(c for c in spec.LINEAR_CASES if c.dtype == torch.bfloat16 and c.param("gate"))
    args = spec.linear_inputs(case, "cpu")
    exact = spec.linear_reference(
        **{k: v.double() if isinstance(v, torch.Tensor) else v for k, v in args.items()}
    )[0]
    from kernelwright.ops.matmul.gemm import torch_rungs

    once = torch_rungs.manual_linear(**args)[0]
    native = torch_rungs.native_linear(**args)[0]
    assert (once.double() - exact).norm() < 0.8 * (native.double() - exact).norm()


def test_nan_goes_where_torch_lets_it_go():
    x, w = randn(3, 4), randn(5, 4, seed=1)
    x[1, 2] = float("nan")
    for activation in spec.ACTIVATIONS[1:]:
        y = kw.linear(x, w, activation=activation)
        assert torch.equal(y.isnan().any(1), torch.tensor([False, True, False], device=DEVICE))


# errors


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kw.matmul(3, randn(2)), TypeError, "input: must be a tensor"),
        (lambda: kw.matmul(randn(2), torch.ones(2, dtype=torch.int64)), TypeError, "other: must"),
        (lambda: kw.matmul(randn(2), randn(2).half()), TypeError, "other: is torch.float16"),
        (
            lambda: kw.matmul(torch.zeros(()), randn(2)),
            ValueError,
            "input: must have one dimension",
        ),
        (lambda: kw.matmul(randn(2, 3), randn(4, 3)), ValueError, r"other: .*\(4, 3\)"),
        (lambda: kw.matmul(randn(2, 2, 3), randn(3, 3, 2)), ValueError, "other: .*broadcast"),
        (lambda: kw.linear(randn(2, 3), randn(4, 5)), ValueError, r"weight: .*\(N, 3\)"),
        (lambda: kw.linear(randn(2, 3), randn(4, 3), randn(3)), ValueError, r"bias: .*\(4,\)"),
        (
            lambda: kw.linear(randn(2, 3), randn(4, 3), gate=randn(2, 3)),
            ValueError,
            r"gate: .*\(2, 4\)",
        ),
        (
            lambda: kw.linear(randn(2, 3), randn(4, 3), residual=randn(1, 4)),
            ValueError,
            r"residual: .*\(2, 4\)",
        ),
        (
            lambda: kw.linear(randn(2, 3), randn(4, 3), activation="mish"),
            ValueError,
            "activation: 'mish' is none of relu, gelu, gelu_tanh, silu",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# what a backward computes, keeps and returns


def test_only_wanted_gradients_are_computed():
    x, w = randn(4, 6), randn(3, 6, seed=1).requires_grad_()
    y = kw.linear(x, w, activation="gelu")
    with Products() as products:
        y.sum().backward()
    assert products.seen == [((3, 4), (4, 6))]


def test_operands_are_kept_only_for_gradients_that_are_wanted():
    """The input of a layer whose weight is frozen is not saved."""
    x, w = randn(4, 6).requires_grad_(), randn(3, 6, seed=1)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        kw.linear(x, w, activation="relu")
        kw.matmul(x, w.t())
    pointers = {t.data_ptr() for t in kept}
    assert w.data_ptr() in pointers and x.data_ptr() not in pointers


def test_relu_keeps_its_result_and_no_more():
    x, w = randn(4, 6).requires_grad_(), randn(3, 6, seed=1).requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = kw.linear(x, w, activation="relu")
    sizes = sorted(t.numel() for t in kept if t.numel())
    assert sizes == sorted([x.numel(), w.numel(), y.numel()])
    assert y.data_ptr() in {t.data_ptr() for t in kept}


def test_a_gradient_lies_in_memory_as_its_operand():
    x, w = randn(4, 6), randn(3, 6, seed=1).requires_grad_()
    by_columns = randn(3, 6, seed=1).t().requires_grad_()
    for y, leaf in ((kw.linear(x, w), w), (kw.matmul(x, by_columns), by_columns)):
        y.sum().backward()
        assert leaf.grad.stride() == leaf.stride()


def test_a_batch_times_one_matrix_is_one_product_where_its_rows_lie_so():
    x, w = randn(3, 4, 6), randn(6, 5, seed=1)
    for t, expected in (
        (x, ((12, 6), (6, 5))),
        (x[:, :2], ((3, 2, 6), (3, 6, 5))),  # no copy: w once for each
        (x[:1], ((4, 6), (6, 5))),
    ):
        with Products() as products:
            y = kw.matmul(t, w)
        assert products.seen == [expected]
        torch.testing.assert_close(y, t @ w)


@pytest.mark.parametrize("device", ["meta", "fake"])
def test_shapes_without_data(device):
    def run(where):
        x, w, b = (torch.empty(s, device=where) for s in ((2, 3, 6), (5, 6), (5,)))
        return kw.linear(x, w, b, activation="silu"), kw.matmul(x, w.t())

    if device == "meta":
        results = run("meta")
    else:
        with FakeTensorMode():
            results = run(DEVICE)
    assert [tuple(t.shape) for t in results] == [(2, 3, 5), (2, 3, 5)]
    assert all(t.is_contiguous() for t in results)


def test_a_compiled_function_follows_the_setting_of_tf32():
    compiled = fullgraph(lambda x: x + derivatives._allowed())
    x = torch.zeros(1)
    found = []
    try:
        for setting in ("highest", "high", "highest"):
            torch.set_float32_matmul_precision(setting)
            found.append(compiled(x).item())
    finally:
        torch.set_float32_matmul_precision("highest")
    assert found == [0, 1, 0]


def test_what_is_never_dispatched_is_in_the_folder_of_teaching_steps():
    for lad in (MATMUL, LINEAR):
        for rung in (r for r in lad.rungs if r.is_gpu):
            files = [lad.folder / source for source in rung.sources] or [lad.module_of(rung)]
            for path in files:
                assert (path.parent.name == "teaching") == (not rung.dispatchable), path
                assert path.is_file()

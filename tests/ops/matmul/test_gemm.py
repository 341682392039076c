"""matmul and linear: their public functions, what a backward computes and keeps, and launches."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import kernelwright as kw
from kernelwright.contract import H200, Cost, TensorSpec
from kernelwright.contract.compare import compare
from kernelwright.dispatch import ladder, launcher, plan_of
from kernelwright.machine import datasheet
from kernelwright.ops.matmul.gemm import cuda, derivatives, heuristics, spec
from kernelwright.ops.matmul.gemm.tiling import order_of
from kernelwright.toolchain import nvrtc
from kernelwright.workbench.bench.bottleneck import bound
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.records import Record
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
    """Shapes of the products that reach the dispatcher."""

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
    """The input of a layer whose weight is frozen is not."""
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


# layouts and launches


def matrix(m, n, order="N", dtype=torch.float32, batch=None, pad=0):
    rows, cols = (m, n) if order == "N" else (n, m)
    line = cols + pad
    strides = (line, 1) if order == "N" else (1, line)
    shape = (m, n)
    if batch is not None:
        shape, strides = (batch, m, n), (rows * line, *strides)
    return TensorSpec(shape, strides, dtype)


@pytest.mark.parametrize(
    ("t", "k_dim", "name", "line"),
    [
        (matrix(8, 12), -1, "kAlongK", 12),
        (matrix(8, 12, "T"), -1, "kAcrossBy16B", 8),
        (matrix(7, 12, "T"), -1, "kAcross", 7),
        (matrix(8, 12, "T", pad=1), -1, "kAcross", 9),
        (matrix(8, 12), -2, "kAcrossBy16B", 12),
        (matrix(8, 12, "T"), -2, "kAlongK", 8),
        (TensorSpec((8, 12), (12, 1), torch.float32, align=4), -2, "kAcross", 12),
        (TensorSpec((1, 12), (99, 1), torch.float32), -1, "kAlongK", 99),
        (TensorSpec((8, 12), (0, 1), torch.float32), -1, "kAlongK", 0),
    ],
)
def test_orders_of_operands(t, k_dim, name, line):
    order = order_of(t, k_dim)
    assert (order.name, order.line) == (name, line)


def test_an_operand_without_neighbours_has_no_order():
    assert order_of(TensorSpec((8, 12), (24, 2), torch.float32), -1) is None
    args = {"a": TensorSpec((8, 12), (24, 2), torch.float32), "b": matrix(12, 8)}
    assert "neighbours along neither" in heuristics.fits_tuned(H200, **args)


def test_any_order_of_operands_is_planned_without_a_copy():
    for orders in ("NN", "NT", "TN", "TT"):
        a, b = matrix(256, 384, orders[0], batch=3), matrix(384, 128, orders[1], batch=3)
        assert heuristics.fits_tuned(H200, a, b) is None
        (launch,) = plan_of(MATMUL, MATMUL.rung("cuda_tuned"), {"a": a, "b": b}).launches
        assert launch.args[:3] == ("a", "b", "c")
        lines = [s.value for s in launch.args[6:8]]
        assert lines == [384 if orders[0] == "N" else 256, 128 if orders[1] == "N" else 384]


def test_every_tile_fits_a_block_and_counts_its_threads():
    for config in heuristics.TUNED_CONFIGS:
        assert cuda.shared_of(config, "kAlongK", "kAlongK") * config["blocks"] <= 227 * 1024
        threads = (
            config["warp_rows"] * config["warp_cols"] // (config["each_rows"] * config["each_cols"])
        )
        assert threads == 32
        assert config["rows"] % config["warp_rows"] == config["cols"] % config["warp_cols"] == 0
        assert config["depth"] % 2 == 0  # values for the next step alternate between two places


@pytest.mark.parametrize(
    "config", heuristics.TUNED_CONFIGS, ids=lambda c: f"{c['rows']}x{c['cols']}"
)
def test_no_tile_spills(config):
    plan = cuda.tuned(H200, config, matrix(512, 512), matrix(512, 512, "T"))
    log = nvrtc.compile(plan.launches[0].kernel, H200.arch).log
    assert re.findall(r"(\d+) bytes spill", log) == ["0", "0"]


def test_smaller_tiles_where_there_are_few():
    def tile(m, n, orders="NN"):
        config = heuristics.choose_tuned(H200, matrix(m, 64, orders[0]), matrix(64, n, orders[1]))
        return config["rows"], config["cols"]

    assert tile(8192, 8192) == (128, 256)
    assert tile(8192, 8192, "TN") == (256, 128)
    assert tile(8192, 8192, "NT") == (128, 128)
    assert tile(1024, 1024) == (64, 64)
    assert tile(64, 64) == (32, 32)


def test_blocks_of_a_batch_are_one_line_of_blocks():
    a, b = matrix(300, 64, batch=70_000), matrix(64, 300, batch=70_000)
    config = heuristics.TUNED_CONFIGS[2]
    (launch,) = cuda.tuned(H200, config, a, b).launches
    assert launch.grid == (70_000 * 9, 1, 1)


@pytest.mark.parametrize(
    ("rung", "args", "reason"),
    [
        ("cuda_naive", {"a": matrix(8, 8, dtype=torch.bfloat16)}, "is not float32"),
        ("cuda_naive", {"a": matrix(8, 8, batch=2)}, "a batch"),
        ("cuda_shared", {"b": matrix(8, 8, "T")}, "b: its rows are not contiguous"),
        ("cuda_vec16", {"a": matrix(8, 8, pad=1)}, "a: its rows are not multiples of 16 bytes"),
        ("cuda_double", {"b": matrix(8, 8, pad=1)}, "b: its rows are not multiples of 16 bytes"),
        ("cuda_tuned", {"a": matrix(8, 8, dtype=torch.float64)}, "is not float32"),
        ("cuda_wmma", {}, "may not be rounded for tensor cores"),
        ("cuda_mma", {}, "is not float16 or bfloat16"),
        ("triton_block", {"a": matrix(8, 8, dtype=torch.float64)}, "is not float32, float16"),
    ],
)
def test_what_does_not_fit_is_said(rung, args, reason):
    given = {"a": matrix(8, 8), "b": matrix(8, 8), **args}
    assert reason in MATMUL.rung(rung).supports(H200, **given)


def test_small_tiles_add_along_a_long_k_in_two_levels():
    """A chain of 2,048 additions errs several times as much."""
    a, b = randn(4, 2048), randn(2048, 8, seed=1)
    exact = a.double() @ b.double()
    args = {"a": a, "b": b, "tf32": False}
    chain, short = (
        (launcher(MATMUL, args, "cuda_tuned", config)(a, b, False) - exact).norm()
        for config in (heuristics.TUNED_CONFIGS[4], heuristics.TUNED_CONFIGS[-1])
    )
    assert short < 0.5 * chain


# cost and roofs


def test_cost_counts_an_expanded_operand_once_and_products_by_kind():
    a = TensorSpec((4, 8, 16), (128, 16, 1), torch.bfloat16)
    b = TensorSpec((4, 16, 32), (0, 32, 1), torch.bfloat16)
    cost = spec.cost(a, b)
    assert cost.reads == (2 * 4 * 8 * 16, 2 * 16 * 32)
    assert cost.writes == (2 * 4 * 8 * 32,)
    assert cost.products == {"bf16": 2 * 4 * 8 * 16 * 32} and cost.flops == 2 * 4 * 8 * 16 * 32
    assert set(spec.cost(matrix(4, 4), matrix(4, 4), tf32=True).products) == {"tf32"}


def record(rung, cold, **more):
    return Record("matmul", rung, CASE.id, "nvidia-h200", "run", "pass", cold=(cold,), **more)


CASE = next(c for c in spec.CASES if c.use == "bench" and c.shape == (4096, 4096))


def test_products_are_held_against_the_rate_of_the_same_runs_products():
    operations = 2 * 4096**3
    records = [
        record("cuda_tuned", 400.0, bytes=10**6, flops=operations),
        record("roof:r2w1", 40.0, bytes=10**6),
        # 8192 cubed in 1,600 us: 4096 cubed would take 200
        record(
            "roof:bf16",
            1600.0,
            flops=8 * operations,
            config={"size": 8192, "operations": operations},
        ),
    ]
    table = metrics.table(MATMUL, "nvidia-h200", CASE.id, records)
    row = next(r for r in table.rows if r.name == "cuda_tuned")
    assert row.of_roof == pytest.approx(0.5)
    assert table.roof.rung == "roof:r2w1" and [r.rung for r in table.products] == ["roof:bf16"]
    assert metrics.as_json(table)["roof_tflops"] == {"bf16": pytest.approx(687.2, rel=1e-3)}
    memory_bound = [
        record("cuda_tuned", 50.0, bytes=10**6, flops=operations // 10**4),
        *records[1:2],
    ]
    row = metrics.table(MATMUL, "nvidia-h200", CASE.id, memory_bound).rows
    assert next(r for r in row if r.name == "cuda_tuned").of_roof == pytest.approx(0.8)


def test_what_binds_a_product():
    cost, cpu = Cost((8,), (8,), 10**9, {"bf16": 10**9}), torch.device("cpu")
    assert bound(100.0, 10.0, 1.0, cost, cpu, 80.0) == "compute"
    assert bound(100.0, 10.0, 1.0, cost, cpu, 50.0) == "latency"
    assert bound(100.0, 80.0, 1.0, cost, cpu, 90.0) == "bandwidth"


def test_datasheets_are_found_by_the_start_of_a_machines_name():
    assert datasheet.products("nvidia-h200", "bf16") == 989.4
    assert datasheet.products("nvidia-a100-sxm4-80gb", "tf32") == 156.0
    assert datasheet.products("cpu-x86_64-2", "f32") is None


def test_the_noise_of_a_product_finds_a_missing_term():
    """One of 512 products left out of each sum is no rounding."""
    a, b = randn(16, 512), randn(512, 8, seed=1)
    exact, noise = a.double() @ b.double(), spec.noise(a, b)[0]
    assert compare(a @ b, a @ b, exact, noise=noise).ok
    without = a[:, 1:] @ b[1:]
    assert not compare(without, a @ b, exact, noise=noise).ok

"""matmul and linear: operand layouts, tiles, launches, costs and roofs."""

import re

import pytest
import torch

from kernelwright.contract import H200, Cost, TensorSpec
from kernelwright.contract.compare import compare
from kernelwright.dispatch import ladder, launcher, plan_of
from kernelwright.machine import datasheet
from kernelwright.ops.matmul.gemm import cuda, heuristics, spec
from kernelwright.ops.matmul.gemm.tiling import order_of
from kernelwright.toolchain import nvrtc
from kernelwright.workbench.bench.bottleneck import bound
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.records import Record
from support.publics import randn

MATMUL = ladder("matmul")
SPILLS = heuristics.TUNED_CONFIGS[4]


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
def test_no_tile_spills(config, request):
    if config == SPILLS and nvrtc.version() >= (13, 2):
        reason = "NVRTC 13.2 spills 4 to 8 bytes; the recorded times are those of 13.0"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
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
    """A single chain of 2,048 additions has an error several times as large."""
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
    """Leaving one of 512 products out of each sum is more than rounding error."""
    a, b = randn(16, 512), randn(512, 8, seed=1)
    exact, noise = a.double() @ b.double(), spec.noise(a, b)[0]
    assert compare(a @ b, a @ b, exact, noise=noise).ok
    without = a[:, 1:] @ b[1:]
    assert not compare(without, a @ b, exact, noise=noise).ok

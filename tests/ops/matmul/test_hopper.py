"""The rungs for Hopper's tensor cores, as far as they go without a GPU: what their kernels compile
to, whether their tensor maps and grids describe the product, what the cost model chooses."""

import itertools
import random
import re

import pytest
import torch

from kernelwright.contract import H200, CudaKernel, Gpu, Scalar, TensorMap, TensorSpec
from kernelwright.ops.matmul.gemm.hopper import choice, cuda, tiling
from kernelwright.ops.matmul.gemm.hopper import ladder as hopper
from kernelwright.ops.matmul.gemm.ladder import LADDER, LADDER_LINEAR
from kernelwright.toolchain import binary, nvrtc
from support.hopper import holds

BF16 = torch.bfloat16
LAYOUTS = ("NT", "NN", "TN", "TT")
EPILOGUES = (
    {"bias": True, "activation": "gelu_tanh"},
    {"bias": True, "activation": "gelu", "keep": True},
    {"activation": "silu", "gate": True},
    {"bias": True, "residual": True},
    {"bias": True, "activation": "relu", "gate": True, "residual": True, "keep": True},
)


def entry(rung):
    return getattr(cuda, rung.entry.split(":")[1])


def spec(rows, cols, by_columns=False, batch=None, dtype=BF16):
    strides = (1, rows) if by_columns else (cols, 1)
    if batch is None:
        return TensorSpec((rows, cols), strides, dtype)
    return TensorSpec((batch, rows, cols), (rows * cols, *strides), dtype)


def product(m, n, k, layout="NT", batch=None, dtype=BF16):
    a = spec(m, k, layout[0] == "T", batch, dtype)
    return {"a": a, "b": spec(k, n, layout[1] == "T", batch, dtype)}


def linear(m, n, k, bias=False, activation="none", gate=False, residual=False, keep=False):
    return {
        "x": spec(m, k),
        "weight": spec(n, k),
        "bias": TensorSpec.contiguous((n,), BF16) if bias else None,
        "gate": spec(m, n) if gate else None,
        "residual": spec(m, n) if residual else None,
        "activation": activation,
        "keep": keep,
    }


# --- what they compile to ----------------------------------------------------------------------


def _products():
    """Every config in one layout, and the first config of each rung in all layouts."""
    for rung in hopper.RUNGS:
        for i in range(len(rung.configs)):
            for layout in LAYOUTS if i == 0 else LAYOUTS[i % 4 :][:1]:
                yield pytest.param(rung, i, layout, id=f"{rung.name}-{i}-{layout}")


def _epilogues():
    """Every config with one epilogue, and the first of each rung with all that it supports."""
    for rung in hopper.LINEAR_RUNGS:
        for i, j in itertools.product(range(len(rung.configs)), range(len(EPILOGUES))):
            args = linear(1000, 2056, 1032, **EPILOGUES[j])
            if (i == 0 or i % 5 == j) and rung.supports(H200, **args) is None:
                yield pytest.param(rung, i, j, id=f"{rung.name}-{i}-{j}")


@pytest.mark.cover
@pytest.mark.parametrize(("rung", "config", "layout"), list(_products()))
def test_sums_stay_in_registers_and_products_do_not_wait(compiler, rung, config, layout):
    args = product(1000, 2056, 1032, layout)
    (step,) = entry(rung)(H200, rung.configs[config], **args).launches
    holds(step)


@pytest.mark.long
@pytest.mark.cover
@pytest.mark.parametrize(("rung", "config", "epilogue"), list(_epilogues()))
def test_so_they_do_with_an_epilogue(compiler, rung, config, epilogue):
    args = linear(1000, 2056, 1032, **EPILOGUES[epilogue])
    (step,) = entry(rung)(H200, rung.configs[config], **args).launches
    holds(step)


SERIAL = """#include "kw/hopper/wgmma.cuh"
__global__ void serial(float *y, unsigned long long a, unsigned long long b, int n) {
  float d[32];
  for (int i = 0; i < n; i++) {
    kw::wgmma_fence();
    kw::Wgmma<__nv_bfloat16, 64>::mma<true, true>(d, a + i, b, i);
    kw::wgmma_commit();
    d[0] *= 2;  // before it is there
  }
  kw::wgmma_wait<0>();
  for (int i = 0; i < 32; i++) y[i * 128 + threadIdx.x] = d[i];
}
"""


def test_products_that_wait_for_each_other_are_seen(compiler, tmp_path):
    source = tmp_path / "serial.cu"
    source.write_text(SERIAL)
    found = binary.serialized_products(nvrtc.compile(CudaKernel(source, "serial"), H200.arch))
    assert found and all("serialized" in line for line in found)


# --- what their launches describe --------------------------------------------------------------


def numbers(step):
    return [a.value for a in step.args if isinstance(a, Scalar) and a.ctype == "i32"]


def box(map, tensor, at):
    """The box that the copy engine copies: `at` counts from the contiguous dimension."""
    memory = torch.as_strided(tensor, (tensor.untyped_storage().size() // 2,), (1,), 0)
    strides = (1, *(s // 2 for s in map.strides))
    places = [torch.arange(b) + c for b, c in zip(map.box, at, strict=True)]
    inside = [(p >= 0) & (p < n) for p, n in zip(places, map.shape, strict=True)]
    where, there = torch.zeros((), dtype=torch.long), torch.ones((), dtype=torch.bool)
    for p, s, i in zip(places, strides, inside, strict=True):  # innermost last
        where, there = (
            where + (p * s).view(-1, *[1] * where.ndim),
            there & i.view(-1, *[1] * there.ndim),
        )
    found = memory[where.clamp(0, memory.numel() - 1).flatten()].view(where.shape)
    return torch.where(there, found, torch.zeros((), dtype=found.dtype))


def operand_tile(map, tensor, k_major, width, first, k, batch, share):
    """A stage's rows of k, assembled from the boxes that blocks load for each other."""
    if k_major:
        rows = map.box[1]
        parts = [box(map, tensor, (k, first + p * rows, batch))[0] for p in range(share)]
        return torch.cat(parts)
    blocks = []
    for w in range(0, width, 64):
        deep = map.box[1]
        parts = [box(map, tensor, (first + w, k + p * deep, batch))[0] for p in range(share)]
        blocks.append(torch.cat(parts).mT)
    return torch.cat(blocks)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("name", "number", "m", "n", "k", "batch"),
    [
        ("wgmma_persistent", 0, 304, 520, 136, None),
        ("wgmma_persistent", 5, 40, 72, 72, 3),
        ("wgmma_multicast", 1, 304, 520, 136, None),
        ("wgmma_pingpong", 1, 304, 520, 136, None),
        ("wgmma_pingpong", 2, 40, 72, 72, 3),
        ("wgmma_split", 0, 304, 520, 136, None),
    ],
)
def test_boxes_bring_the_operands(layout, name, number, m, n, k, batch):
    """Every tile's slices of A and B are the product's rows, with zeros outside, and have as many
    bytes as the barrier waits for."""
    rung = LADDER.rung(f"cuda_{name}")
    config = rung.configs[number]
    specs = product(m, n, k, layout, batch)
    step = entry(rung)(H200, config, **specs).launches[0]
    a, b = (torch.randn(s.numel()).to(BF16).as_strided(s.shape, s.strides) for s in specs.values())
    map_a, map_b = [x for x in step.args if isinstance(x, TensorMap)][:2]
    expected = numbers(step)[5 if name == "wgmma_split" else 7]
    high, wide = config.get("rows", 1), config.get("cols", 1)
    wanted = (
        ("A", map_a, a, layout[0] == "N", config["bm"], wide, m),
        ("B", map_b, b.mT, layout[1] == "T", config["bn"], high, n),
    )
    for k0, item in itertools.product(range(0, k, 64), range(batch or 1)):
        received = 0
        for _, map, t, k_major, width, share, size in wanted:
            for first in range(0, size, width):
                tile = operand_tile(map, t, k_major, width, first, k0, item, share)
                whole = torch.zeros((min(width, len(tile)), 64), dtype=BF16)
                real = (t[item] if batch else t)[first : first + width, k0 : k0 + 64]
                whole[: real.shape[0], : real.shape[1]] = real
                assert torch.equal(tile[:width], whole)  # some boxes of 64 extend beyond a tile
            received += tile.numel() * 2
        assert received == expected


def test_one_matrix_for_a_batch_has_no_batch_in_its_map():
    specs = product(64, 128, 64, batch=3)
    one = TensorSpec(specs["b"].shape, (0, *specs["b"].strides[1:]), BF16)
    step = cuda.pingpong(H200, tiling.PINGPONG_CONFIGS[0], specs["a"], one).launches[0]
    map_a, map_b, map_c = [x for x in step.args if isinstance(x, TensorMap)]
    assert (map_a.shape[2], map_b.shape[2], map_c.shape[2]) == (3, 1, 3)
    assert numbers(step)[-2:] == [1, 0]


@pytest.mark.parametrize("rung", [r for r in hopper.RUNGS if r.dispatchable], ids=lambda r: r.name)
def test_a_grid_has_whole_clusters_and_tiles_for_all_of_c(rung):
    for config in rung.configs:
        step = entry(rung)(H200, config, **product(1000, 776, 904)).launches[0]
        assert step.grid[0] % step.kernel.cluster == 0
        rows, cols = numbers(step)[2:4]
        assert rows * config.get("rows", 1) * config["bm"] >= 1000
        assert cols * config.get("cols", 1) * config["bn"] >= 776
        blocks = config.get("split", 1) * rows * cols
        assert step.grid[0] <= blocks * step.kernel.cluster


# --- which products they take ------------------------------------------------------------------

A, B = spec(64, 72), spec(72, 128)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"a": spec(64, 72, dtype=torch.float32), "b": spec(72, 128, dtype=torch.float32)}, "not"),
        ({"b": spec(72, 128, dtype=torch.float16)}, "not both"),
        ({"b": spec(72, 132)}, "132 results"),
        ({"b": spec(72, 0)}, "empty"),
        ({"a": spec(2**31 - 1, 72)}, "no room in an int32"),
        ({"a": spec(2**29, 72), "b": spec(72, 2**24)}, "tiles do not fit"),
        ({"a": TensorSpec((64, 72), (72, 1), BF16, align=8)}, "a: its memory starts off"),
        ({"a": TensorSpec((64, 72), (76, 1), BF16)}, "a: strides"),
        ({"a": TensorSpec((64, 72), (0, 1), BF16)}, "a: strides"),
        ({"a": TensorSpec((64, 72), (144, 2), BF16)}, "a: strides"),
        ({"b": TensorSpec((72, 128), (1, 73), BF16)}, "b: strides"),
        ({"a": TensorSpec((2, 64, 72), (4612, 72, 1), BF16), "b": spec(72, 128, batch=2)},
         "a: matrices 4612 elements apart"),
    ],
)  # fmt: skip
def test_a_product_that_the_copy_engine_cannot_read_is_refused(changed, reason):
    args = {"a": A, "b": B, **changed}
    for rung in hopper.RUNGS[:-1]:
        assert re.search(reason, rung.supports(H200, **args))


def test_an_other_architecture_is_refused():
    b200 = Gpu((10, 0), 148, 232_448, 132_120_576, "NVIDIA B200")
    assert all("10.0" in r.supports(b200, a=A, b=B) for r in hopper.RUNGS[:-1])


@pytest.mark.parametrize(
    "args",
    [
        {"a": A, "b": B},
        {"a": spec(1, 72), "b": B},
        {"a": TensorSpec((1, 72), (5, 1), BF16), "b": B},
        {"a": TensorSpec((64, 1), (1, 64), BF16), "b": spec(1, 128)},
        {"a": TensorSpec((64, 70), (72, 1), BF16), "b": spec(70, 128)},
        {"a": spec(64, 72, batch=2), "b": TensorSpec((2, 72, 128), (0, 128, 1), BF16)},
    ],
)
def test_what_has_aligned_rows_is_taken(args):
    assert tiling.fits(H200, **args) is None
    cuda.pingpong(H200, tiling.PINGPONG_CONFIGS[0], **args)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("bias", {"bias": TensorSpec((128,), (2,), BF16)}),
        ("bias", {"bias": TensorSpec((128,), (1,), BF16, align=2)}),
        ("gate", {"gate": TensorSpec((64, 128), (132, 1), BF16)}),
        ("residual", {"residual": TensorSpec((64, 128), (128, 1), BF16, align=8)}),
        ("residual", {"residual": TensorSpec((64, 128), (1, 64), BF16)}),
        ("residual", {"residual": TensorSpec((64, 128), (0, 1), BF16)}),
        ("x", {"x": TensorSpec((64, 500), (501, 1), BF16), "weight": spec(128, 500)}),
        ("weight", {"weight": TensorSpec((128, 72), (75, 1), BF16)}),
    ],
)
def test_an_epilogue_that_cannot_be_read_is_refused(name, changed):
    args = {**linear(64, 128, 72), **changed}
    assert tiling.fits_linear(H200, **args).startswith(f"{name}:")


# --- which is chosen ---------------------------------------------------------------------------


def test_the_model_chooses_for_any_product():
    generator = random.Random(0)
    for _ in range(60):
        m, n, k = (8 * int(2 ** generator.uniform(0, 11)) for _ in range(3))
        args = product(m, n, k, generator.choice(LAYOUTS), generator.choice((None, None, 4)))
        found = choice.order(H200, **args)
        assert found
        for name in found if found != ("native",) else ():
            rung = LADDER.rung(name)
            assert rung.supports(H200, **args) is None
            config = rung.heuristic(H200, **args)
            assert config in rung.configs
            entry(rung)(H200, config, **args)
        with_epilogue = linear(m, n, k, bias=True, activation="gelu", keep=True)
        for name in choice.order_linear(H200, **with_epilogue):
            if name != "native":
                rung = LADDER_LINEAR.rung(name)
                assert rung.supports(H200, **with_epilogue) is None
                assert rung.heuristic(H200, **with_epilogue) in rung.configs


def test_what_no_rung_takes_has_no_order():
    assert choice.order(H200, A, spec(72, 132)) == ()
    assert choice.order_linear(H200, **linear(64, 132, 72)) == ()


def test_odd_leading_dimensions_cost_more():
    """Rows that straddle cache lines took at least twice the time in measurements."""
    config = tiling.PINGPONG_CONFIGS[0]
    straight = choice.product(*product(4096, 4096, 4096).values())
    odd = choice.product(*product(4096, 4096, 4104).values())
    times = [choice.us(H200, "cuda_wgmma_pingpong", config, p) for p in (straight, odd)]
    assert times[1] > 1.3 * times[0]


def test_few_tiles_share_k():
    """Thirty-two tiles of 128 x 128 leave three quarters of the machine idle."""
    p = choice.product(*product(128, 4096, 14336).values())
    times = {name: choice.best(name, H200, p)[0] for name in tiling.CONFIGS}
    assert min(times, key=times.__getitem__) == "cuda_wgmma_split"

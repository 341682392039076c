"""Faults planted in copies of the Hopper matmul rungs are found by the checks, or the product is
wrong, or the launch stops; the rungs themselves have no findings."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import kernelwright
from kernelwright import emulator
from kernelwright.contract import CudaKernel, TensorSpec
from kernelwright.dispatch import ladder, plan_of
from kernelwright.emulator.checks import CHECKS, Watch
from kernelwright.toolchain import cpu_executor

pytestmark = [
    pytest.mark.skipif(bool(emulator.missing("watched")), reason="nothing is watched here"),
    pytest.mark.long,  # a compilation each
]
ROOT = Path(kernelwright.__file__).parent
SHAPE = (256, 256, 448)  # m, n, k: 7 slices in rings of 5 and 4 stages
PINGPONG, TMA = "cuda_wgmma_pingpong", "cuda_wgmma_tma"
OF_PINGPONG, OF_TMA = f"hopper/{PINGPONG}.cu", f"teaching/{TMA}.cu"
MULTICAST, PERSISTENT = "cuda_wgmma_multicast", "hopper/cuda_wgmma_persistent.cu"
PIPELINE, WGMMA = "hopper/pipeline.cuh", "kw/hopper/wgmma.cuh"
STORE, ASYNC, BARRIER = "hopper/tile_store.cuh", "kw/hopper/async.cuh", "kw/hopper/barrier.cuh"
TILES = "hopper/tiles.cuh"
FREE, FULL = "barriers.empty[at.stage].wait(at.parity ^ 1);", "full->expect(of.bytes);"
ADDS, STEP = "slice > 0 || k > 0", "(K_MAJOR ? 32 : 16 * kRow)"
FAULTS = [
    (PINGPONG, PIPELINE, FREE, "barriers.empty[at.stage].wait(at.parity);"),
    (PINGPONG, PIPELINE, FREE, ""),
    (PINGPONG, PIPELINE, "barriers.full[at.stage].wait(at.parity);", ""),
    (PINGPONG, PIPELINE, FULL, "full->expect(of.bytes - 16);"),
    (PINGPONG, PIPELINE, FULL, "full->expect(of.bytes + 16);"),
    (PINGPONG, PIPELINE, "wgmma_wait<1>();", "wgmma_wait<2>();"),
    (PINGPONG, PIPELINE, "wgmma_wait<1>();", ""),
    (PINGPONG, PIPELINE, "wgmma_wait<0>();", "wgmma_wait<1>();"),
    (PINGPONG, PIPELINE, "wgmma_commit();", ""),
    (PINGPONG, PIPELINE, ADDS, "true"),
    (PINGPONG, PIPELINE, ADDS, "slice > 0"),
    (PINGPONG, PIPELINE, "GROUPS * Cluster::kBlocks);", "GROUPS * Cluster::kBlocks + 1);"),
    (PINGPONG, WGMMA, "1ull << 62", "2ull << 62"),
    (PINGPONG, WGMMA, "1ull << 62", "0ull << 62"),
    (PINGPONG, WGMMA, STEP, "(K_MAJOR ? 64 : 16 * kRow)"),
    (PINGPONG, WGMMA, STEP, "(K_MAJOR ? 32 : 8 * kRow)"),
    (PINGPONG, WGMMA, "stride = 8 * kRow / 16", "stride = 4 * kRow / 16"),
    (PINGPONG, BARRIER, "parity ^= 1;", "parity ^= 0;"),
    (PINGPONG, OF_PINGPONG, "pipeline.at.advance(turn * slices);", ""),
    (PINGPONG, OF_PINGPONG, "pipeline.at.advance(slices);", ""),
    (PINGPONG, OF_PINGPONG, "if (turn == 1) pass_turn();", ""),
    (TMA, OF_TMA, "full[at.stage].wait(at.parity);", ""),
    (TMA, OF_TMA, "kw::wgmma_wait<0>();", ""),
    (TMA, OF_TMA, "kw::wgmma_wait<1>();", ""),
    (TMA, OF_TMA, "full[stage].expect(bytes);", "full[stage].expect(bytes / 2);"),
    (TMA, OF_TMA, "load(slice - 1 + STAGES)", "load(slice + STAGES)"),
    (TMA, OF_TMA, "kw::wgmma_commit();", ""),
    (PINGPONG, STORE, "      fence_proxy_async();\n", ""),
    (
        PINGPONG,
        STORE,
        "fence_proxy_async();\n      const bool issuing = issues();",
        "const bool issuing = issues();\n if (issuing) fence_proxy_async();",
    ),
    (
        PINGPONG,
        STORE,
        "      named_barrier_sync(named_barrier, kWarpGroup);\n      if (issuing) {",
        "      if (issuing) {",
    ),
    (
        PINGPONG,
        STORE,
        "tma_store_wait_read<(kSlots > 1 ? kSlots - 2 : 0)>();",
        "tma_store_wait_read<(kSlots > 1 ? kSlots : 1)>();",
    ),
    (
        PINGPONG,
        STORE,
        "if (issuing && kLoads == 0) tma_store_wait_read<(kSlots > 1 ? kSlots - 2 : 0)>();",
        "",
    ),
    (PINGPONG, STORE, "        tma_store_commit();\n", ""),
    (PINGPONG, STORE, "column(piece) / 8 + 2 * j,", "column(piece) / 8 + 2 * j + 2,"),
    (
        PINGPONG,
        STORE,
        "((2 * j + lane / 16) ^ (row % 8)) * 16",
        "((2 * j + lane / 16) ^ (row % 4)) * 16",
    ),
    (PINGPONG, STORE, "((2 * j + lane / 16) ^ (row % 8)) * 16", "(2 * j + lane / 16) * 16"),
    (PINGPONG, STORE, "if (++slot == kSlots) slot = 0;", ""),
    (
        PINGPONG,
        STORE,
        "    if (issues()) tma_store_wait_read<0>();\n  }\n\n private",
        "  }\n\n private",
    ),
    (PINGPONG, PIPELINE, "      wgmma_fence();\n", ""),
    (PINGPONG, PIPELINE, "    fence_barrier_init();\n", ""),
    (
        PINGPONG,
        PIPELINE,
        "A::kBytes + B::kBytes;\n  static constexpr int kBytes",
        "A::kBytes;\n  static constexpr int kBytes",
    ),
    (PINGPONG, PIPELINE, "full->expect(of.bytes);", "full->expect(of.bytes / 2);"),
    (PINGPONG, PIPELINE, "      if (slice > 0) release(before);\n", ""),
    (
        PINGPONG,
        PIPELINE,
        "      if (slice > 0) release(before);\n",
        "      release(at.stage);\n",
    ),
    (
        PINGPONG,
        PIPELINE,
        "      wgmma_wait<1>();\n      if (slice > 0) release(before);",
        "      if (slice > 0) release(before);\n      wgmma_wait<1>();",
    ),
    (
        PINGPONG,
        PIPELINE,
        "    wgmma_wait<0>();\n    release(before);",
        "    release(before);\n    wgmma_wait<0>();",
    ),
    (
        PINGPONG,
        PIPELINE,
        "slice * kSlice, tile.batch * of.b_batched",
        "slice * kSlice + 8, tile.batch * of.b_batched",
    ),
    (PINGPONG, PIPELINE, "barriers.full[s].init(1);", "barriers.full[s].init(2);"),
    (
        PINGPONG,
        PIPELINE,
        "barriers.empty[s].init(GROUPS * Cluster::kBlocks);",
        "barriers.empty[s].init(128);",
    ),
    (
        PINGPONG,
        PIPELINE,
        "    for (int slice = first; slice < last; slice++, at.advance()) {",
        "    for (int slice = first; slice < last - 1; slice++, at.advance()) {",
    ),
    (PINGPONG, PIPELINE, "if (to >= Cluster::kBlocks) return;", ""),
    (PINGPONG, WGMMA, "lead = K_MAJOR ? 1 : kBlock / 16", "lead = K_MAJOR ? 1 : kBlock / 32"),
    (PINGPONG, WGMMA, "1ull << 62", "3ull << 62"),
    (PINGPONG, WGMMA, "(address & 0x3ffff) >> 4", "(address & 0x1ffff) >> 4"),
    (
        PINGPONG,
        ASYNC,
        (
            '[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),\n'
            '      "l"(&map), "r"(shared_address(full)), "r"(x), "r"(y)'
        ),
        (
            '[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),\n'
            '      "l"(&map), "r"(shared_address(full)), "r"(y), "r"(x)'
        ),
    ),
    (PINGPONG, BARRIER, "parity ^= (stage + n) / STAGES & 1;", ""),
    (PINGPONG, BARRIER, "stage = (stage + n) % STAGES;", "stage = (stage + n + 1) % STAGES;"),
    (PINGPONG, OF_PINGPONG, "wait_for_turn();  // two", ";  // two"),
    (PINGPONG, OF_PINGPONG, "if (tile + step < tiles) pass_turn();", ""),
    (PINGPONG, OF_PINGPONG, "+ 1023) & ~1023u", ") & ~15u"),
    (PINGPONG, OF_PINGPONG, "+ 1023) & ~1023u", "+ 511) & ~511u"),
    (PINGPONG, OF_PINGPONG, "  cluster.sync();\n\n", ""),
    (PINGPONG, OF_PINGPONG, "tile = first + turn * step; tile", "tile = first; tile"),
    (PINGPONG, OF_PINGPONG, "Store::kBytes, store_shared", "Store::kBytes / 2, store_shared"),
    (PINGPONG, OF_PINGPONG, "max(turn, 0)], group,", "max(turn, 0)], 1,"),
    (PINGPONG, OF_PINGPONG, "kw::elect_one())", "true)"),
    (TMA, OF_TMA, "    kw::fence_barrier_init();\n", ""),
    (TMA, OF_TMA, "    kw::wgmma_fence();\n", ""),
    (
        TMA,
        OF_TMA,
        "    __syncthreads();\n    if (threadIdx.x == 0 && slice",
        "    if (threadIdx.x == 0 && slice",
    ),
    (TMA, OF_TMA, "  }\n  __syncthreads();\n\n", "  }\n\n"),
    (
        TMA,
        OF_TMA,
        "at.advance()) {\n    full[at.stage].wait(at.parity);",
        "at.advance()) {\n    if (threadIdx.x % 128 == 0) full[at.stage].wait(at.parity);",
    ),
    (
        TMA,
        OF_TMA,
        "at.advance()) {\n    full[at.stage].wait(at.parity);",
        "at.advance()) {\n    if (threadIdx.x % 128 < 32) full[at.stage].wait(at.parity);",
    ),
    (TMA, OF_TMA, "group * 64 * 128", "group * 32 * 128"),
    (
        TMA,
        OF_TMA,
        "const int stage = slice % STAGES;",
        "const int stage = slice % (STAGES - 1);",
    ),
    (
        TMA,
        OF_TMA,
        "slice < STAGES && slice < slices; slice++) load",
        "slice < STAGES - 1 && slice < slices; slice++) load",
    ),
    (
        TMA,
        OF_TMA,
        "  kw::wgmma_wait<0>();\n  kw::pin(d);\n  kw::store_directly",
        "  kw::wgmma_wait<1>();\n  kw::pin(d);\n  kw::store_directly",
    ),
    (MULTICAST, PERSISTENT, "cluster.sync_before_exit();", ""),
    (MULTICAST, PERSISTENT, "  cluster.sync();\n", "  __syncthreads();\n"),
    (MULTICAST, PIPELINE, "    fence_barrier_init();\n", ""),
    (
        MULTICAST,
        PIPELINE,
        "barriers.empty[s].init(GROUPS * Cluster::kBlocks);",
        "barriers.empty[s].init(GROUPS);",
    ),
    (MULTICAST, PIPELINE, "barriers.empty[stage].arrive(to);", "barriers.empty[stage].arrive(0);"),
    (
        MULTICAST,
        TILES,
        "for (int c = 0; c < COLS; c++) mask |= 1 << (row + ROWS * c);",
        "mask = 1 << row;",
    ),
    (
        MULTICAST,
        TILES,
        "return ((1 << ROWS) - 1) << (ROWS * col);",
        "return 1 << (row + ROWS * col);",
    ),
    (MULTICAST, PIPELINE, "constexpr int kPart = WIDTH / SHARE;", "constexpr int kPart = WIDTH;"),
    (MULTICAST, PIPELINE, "w * 128 + part * kPart * 128", "w * 128"),
]


def complaint(folder, rung, seed):
    """What is wrong with the product of a rung's sources in a folder, or None."""
    torch.manual_seed(0)
    m, n, k = SHAPE
    a, b = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
    specs = {x: TensorSpec.contiguous(t.shape, t.dtype) for x, t in (("a", a), ("b", b))}
    matmul = ladder("matmul")
    plan = plan_of(matmul, matmul.rung(rung), specs)
    (step,) = plan.launches
    assert isinstance(step.kernel, CudaKernel)
    kernel = replace(step.kernel, source=folder / step.kernel.source.relative_to(matmul.folder))
    # several tiles for a block
    grid = step.grid if rung == TMA else (kernel.cluster, 1, 1)
    plan = replace(plan, launches=(replace(step, kernel=kernel, grid=grid),))
    watch = Watch(tuple(CHECKS), seed)
    with watch.mode():
        run = cpu_executor.executor(plan, matmul.operator, specs, ())
    done, y, findings = watch.call(run, {"a": a, "b": b, "out_float32": False}, fresh={"c"})
    if findings:
        return findings[0].text
    right = done and torch.allclose(y.float(), a.float() @ b.float(), atol=0.3, rtol=0.02)
    return None if right else "the product is wrong"


@pytest.fixture(name="folder")
def copy_of_the_rungs(tmp_path):
    for part in ("ops/matmul/gemm", "ops/elementwise"):
        shutil.copytree(ROOT / part, tmp_path / "kernelwright" / part)
    rungs = tmp_path / "kernelwright" / "ops" / "matmul" / "gemm"
    shutil.copytree(ROOT / "include" / "kw", rungs / "kw")
    for folder in ("hopper", "teaching"):  # where a source's headers are looked up first
        (rungs / folder / "kw").symlink_to(rungs / "kw")
    return rungs


@pytest.mark.parametrize("rung", [PINGPONG, TMA, MULTICAST])
def test_without_a_fault_every_order_is_right(folder, rung):
    assert [complaint(folder, rung, seed) for seed in range(4)] == [None] * 4


@pytest.mark.parametrize(("rung", "file", "old", "new"), FAULTS)
def test_a_planted_fault_is_seen(folder, rung, file, old, new):
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    assert any(complaint(folder, rung, seed) for seed in range(3))

"""Faults planted in copies of the Hopper matmul rungs are seen in the emulator: the product is
wrong in the order of the threads or in a random one, or the launch stops."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import kernelwright
from kernelwright import emulator
from kernelwright.contract import TensorSpec
from kernelwright.dispatch import ladder, plan_of
from kernelwright.emulator import EmulationError, Schedule
from kernelwright.toolchain import cpu_executor

pytestmark = [
    pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing())),
    pytest.mark.long,  # a compilation each
]
ROOT = Path(kernelwright.__file__).parent
SHAPE = (256, 256, 448)  # m, n, k: 7 slices in rings of 5 and 4 stages
PINGPONG, TMA = "cuda_wgmma_pingpong", "cuda_wgmma_tma"
PIPELINE, WGMMA = "hopper/pipeline.cuh", "hopper/wgmma.cuh"
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
    (PINGPONG, "hopper/barrier.cuh", "parity ^= 1;", "parity ^= 0;"),
    (PINGPONG, f"{PINGPONG}.cu", "pipeline.at.advance(turn * slices);", ""),
    (PINGPONG, f"{PINGPONG}.cu", "pipeline.at.advance(slices);", ""),
    (PINGPONG, f"{PINGPONG}.cu", "if (turn == 1) pass_turn();", ""),
    (TMA, f"{TMA}.cu", "full[at.stage].wait(at.parity);", ""),
    (TMA, f"{TMA}.cu", "kw::wgmma_wait<0>();", ""),
    (TMA, f"{TMA}.cu", "kw::wgmma_wait<1>();", ""),
    (TMA, f"{TMA}.cu", "full[stage].expect(bytes);", "full[stage].expect(bytes / 2);"),
    (TMA, f"{TMA}.cu", "load(slice - 1 + STAGES)", "load(slice + STAGES)"),
    (TMA, f"{TMA}.cu", "kw::wgmma_commit();", ""),
]


def right(folder, rung, seed):
    """Whether a rung's sources in a folder compute a product."""
    torch.manual_seed(0)
    m, n, k = SHAPE
    a, b = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
    specs = {x: TensorSpec.contiguous(t.shape, t.dtype) for x, t in (("a", a), ("b", b))}
    matmul = ladder("matmul")
    plan = plan_of(matmul, matmul.rung(rung), specs)
    (step,) = plan.launches
    kernel = replace(step.kernel, source=folder / step.kernel.source.name)
    grid = (1, 1, 1) if rung == PINGPONG else step.grid  # several tiles for a block
    plan = replace(plan, launches=(replace(step, kernel=kernel, grid=grid),))
    try:
        with emulator.mode(schedule=Schedule(seed=seed, patience=20)):
            found = cpu_executor.executor(plan, matmul.operator, specs, ())(a, b, False)
    except EmulationError:
        return False
    return torch.allclose(found.float(), a.float() @ b.float(), atol=0.3, rtol=0.02)


@pytest.fixture(name="folder")
def copy_of_the_rungs(tmp_path):
    for part in ("ops/matmul/gemm", "ops/elementwise", "include"):
        shutil.copytree(ROOT / part, tmp_path / "kernelwright" / part)
    return tmp_path / "kernelwright" / "ops" / "matmul" / "gemm"


@pytest.mark.parametrize("rung", [PINGPONG, TMA])
def test_without_a_fault_every_order_is_right(folder, rung):
    assert all(right(folder, rung, seed) for seed in range(4))


@pytest.mark.parametrize(("rung", "file", "old", "new"), FAULTS)
def test_a_planted_fault_is_seen(folder, rung, file, old, new):
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    assert not all(right(folder, rung, seed) for seed in range(4))

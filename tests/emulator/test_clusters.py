"""Thread-block clusters on the CPU: primitives against a model in Python, what goes wrong in words,
and the cluster rungs under the checks."""

import pytest
import torch

from kernelwright import emulator
from kernelwright.contract import CudaKernel, Launch, i32
from kernelwright.dispatch import ladders
from kernelwright.emulator import EmulationError, Schedule, launch
from kernelwright.emulator.checks import CHECKS, Watch
from kernelwright.support.errors import ToolchainError
from kernelwright.workbench.sanitize import report
from kernelwright.workbench.verify.verify import here
from support.paths import FIXTURES

SOURCE = FIXTURES / "emulated" / "clusters.cu"
SEEDS = (0, 1, 2)
pytestmark = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))
watched = pytest.mark.skipif(bool(emulator.missing("watched")), reason="nothing is watched here")


def step_of(name, tensors, *, grid, block, cluster, shared=0):
    args = tuple(f"a{i}" if isinstance(t, torch.Tensor) else t for i, t in enumerate(tensors))
    kernel = CudaKernel(SOURCE, name, cluster)
    return Launch(kernel, (*grid, 1, 1)[:3], args, (block, 1, 1), shared)


def run(name, *args, grid, block, cluster, shared=0, **how):
    step = step_of(name, args, grid=grid, block=block, cluster=cluster, shared=shared)
    launch.run(launch.bound(step), step, args, Schedule(**how))


def ints(*shape):
    return torch.zeros(shape, dtype=torch.int32)


@pytest.mark.parametrize("cluster", [1, 2, 4, 16])
@pytest.mark.parametrize("workers", [1, 2])
def test_ranks_go_along_x(cluster, workers):
    out = ints(2, 3, 16)
    run("ranks", out, grid=(16, 3, 2), block=40, cluster=cluster, workers=workers)
    assert torch.equal(out, (torch.arange(16) % cluster).int().expand(2, 3, 16))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cluster", [2, 8])
def test_every_thread_sends_to_every_block(cluster, seed):
    n, grid = 40, 16
    out = torch.zeros(grid, cluster, n, dtype=torch.int64)
    run(f"to_all<{cluster}>", out, grid=(grid,), block=n, cluster=cluster, shared=8 * cluster * n,
        seed=seed, block_seed=seed)  # fmt: skip
    for block in range(grid):
        first, rank = block // cluster * cluster, block % cluster
        want = [[(first + s) * 1000 + (i - rank) % n for i in range(n)] for s in range(cluster)]
        assert out[block].tolist() == want


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("cluster", "turns"), [(2, 9), (4, 13)])
def test_a_ring_of_boxes_in_turns(cluster, turns, seed):
    values = torch.arange(8, dtype=torch.int32) * 100
    out = ints(8, 33)
    run(
        f"ring<{cluster}>", values, out, i32(turns), grid=(8,), block=33, cluster=cluster, seed=seed
    )
    for block in range(8):
        first, rank = block // cluster * cluster, block % cluster
        come_from = first + (rank - turns) % cluster
        assert out[block].tolist() == [100 * come_from + turns] * 33


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_of_the_cluster(seed):
    values, out, scratch = (
        torch.arange(4 * 64, dtype=torch.int32).view(4, 64),
        ints(4, 64),
        ints(256),
    )
    run("meets", values, out, scratch, grid=(4,), block=64, cluster=2, seed=seed)
    assert torch.equal(out, values[[1, 0, 3, 2]])
    counts = ints(4)
    run("some_end", counts, grid=(4,), block=64, cluster=4, seed=seed)
    assert counts.tolist() == [40] * 4


def test_who_waits_for_ever_is_said_block_by_block():
    with pytest.raises(EmulationError) as caught:
        run("nobody_sends", ints(1), grid=(2,), block=48, cluster=2, workers=1)
    said = str(caught.value)
    assert "the cluster of 2 from block (0, 0, 0) is deadlocked:" in said
    assert "block (0, 0, 0):\n  threads 0 to 47 ended" in said
    assert "block (1, 0, 0):\n  threads 0 to 47 in mbarrier.try_wait for parity 0" in said
    assert "in phase 0, where 0 of 1 arrivals and 64 bytes are missing" in said
    assert "clusters.cu:" in said


def test_a_launch_without_clusters_sends_nothing():
    out = torch.zeros(1, 1, 40, dtype=torch.int64)
    with pytest.raises(EmulationError, match="sends in a launch without clusters"):
        run("to_all<1>", out, grid=(1,), block=40, cluster=1, shared=8 * 40)


def test_clusters_that_no_gpu_has():
    with pytest.raises(ToolchainError, match="a cluster of 32 blocks; 16 are the most"):
        run("ranks", ints(32), grid=(32,), block=1, cluster=32)
    with pytest.raises(ToolchainError, match="not divisible into clusters of 2"):
        run("ranks", ints(3), grid=(3,), block=1, cluster=2)


@watched
@pytest.mark.parametrize(("name", "races"), [("meets", 0), ("meets_relaxed", 1)])
def test_what_the_barrier_of_a_cluster_orders(name, races):
    values = [torch.zeros(256, dtype=torch.int32) for _ in range(3)]
    step = step_of(name, values, grid=(4,), block=64, cluster=2)
    watch = Watch(tuple(CHECKS), 1)
    with watch.mode():
        bound = emulator.launcher(step)
    assert len(watch.call(lambda: bound(None, step, values), {}, ())[2]) == races


# ---- shipped rungs

RUNGS = [
    (lad, rung)
    for lad in ladders()
    for rung in lad.rungs
    if any("cluster" in source for source in rung.sources)
]


def some_calls(lad, rung):
    """Its first config on one case of float32 and on the one with most elements."""
    runs = [(c, x) for c, x in report.emulated_runs(lad, rung)[0] if c == rung.configs[0]]
    calls = [(x.numel, report.call_of(lad, rung, c, x)) for c, x in runs]
    good = sorted((n, i) for i, (n, call) in enumerate(calls) if not isinstance(call, str))
    return [calls[i][1] for _, i in {good[0], good[-1]}]


@watched
@pytest.mark.skipif(here() == "cuda", reason="compute-sanitizer answers on a GPU")
@pytest.mark.parametrize(
    ("lad", "rung"),
    [pytest.param(*r, marks=() if i % 4 == 0 else pytest.mark.long) for i, r in enumerate(RUNGS)],
    ids=lambda x: getattr(x, "name", None),
)
def test_cluster_rungs_under_the_checks(lad, rung):
    for call in some_calls(lad, rung):
        assert not call.watched(tuple(CHECKS), 1)[1]

"""The experiment of tools/experiments/matmul_hopper, as far as it goes without a GPU: its kernels
compile as they were measured, and the cost model has a config for any product."""

import random
import sys

import pytest

from kernelwright.contract import CudaKernel
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import nvrtc
from support.paths import ROOT

EXPERIMENTS = ROOT / "tools" / "experiments"
sys.path.insert(0, str(EXPERIMENTS))

from matmul_hopper import build, model  # noqa: E402
from matmul_hopper.candidates import CANDIDATES  # noqa: E402
from matmul_hopper.configs import (  # noqa: E402
    CLUSTERS,
    Persistent,
    Pingpong,
    Split,
    StreamK,
    cdiv,
)

BF16 = "__nv_bfloat16"
#: Each kernel; together every layout, cluster and epilogue, and the most accumulators.
COVERING = [
    (Persistent(128, 256, 3, 4, 2, 1), "TN", "kw::Plain"),
    (Pingpong(128, 192, 4, 2, 2, 2), "NT", "kw::Plain"),
    (Pingpong(128, 128, 5, 4, 2, 1), "NT", f"kw::BiasGelu<{BF16}, true>"),
    (StreamK(128, 256, 4, 2, 2, 1), "NT", f"kw::Bias<{BF16}>"),
    (Split(128, 5, 3), "NN", "kw::Plain"),
]
SERIAL = """#include "kw/wgmma.cuh"
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


@pytest.fixture(scope="module")
def compiler():
    try:
        nvrtc.include_folders()
    except ToolchainError:
        pytest.skip("no NVRTC on this machine")


@pytest.mark.parametrize(("config", "layout", "epilogue"), COVERING, ids=str)
def test_a_candidate_compiles_and_keeps_its_sums_in_registers(compiler, config, layout, epilogue):
    assert config in CANDIDATES
    made = build.compiled(build.kernel(config, layout, BF16, epilogue))
    assert build.complaints(made) == []


def test_products_that_wait_for_each_other_are_seen(compiler, tmp_path):
    (tmp_path / "kw").symlink_to(EXPERIMENTS / "matmul_hopper" / "kw")
    source = tmp_path / "serial.cu"
    source.write_text(SERIAL)
    made = build.compiled(CudaKernel(source, "serial"))
    assert any("serialized" in line for line in build.complaints(made))


def test_the_model_chooses_for_any_product():
    generator = random.Random(0)
    for _ in range(300):
        m, n, k = (8 * int(2 ** generator.uniform(0, 12)) for _ in range(3))
        layout = generator.choice(("NT", "NN", "TN", "TT"))
        config = model.choose(m, n, k, layout)
        assert config in CANDIDATES and 0 < model.us(config, m, n, k, layout) < 1e6
        assert not isinstance(config, Split) or cdiv(k, 64) >= config.split


def test_a_choice_covers_its_product():
    """Its grid has a block for each tile, or blocks that take several."""
    for config in CANDIDATES:
        grid = config.grid(1000, 776, 904, CLUSTERS[config.blocks])
        rows, cols, strip = grid.order
        assert rows * config.rows * config.bm >= 1000 and cols * config.cols * config.bn >= 776
        assert grid.blocks % config.blocks == 0 and 1 <= strip <= rows
        assert config.shared <= 227 * 1024

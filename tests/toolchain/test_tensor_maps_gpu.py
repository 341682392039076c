"""Tensor maps on a real GPU: boxes in and out, elements outside a tensor, swizzles, graphs."""

import pytest
import torch

from kernelwright import toolchain
from kernelwright.contract import CudaKernel, Launch, Plan, TensorMap, TensorSpec, i32
from kernelwright.toolchain import modes
from support.planning import scaling

pytestmark = pytest.mark.skipif(
    not modes.has_gpu() or torch.cuda.get_device_capability() < (9, 0), reason="needs TMA"
)

#: Copies a 64 x 8 box of x to a position in y, and its bytes as laid out in shared memory to raw.
SOURCE = """
#include "kw/tensor_map.cuh"
__global__ void box(const __grid_constant__ kw::TensorMap x,
                    const __grid_constant__ kw::TensorMap y, int4 *raw, int col, int row,
                    int stored_col, int stored_row) {
  __shared__ alignas(1024) int4 place[64];
  __shared__ unsigned long long full;
  const unsigned to = __cvta_generic_to_shared(place), bar = __cvta_generic_to_shared(&full);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(bar));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(&x), "r"(bar), "r"(col), "r"(row) : "memory");
    unsigned done = 0;
    while (!done)
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
                   "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&y),
        "r"(to), "r"(stored_col), "r"(stored_row) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
  }
  __syncthreads();
  raw[threadIdx.x] = place[threadIdx.x];
}
"""
ROWS, COLS = 20, 104
OUT = (ROWS * COLS,)


@pytest.fixture(name="copied")
def box_cu(tmp_path):
    """(y, raw) for x, an allocation of ROWS x COLS, and a box at (col, row)."""
    path = tmp_path / "box.cu"
    path.write_text(SOURCE)

    def call(x, col, row):
        maps = [TensorMap(t, x.dtype, (COLS, ROWS), (COLS * 2,), (64, 8)) for t in ("x", "y")]
        places = (col, row, max(col, 0), max(row, 0))  # a store may not begin before the tensor
        args = (*maps, "raw", *map(i32, places))
        step = Launch(CudaKernel(path, "box", emulated=False), (1, 1, 1), args, (64, 1, 1))
        outputs = (TensorSpec.contiguous(x.shape, x.dtype), TensorSpec.contiguous((512,), x.dtype))
        operator = scaling(
            outputs=lambda x, a: outputs, schema="(Tensor x, float a) -> (Tensor y, Tensor raw)"
        )
        specs = {"x": TensorSpec.contiguous(x.shape, x.dtype), "a": 1.0}
        return toolchain.executor(Plan((step,)), operator, specs, (), x.device)

    return call


@pytest.mark.parametrize(("col", "row"), [(0, 0), (64, 16), (-8, -3)])
def test_values_survive_a_round_trip_through_a_box(copied, col, row):
    x = torch.randn(ROWS, COLS, device="cuda").bfloat16()
    run = copied(x, col, row)
    y, raw = run(x, 1.0)
    r, c = (torch.arange(n, device="cuda") for n in (8, 64))
    inside = ((r + row >= 0) & (r + row < ROWS))[:, None] & (c + col >= 0) & (c + col < COLS)
    at = (r + row).clamp(0, ROWS - 1)[:, None], (c + col).clamp(0, COLS - 1)
    box = torch.where(inside, x[at], 0)
    units = raw.view(8, 8, 8)  # rows, units of 16 bytes, elements
    straight = torch.stack([units[i, torch.arange(8) ^ i] for i in range(8)]).view(8, 64)
    assert torch.equal(straight, box)
    top, left = max(row, 0), max(col, 0)
    stored = y[top : top + 8, left : left + 64]
    assert torch.equal(stored, box[: stored.shape[0], : stored.shape[1]])


def test_a_graph_keeps_its_maps(copied):
    x, other = (torch.randn(ROWS, COLS, device="cuda").bfloat16() for _ in range(2))
    run = copied(x, 0, 0)
    run(x, 1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, _ = run(x, 1.0)
    run(other, 1.0)
    x.copy_(other)
    graph.replay()
    assert torch.equal(y[:8, :64], other[:8, :64])

// The gradient of a weight, added to float32 sums by the L2 cache.
//
// Idea: as cuda_wgmma.cu, but a thread does not read the total: it sends two adjacent elements
// of a row, which the L2 cache adds (red.global.add.v2.f32) while the multiprocessor works on the
// next tile. Each element is added to once, so the result is deterministic. The blocks of a cluster
// share the loads of the operands.
// Traffic: as `cuda_wgmma`, but the total moves only between L2 and DRAM.
// Compared with `cuda_wgmma`: no thread waits for memory at the end of a tile, which took a third
// as long as the product.
// Limit: tensor cores; a partial last wave.
#include "../gemm/hopper/pipeline.cuh"

__device__ __forceinline__ void add_in_l2(float *to, float a, float b) {
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(a), "f"(b)
               : "memory");
}

template <typename T, int BM, int BN, int STAGES, int GROUPS, int ROWS, int COLS>
__global__ void __launch_bounds__((1 + GROUPS) * kw::kWarpGroup, 1)
    accumulate_reduce(const __grid_constant__ kw::TensorMap a,
                      const __grid_constant__ kw::TensorMap b, float *__restrict__ total, int m,
                      int n, int rows, int cols, int strip, int tiles, int slices, int bytes) {
  using Cluster = kw::Cluster<ROWS, COLS>;
  using Pipeline = kw::Pipeline<T, BM, BN, STAGES, GROUPS, Cluster, false, false>;
  extern __shared__ unsigned char unaligned[];
  __shared__ typename Pipeline::Barriers barriers;
  const unsigned shared = (kw::shared_address(unaligned) + 1023) & ~1023u;
  const int group = threadIdx.x / kw::kWarpGroup, share = group - 1;
  const Cluster cluster;
  const kw::TileOrder order{unsigned(rows), unsigned(cols), unsigned(strip), m, n};
  Pipeline pipeline{shared, barriers};
  if (threadIdx.x == 0) pipeline.init();
  cluster.sync();

  // Tiles do not move inside at the edges: elements that two tiles share would be added twice.
  const auto place = [&](int tile) {
    const kw::Place at = order.index(tile);
    return kw::Place{(at.row * ROWS + cluster.row) * BM, (at.col * COLS + cluster.col) * BN, 0};
  };
  const int first = blockIdx.x / Cluster::kBlocks, step = gridDim.x / Cluster::kBlocks;
  if (group == 0) {
    if (GROUPS > 1) kw::decrease_registers<GROUPS == 2 ? 40 : 32>();
    if (threadIdx.x < 32 && kw::elect_one())
      for (int tile = first; tile < tiles; tile += step)
        pipeline.load(kw::Operands{a, b, bytes, 0, 0}, place(tile), 0, slices, cluster);
  } else {
    if (GROUPS > 1) kw::increase_registers<GROUPS == 2 ? 232 : 160>();
    const int lane = threadIdx.x % 32, warp = threadIdx.x % kw::kWarpGroup / 32;
    for (int tile = first; tile < tiles; tile += step) {
      float d[Pipeline::kParts][BN / 2];
      pipeline.multiply(d, slices, share, [] {});
      const kw::Place at = place(tile);
      const int top = at.row + share * Pipeline::kParts * 64 + warp * 16 + lane / 4;
#pragma unroll
      for (int p = 0; p < Pipeline::kParts; p++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int row = top + 64 * p + 8 * h, left = at.col + lane % 4 * 2;
          if (row >= m) continue;
          float *of_row = total + static_cast<long long>(row) * n + left;
#pragma unroll
          for (int j = 0; j < BN; j += 8)
            if (left + j < n) add_in_l2(of_row + j, d[p][j / 2 + 2 * h], d[p][j / 2 + 2 * h + 1]);
        }
    }
  }
  cluster.sync_before_exit();
}

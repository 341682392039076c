// The gradient of a weight, added to float32 sums in the epilogue.
//
// Idea: cuda_wgmma_persistent.cu for total += gy^T x, where neither operand is contiguous along k.
// The epilogue reads the total, adds the product and writes it, two adjacent elements at a time.
// Traffic: the operands as in a product; the total once in each direction, 8 bytes per element.
// Compared with `native`: a product that is rounded, stored and then added moves 12 bytes more.
// Limit: tensor cores; and the epilogue of a tile, which overlaps only with the loads of the next
// one.
#include "../gemm/hopper/pipeline.cuh"

template <typename T, int BM, int BN, int STAGES, int GROUPS>
__global__ void __launch_bounds__((1 + GROUPS) * kw::kWarpGroup, 1)
    accumulate_product(const __grid_constant__ kw::TensorMap a,
                       const __grid_constant__ kw::TensorMap b, float *__restrict__ total, int m,
                       int n, int rows, int cols, int strip, int tiles, int slices, int bytes) {
  using Cluster = kw::Cluster<1, 1>;
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
    return kw::Place{at.row * BM, at.col * BN, 0};
  };
  if (group == 0) {
    if (GROUPS > 1) kw::decrease_registers<40>();
    if (threadIdx.x < 32 && kw::elect_one())
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
        pipeline.load(kw::Operands{a, b, bytes, 0, 0}, place(tile), 0, slices, cluster);
    return;
  }
  if (GROUPS > 1) kw::increase_registers<232>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kw::kWarpGroup / 32;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float d[Pipeline::kParts][BN / 2];
    pipeline.multiply(d, slices, share, [] {});
    const kw::Place at = place(tile);
    const int top = at.row + share * Pipeline::kParts * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (int p = 0; p < Pipeline::kParts; p++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = top + 64 * p + 8 * h, first = at.col + lane % 4 * 2;
        if (row >= m) continue;
        float *of_row = total + static_cast<long long>(row) * n + first;
#pragma unroll
        for (int j = 0; j < BN; j += 8)
          if (first + j < n) {
            auto *to = reinterpret_cast<float2 *>(of_row + j);
            const float2 old = *to;
            *to = {old.x + d[p][j / 2 + 2 * h], old.y + d[p][j / 2 + 2 * h + 1]};
          }
      }
  }
}

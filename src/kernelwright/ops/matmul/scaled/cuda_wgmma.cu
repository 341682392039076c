// 8-bit floating-point operands with scales per tensor, per row, or per block of 128.
//
// Idea: cuda_wgmma_persistent.cu with the e4m3 type of wgmma: a slice of 128 bytes has 128 elements
// along k instead of 64. Tensor cores keep about 14 bits of a sum of such products. With `PROMOTE`,
// the sums of each slice are added to float32 totals by ordinary instructions while the other warp
// group multiplies; this doubles the registers, so tiles are smaller. Scales of tensors and rows
// are applied to the result, those of blocks to the sums of each slice.
// Traffic: half of that of 16-bit operands; results have 16 bits.
// Compared with `native`: on an H200, 0.84 to 1.02 of cuBLAS's rate; it also supports scales per
// block.
// Limit: tensor cores, at twice their 16-bit rate, so that the epilogue and the first loads of a
// tile weigh twice as much.
#include "../gemm/hopper/pipeline.cuh"
#include "../gemm/hopper/tile_store.cuh"
#include "wgmma_fp8.cuh"

enum Scales { TENSOR, ROW, BLOCK };

// The scales of a thread's sums: by row of A, by column of B; per block, those of one slice.
template <Scales KIND> struct Scaling {
  const float *a, *b;
  int m, n, blocks;  // blocks of 128 along k

  __device__ __forceinline__ float of_row(int row, int slice) const {
    const int at = min(row, m - 1);
    return KIND == TENSOR ? a[0]
           : KIND == ROW  ? a[at]
                          : a[at * static_cast<long long>(blocks) + slice];
  }
  __device__ __forceinline__ float of_column(int col, int slice) const {
    const int at = min(col, n - 1);
    return KIND == TENSOR ? b[0]
           : KIND == ROW  ? b[at]
                          : b[at / 128 * static_cast<long long>(blocks) + slice];
  }
  // d *= the scales of the thread's two rows, of 64 from `row` on, and of columns from `col` on.
  template <int N> __device__ __forceinline__ void apply(float (&d)[N], int row, int col) const {
    const float of_rows[2] = {of_row(row, 0), of_row(row + 8, 0)};
#pragma unroll
    for (int j = 0; j < N; j += 4) {
      const int at = col + 2 * j + kw::first_column();
      const float left = of_column(at, 0), right = of_column(at + 1, 0);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        d[j + 2 * h] *= of_rows[h] * left;
        d[j + 2 * h + 1] *= of_rows[h] * right;
      }
    }
  }
};

constexpr int kDeep = 128;  // elements along k in a slice

// Called by one thread: loads all slices of a tile.
template <typename Pipeline, typename Cluster>
__device__ __forceinline__ void load(Pipeline &pipeline, const kw::TensorMap &a,
                                     const kw::TensorMap &b, const kw::Place &tile, int slices,
                                     int bytes, const Cluster &cluster) {
  for (int slice = 0; slice < slices; slice++, pipeline.at.advance()) {
    const int stage = pipeline.at.stage, k = slice * kDeep;
    const unsigned to = pipeline.ring + stage * Pipeline::kStage;
    kw::Barrier *full = &pipeline.barriers.full[stage];
    pipeline.barriers.empty[stage].wait(pipeline.at.parity ^ 1);
    full->expect(bytes);
    Pipeline::A::load(to, a, full, tile.row, k, 0, cluster.col, cluster.row_mask());
    Pipeline::B::load(to + Pipeline::A::kBytes, b, full, tile.col, k, 0, cluster.row,
                      cluster.col_mask());
  }
}

// The first of a thread's two rows of 64.
__device__ __forceinline__ int own_row() {
  return threadIdx.x % kw::kWarpGroup / 32 * 16 + threadIdx.x % 32 / 4;
}

// totals = the product over all slices, with the sums of each slice added in float32. With scales
// per block, the sums are multiplied by their scales, which are loaded during the product.
template <Scales KIND, typename Pipeline, int PARTS, int N>
__device__ __forceinline__ void multiply_promoting(Pipeline &pipeline, float (&totals)[PARTS][N],
                                                   int slices, int share, int row, int col,
                                                   const Scaling<KIND> &scaling) {
#pragma unroll
  for (int p = 0; p < PARTS; p++)
#pragma unroll
    for (int i = 0; i < N; i++) totals[p][i] = 0.0f;
  for (int slice = 0; slice < slices; slice++) {
    float by[PARTS][2];
#pragma unroll
    for (int p = 0; p < PARTS; p++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        by[p][h] = KIND == BLOCK
                       ? scaling.of_row(row + 64 * p + 8 * h, slice) * scaling.of_column(col, slice)
                       : 1.0f;
    float d[PARTS][N];
    pipeline.multiply(d, 1, share, [] {});
#pragma unroll
    for (int p = 0; p < PARTS; p++)
#pragma unroll
      for (int i = 0; i < N; i++)
        totals[p][i] =
            KIND == BLOCK ? fmaf(by[p][i / 2 % 2], d[p][i], totals[p][i]) : totals[p][i] + d[p][i];
  }
}

template <int BM, int BN, int STAGES, int BOXES, int GROUPS, int ROWS, int COLS, Scales KIND,
          bool PROMOTE>
__global__ void __launch_bounds__((1 + GROUPS) * kw::kWarpGroup, 1)
    matmul_scaled(const __grid_constant__ kw::TensorMap a, const __grid_constant__ kw::TensorMap b,
                  const __grid_constant__ kw::TensorMap c, const float *__restrict__ scale_a,
                  const float *__restrict__ scale_b, int m, int n, int rows, int cols, int strip,
                  int tiles, int slices, int bytes) {
  static_assert(KIND != BLOCK || (PROMOTE && BN == 128), "a tile's columns have one scale");
  using Cluster = kw::Cluster<ROWS, COLS>;
  using Pipeline = kw::Pipeline<kw::E4M3, BM, BN, STAGES, GROUPS, Cluster, true, true>;
  using Store = kw::TileStore<__nv_bfloat16, BN, Pipeline::kParts, BOXES, kw::Plain>;
  extern __shared__ unsigned char unaligned[];
  __shared__ typename Pipeline::Barriers barriers;
  __shared__ typename Store::Shared store_shared[GROUPS];
  const unsigned shared = (kw::shared_address(unaligned) + 1023) & ~1023u;
  const int group = threadIdx.x / kw::kWarpGroup, share = group - 1;
  const Cluster cluster;
  const kw::Plain plain;
  const kw::TileOrder order{unsigned(rows), unsigned(cols), unsigned(strip), m, n};
  const Scaling<KIND> scaling{scale_a, scale_b, m, n, slices};
  Pipeline pipeline{shared, barriers};
  Store store{shared + Pipeline::kBytes + share * Store::kBytes, store_shared[max(share, 0)], group,
              c, plain};
  if (threadIdx.x == 0) pipeline.init();
  cluster.sync();

  const int first = blockIdx.x / Cluster::kBlocks, step = gridDim.x / Cluster::kBlocks;
  if (group == 0) {
    if (GROUPS > 1) kw::decrease_registers<40>();
    if (threadIdx.x < 32 && kw::elect_one())
      for (int tile = first; tile < tiles; tile += step)
        load(pipeline, a, b, order.place<BM, BN, true>(tile, cluster), slices, bytes, cluster);
  } else {
    if (GROUPS > 1) kw::increase_registers<232>();
    for (int tile = first; tile < tiles; tile += step) {
      kw::Place place = order.place<BM, BN, true>(tile, cluster);
      place.row += share * Pipeline::kParts * 64;
      float d[Pipeline::kParts][BN / 2];
      const int row = place.row + own_row();
      if constexpr (PROMOTE)
        multiply_promoting(pipeline, d, slices, share, row, place.col, scaling);
      else
        pipeline.multiply(d, slices, share, [] {});
      if constexpr (KIND != BLOCK)
#pragma unroll
        for (int p = 0; p < Pipeline::kParts; p++) scaling.apply(d[p], row + 64 * p, place.col);
      store.store(d, place);
    }
    store.finish();
  }
  cluster.sync_before_exit();
}

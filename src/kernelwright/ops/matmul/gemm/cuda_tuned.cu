// Tile sizes as parameters, any layout of the operands.
//
// Idea: as `cuda_warp`, with sizes that fit the GPU: a thread computes up to 16 x 8 elements; a
// ring of several tiles is filled ahead; the values for the next step along k, including the first
// of the next tile, are loaded from shared memory during the current step. Operands may be
// contiguous along k or across it, with any alignment, and in batches.
// Traffic: blocks that run at the same time compute tiles of c that are close together, in groups
// of 8 rows of tiles, so that the operands they read are in L2.
// Compared with `cuda_warp`: 24 values from shared memory for 128 multiply-adds instead of 16 for
// 64. Copies have no bounds checks: rows outside repeat the last one and are not stored.
// Limit: issue slots. A multiply-add is one instruction for 32 lanes; four of them fill a cycle.
#include "epilogue.cuh"
#include "operand.cuh"
#include "tile_of.cuh"

template <int ROWS, int COLS, int DEPTH, int WARP_ROWS, int WARP_COLS, int EACH_ROWS, int EACH_COLS,
          int STAGES, int BLOCKS>
struct Tile {
  static constexpr int kRows = ROWS, kCols = COLS, kDepth = DEPTH, kStages = STAGES,
                       kBlocks = BLOCKS;
  static constexpr int kWarpRows = WARP_ROWS, kWarpCols = WARP_COLS;
  static constexpr int kEachRows = EACH_ROWS, kEachCols = EACH_COLS;
  static constexpr int kDown = WARP_ROWS / EACH_ROWS, kAcross = WARP_COLS / EACH_COLS;  // threads
  static constexpr int kThreads = 32 * (ROWS / WARP_ROWS) * (COLS / WARP_COLS);
  // The error of a chain of additions grows with its length. Small tiles, which are used for few
  // rows and columns, leave registers for totals, to which the sums of each tile are added.
  static constexpr bool kTotals = EACH_ROWS * EACH_COLS <= 32;
  static_assert(kDown * kAcross == 32, "a warp has 32 threads");
};

// `a_line`, `b_line`: elements between lines of memory; `a_next`, `b_next`: elements between the
// matrices of a batch.
template <class TILE, matmul::Order A_ORDER, matmul::Order B_ORDER, int OUT, class EPILOGUE>
__device__ __forceinline__ void product(const float *a, const float *b, float *c, int m, int n,
                                        int k, long long a_line, long long b_line, long long a_next,
                                        long long b_next, const EPILOGUE &epilogue) {
  using A = matmul::Operand<A_ORDER, TILE::kRows, TILE::kDepth, TILE::kThreads>;
  using B = matmul::Operand<B_ORDER, TILE::kCols, TILE::kDepth, TILE::kThreads>;
  constexpr int kPieces = TILE::kEachRows / 4, kPiecesOfB = TILE::kEachCols / 4;
  extern __shared__ float4 dynamic_shared[];
  float *a_tiles = reinterpret_cast<float *>(dynamic_shared);
  float *b_tiles = a_tiles + TILE::kStages * A::kFloats;

  const int down = (m + TILE::kRows - 1) / TILE::kRows,
            across = (n + TILE::kCols - 1) / TILE::kCols;
  const int nth = blockIdx.x / (down * across);
  const int2 tile = matmul::tile_of(blockIdx.x % (down * across), down, across);
  const int top = tile.x * TILE::kRows, left = tile.y * TILE::kCols;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr int kWarpsAcross = TILE::kCols / TILE::kWarpCols;
  const int y = warp / kWarpsAcross * TILE::kWarpRows + lane / TILE::kAcross * 4;
  const int x = warp % kWarpsAcross * TILE::kWarpCols + lane % TILE::kAcross * 4;

  A from_a(a + nth * a_next, a_line, top, m);
  B from_b(b + nth * b_next, b_line, left, n);
  const auto copy = [&](int slot, int first) {
    if (first < k) {
      from_a.copy(a_tiles + slot * A::kFloats, k - first);
      from_b.copy(b_tiles + slot * B::kFloats, k - first);
    }
    kw::copy_async_commit();
  };
#pragma unroll
  for (int i = 0; i < TILE::kStages - 1; i++) copy(i, i * TILE::kDepth);

  kw::Vec<float, 4> of_a[2][kPieces], of_b[2][kPiecesOfB];
  const auto load = [&](int to, int slot, int i) {
#pragma unroll
    for (int j = 0; j < kPieces; j++)
      of_a[to][j] =
          kw::load<float, 4>(a_tiles + slot * A::kFloats + i * A::kPitch + y + j * TILE::kDown * 4);
#pragma unroll
    for (int j = 0; j < kPiecesOfB; j++)
      of_b[to][j] = kw::load<float, 4>(b_tiles + slot * B::kFloats + i * B::kPitch + x +
                                       j * TILE::kAcross * 4);
  };
  kw::copy_async_wait_all_but<TILE::kStages - 2>();
  __syncthreads();
  load(0, 0, 0);

  float sums[TILE::kEachRows][TILE::kEachCols] = {}, totals[TILE::kEachRows][TILE::kEachCols] = {};
  const auto add_to_totals = [&] {
#pragma unroll
    for (int r = 0; r < TILE::kEachRows; r++)
#pragma unroll
      for (int s = 0; s < TILE::kEachCols; s++) totals[r][s] += sums[r][s], sums[r][s] = 0.0f;
  };
  int slot = 0, free = TILE::kStages - 1;
  for (int first = 0; first < k; first += TILE::kDepth) {
#pragma unroll
    for (int i = 0; i < TILE::kDepth; i++) {
      if (i == TILE::kDepth - 1) {
        kw::copy_async_wait_all_but<TILE::kStages - 2>();
        __syncthreads();  // the next tile has arrived, and all loads from this one are done
        slot = slot + 1 == TILE::kStages ? 0 : slot + 1;
      }
      load((i + 1) % 2, slot, (i + 1) % TILE::kDepth);
      if (i == 0) {
        copy(free, first + (TILE::kStages - 1) * TILE::kDepth);
        free = free + 1 == TILE::kStages ? 0 : free + 1;
      }
#pragma unroll
      for (int r = 0; r < TILE::kEachRows; r++)
#pragma unroll
        for (int s = 0; s < TILE::kEachCols; s++)
          sums[r][s] = fmaf(of_a[i % 2][r / 4][r % 4], of_b[i % 2][s / 4][s % 4], sums[r][s]);
    }
    if constexpr (TILE::kTotals) add_to_totals();
  }

  c += static_cast<long long>(nth) * m * n;
#pragma unroll
  for (int r = 0; r < TILE::kEachRows; r++) {
    const int row = top + y + r / 4 * TILE::kDown * 4 + r % 4;
#pragma unroll
    for (int s = 0; s < TILE::kEachCols; s += OUT) {
      const int col = left + x + s / 4 * TILE::kAcross * 4 + s % 4;
      if (row >= m || col >= n) continue;
      float v[OUT];
#pragma unroll
      for (int i = 0; i < OUT; i++) v[i] = TILE::kTotals ? totals[r][s + i] : sums[r][s + i];
      epilogue(v, row, col, n);
      kw::store(c + static_cast<long long>(row) * n + col, kw::from_float<float>(v));
    }
  }
}

template <class TILE, matmul::Order A_ORDER, matmul::Order B_ORDER, int OUT>
__global__ void __launch_bounds__(TILE::kThreads, TILE::kBlocks)
    matmul_tuned(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
                 int m, int n, int k, long long a_line, long long b_line, long long a_next,
                 long long b_next) {
  product<TILE, A_ORDER, B_ORDER, OUT>(a, b, c, m, n, k, a_line, b_line, a_next, b_next,
                                       matmul::Nothing{});
}

template <class TILE, matmul::Order A_ORDER, matmul::Order B_ORDER, int OUT,
          matmul::Activation ACTIVATION>
__global__ void __launch_bounds__(TILE::kThreads, TILE::kBlocks)
    linear_tuned(const float *__restrict__ x, const float *__restrict__ weight,
                 const float *__restrict__ bias, const float *__restrict__ gate,
                 const float *__restrict__ residual, float *__restrict__ y, float *__restrict__ z,
                 int m, int n, int k, long long x_line, long long weight_line) {
  product<TILE, A_ORDER, B_ORDER, OUT>(x, weight, y, m, n, k, x_line, weight_line, 0, 0,
                                       matmul::Linear<ACTIVATION, float>{bias, gate, residual, z});
}

// Groups of rows, each multiplied by its own matrix: tiles of 64 x 64 on tensor cores.
//
// Idea: the number of rows of tiles is at most rows / 64 of all groups plus one per group. That
// many are launched; each block adds up the tiles of the groups until it finds its own, or that it
// has none. Both operands are contiguous along k: a lane reads 16 bytes of a row, 8 consecutive
// elements along k, instead of four pieces of 4 bytes, in the same order for both operands.
// Traffic: a matrix once per 64 rows of its group, a row once per 64 columns, mostly from L2.
// Compared with a loop over groups: one launch, and no group waits for another to end.
// Limit: mma.sync, and small tiles, with one read of shared memory per 16 multiply-adds.
#include "../gemm/mma.cuh"
#include "kw/async.cuh"

constexpr int kTile = 64, kSlice = 64, kThreads = 128, kStages = 3;
constexpr int kBytes = kTile * kSlice * 2;  // of one operand's slice

__device__ __forceinline__ int place(int row, int unit) {
  return row * (kSlice * 2) + 16 * (unit ^ (row & 1) << 2);
}

// Starts copying 64 rows, of which `rows` are inside, by 64 elements along k, of which `deep` are.
template <typename T>
__device__ __forceinline__ void copy(char *shared, const T *from, long long line, int rows,
                                     int deep) {
  const int unit = threadIdx.x % 8;
#pragma unroll
  for (int i = 0; i < kTile; i += kThreads / 8) {
    const int row = threadIdx.x / 8 + i;
    matmul::copy_async_16(shared + place(row, unit), from + row * line + 8 * unit,
                          row < rows && 8 * unit < deep ? 16 : 0);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    grouped_mma(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c,
                const int *__restrict__ offsets, int groups, int n, int k, long long a_line,
                long long b_line, long long b_next) {
  alignas(16) __shared__ char tiles[kStages][2][kBytes];
  int group = 0, begin = 0, row = blockIdx.y;  // of tiles, counted within the group
  for (;; group++) {
    if (group == groups) return;
    const int end = offsets[group], down = (end - begin + kTile - 1) / kTile;
    if (row < down) break;
    row -= down, begin = end;
  }
  const int end = offsets[group], top = begin + row * kTile, left = blockIdx.x * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int y = warp / 2 * 32, x = warp % 2 * 32;

  const T *of_a = a + top * a_line, *of_b = b + group * b_next + left * b_line;
  const auto start = [&](int slot, int first) {
    if (first < k) {
      copy(tiles[slot][0], of_a + first, a_line, end - top, k - first);
      copy(tiles[slot][1], of_b + first, b_line, n - left, k - first);
    }
    kw::copy_async_commit();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; i++) start(i, i * kSlice);

  float sums[2][4][4] = {};
  int slot = 0;
  for (int first = 0; first < k; first += kSlice) {
    kw::copy_async_wait_all_but<kStages - 2>();
    __syncthreads();  // this slice has arrived, and no thread uses the previous one
    start((slot + kStages - 1) % kStages, first + (kStages - 1) * kSlice);
    const auto load = [&](int operand, int row, int step) {
      return *reinterpret_cast<const uint4 *>(tiles[slot][operand] +
                                              place(row + lane / 4, 4 * step + lane % 4));
    };
#pragma unroll
    for (int step = 0; step < 2; step++) {
      uint4 low[2], high[2];
#pragma unroll
      for (int t = 0; t < 2; t++) {
        low[t] = load(0, y + 16 * t, step);
        high[t] = load(0, y + 16 * t + 8, step);
      }
#pragma unroll
      for (int s = 0; s < 4; s++) {
        const uint4 of_col = load(1, x + 8 * s, step);
#pragma unroll
        for (int t = 0; t < 2; t++) {
          const unsigned one[4] = {low[t].x, high[t].x, low[t].y, high[t].y};
          const unsigned two[4] = {low[t].z, high[t].z, low[t].w, high[t].w};
          matmul::multiply_add<T>(sums[t][s], one, of_col.x, of_col.y);
          matmul::multiply_add<T>(sums[t][s], two, of_col.z, of_col.w);
        }
      }
    }
    slot = (slot + 1) % kStages;
  }
#pragma unroll
  for (int t = 0; t < 2; t++)
#pragma unroll
    for (int s = 0; s < 4; s++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int r = top + y + 16 * t + lane / 4 + i / 2 * 8;
        const int col = left + x + 8 * s + lane % 4 * 2 + i % 2;
        if (r < end && col < n)
          c[static_cast<long long>(r) * n + col] = kw::from_float<T>(sums[t][s][i]);
      }
}

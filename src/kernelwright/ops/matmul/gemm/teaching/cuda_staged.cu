// c is stored through shared memory.
//
// Idea: the results of a thread are pieces of 16 bytes. The block assembles 16 rows of its tile at
// a time in shared memory and stores them row by row, 512 contiguous bytes per warp.
// Traffic: as `cuda_warp`, and c once more through shared memory.
// Compared with `cuda_warp`: an experiment. There a warp's store is 4 pieces of 128 bytes, each a
// whole line; here it is one of 512. The sectors are the same, so no benefit is expected, at a cost
// of 8 barriers per tile. 16-bit results, whose pieces are half as long, would benefit.
// Limit: as `cuda_warp`.
#include "kw/async.cuh"
#include "kw/vec.cuh"

using Four = kw::Vec<float, 4>;
constexpr int kRows = 128, kCols = 128, kDepth = 8, kEach = 8;
constexpr int kWarpRows = 32, kWarpCols = 64, kAcross = kWarpCols / kEach;  // threads of a warp
constexpr int kThreads = kRows * kCols / (kEach * kEach);

__global__ void __launch_bounds__(kThreads)
    matmul_staged(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
                  int m, int n, int k, long long lda, long long ldb) {
  alignas(16) __shared__ float a_tiles[2][kDepth][kRows + 4], b_tiles[2][kDepth][kCols];
  const int t = threadIdx.x;
  const int top = blockIdx.y * kRows, left = blockIdx.x * kCols;
  const int warp = t / 32, lane = t % 32;
  const int y = warp / (kCols / kWarpCols) * kWarpRows + lane / kAcross * 4;
  const int x = warp % (kCols / kWarpCols) * kWarpCols + lane % kAcross * 4;
  const int a_i = t % kDepth, a_r = t / kDepth, b_i = t / (kCols / 4), b_s = t % (kCols / 4) * 4;

  const auto copy = [&](int slot, int first) {
#pragma unroll
    for (int r = a_r; r < kRows; r += kThreads / kDepth) {
      float *to = &a_tiles[slot][a_i][r];
      if (top + r < m && first + a_i < k)
        kw::copy_async(to, a + (top + r) * lda + first + a_i);
      else
        *to = 0.0f;
    }
    float *to = &b_tiles[slot][b_i][b_s];
    if (left + b_s < n && first + b_i < k)
      kw::copy_async(reinterpret_cast<Four *>(to),
                     reinterpret_cast<const Four *>(b + (first + b_i) * ldb + left + b_s));
    else
      kw::store(to, Four{});
  };

  Four sums[kEach][kEach / 4] = {};
  copy(0, 0);
  for (int first = 0, slot = 0; first < k; first += kDepth, slot ^= 1) {
    kw::copy_async_wait();
    __syncthreads();  // these tiles have arrived, and no thread uses the others
    if (first + kDepth < k) copy(slot ^ 1, first + kDepth);
    const auto &a_tile = a_tiles[slot];
    const auto &b_tile = b_tiles[slot];
#pragma unroll
    for (int i = 0; i < kDepth; i++) {
      Four of_a[kEach / 4], of_b[kEach / 4];
#pragma unroll
      for (int j = 0; j < kEach / 4; j++) {
        of_a[j] = kw::load<float, 4>(&a_tile[i][y + kWarpRows / 2 * j]);
        of_b[j] = kw::load<float, 4>(&b_tile[i][x + kWarpCols / 2 * j]);
      }
#pragma unroll
      for (int r = 0; r < kEach; r++)
#pragma unroll
        for (int s = 0; s < kEach; s++)
          sums[r][s / 4][s % 4] += of_a[r / 4][r % 4] * of_b[s / 4][s % 4];
    }
  }
  // step j assembles the j-th row of every thread: 16 rows, 4 of each row of warps
  float (*strip)[kCols] = reinterpret_cast<float (*)[kCols]>(a_tiles);
  static_assert(sizeof(a_tiles) >= kRows / kEach * sizeof(*strip), "a strip fits there");
#pragma unroll
  for (int j = 0; j < kEach; j++) {
    __syncthreads();  // the tiles, or the previous strip, are no longer in use
#pragma unroll
    for (int s = 0; s < kEach / 4; s++)
      kw::store(&strip[warp / (kCols / kWarpCols) * 4 + lane / kAcross][x + s * (kWarpCols / 2)],
                sums[j][s]);
    __syncthreads();
#pragma unroll
    for (int i = warp; i < kRows / kEach; i += kThreads / 32) {
      const int row = top + i / 4 * kWarpRows + i % 4 * 4 + j / 4 * (kWarpRows / 2) + j % 4;
      const int col = left + lane * 4;
      if (row < m && col < n)
        kw::store(c + static_cast<long long>(row) * n + col,
                  kw::load<float, 4>(&strip[i][lane * 4]));
    }
  }
}

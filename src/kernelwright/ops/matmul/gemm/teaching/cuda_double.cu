// The next tile is copied while the current one is multiplied.
//
// Idea: two pairs of tiles. cp.async copies from global to shared memory without registers, and the
// thread continues immediately: it starts the copies of the next tiles and then multiplies the
// current ones. Tiles of a are copied 4 bytes at a time, because cp.async cannot transpose a
// vector.
// Traffic: as `cuda_banks`, with twice the shared memory.
// Compared with `cuda_banks`: a copy can take as long as a tile's multiplications, and there is one
// barrier per tile instead of two.
// Limit: instructions for copies: each 4-byte copy computes its address and bounds, so that a third
// of the instructions are not multiply-adds. And loads from shared memory: the 16 x 2 threads of a
// warp need 128 columns and 16 rows, 144 different values per step along k.
#include "kw/async.cuh"
#include "kw/vec.cuh"

using Four = kw::Vec<float, 4>;
constexpr int kRows = 128, kCols = 128, kDepth = 8, kEach = 8;
constexpr int kThreads = kRows * kCols / (kEach * kEach);

__global__ void __launch_bounds__(kThreads)
    matmul_double(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
                  int m, int n, int k, long long lda, long long ldb) {
  alignas(16) __shared__ float a_tiles[2][kDepth][kRows + 4], b_tiles[2][kDepth][kCols];
  const int t = threadIdx.x;
  const int top = blockIdx.y * kRows, left = blockIdx.x * kCols;
  const int y = t / (kCols / kEach) * 4, x = t % (kCols / kEach) * 4;  // and half a tile further
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
        of_a[j] = kw::load<float, 4>(&a_tile[i][y + kRows / 2 * j]);
        of_b[j] = kw::load<float, 4>(&b_tile[i][x + kCols / 2 * j]);
      }
#pragma unroll
      for (int r = 0; r < kEach; r++)
#pragma unroll
        for (int s = 0; s < kEach; s++)
          sums[r][s / 4][s % 4] += of_a[r / 4][r % 4] * of_b[s / 4][s % 4];
    }
  }
#pragma unroll
  for (int r = 0; r < kEach; r++) {
    const int row = top + y + r / 4 * (kRows / 2) + r % 4;
#pragma unroll
    for (int s = 0; s < kEach / 4; s++) {
      const int col = left + x + s * (kCols / 2);
      if (row < m && col < n) kw::store(c + static_cast<long long>(row) * n + col, sums[r][s]);
    }
  }
}

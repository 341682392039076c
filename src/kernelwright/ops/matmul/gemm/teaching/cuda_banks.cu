// No bank conflicts.
//
// Idea: each of the 32 banks provides one 4-byte value per cycle. The eight columns of a thread
// become two groups of four, 64 columns apart, so that the 16-byte loads of adjacent threads are
// adjacent; rows likewise. The rows of the transposed tile of a have 132 values instead of 128, so
// that the two halves of a warp, which are 4 rows of the tile apart, store to different banks.
// Traffic: as `cuda_vec16`.
// Compared with `cuda_vec16`: each load of b takes the minimum number of shared memory passes, and
// each store of a one pass instead of two.
// Limit: latency. Between two barriers a block either copies or multiplies, and a copy takes
// hundreds of cycles until its first use.
#include "kw/vec.cuh"

using Four = kw::Vec<float, 4>;
constexpr int kRows = 128, kCols = 128, kDepth = 8, kEach = 8;
constexpr int kThreads = kRows * kCols / (kEach * kEach);

__global__ void __launch_bounds__(kThreads)
    matmul_banks(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
                 int m, int n, int k, long long lda, long long ldb) {
  alignas(16) __shared__ float a_tile[kDepth][kRows + 4], b_tile[kDepth][kCols];
  const int t = threadIdx.x;
  const int top = blockIdx.y * kRows, left = blockIdx.x * kCols;
  const int y = t / (kCols / kEach) * 4, x = t % (kCols / kEach) * 4;  // and half a tile further
  const int a_r = t / (kDepth / 4), a_i = t % (kDepth / 4) * 4;        // four elements along k
  const int b_i = t / (kCols / 4), b_s = t % (kCols / 4) * 4;          // four elements along n

  Four sums[kEach][kEach / 4] = {};
  for (int first = 0; first < k; first += kDepth) {
    const bool a_in = top + a_r < m && first + a_i < k;
    const bool b_in = left + b_s < n && first + b_i < k;
    Four of_row = {}, of_col = {};
    if (a_in) of_row = kw::load<float, 4>(a + (top + a_r) * lda + first + a_i);
    if (b_in) of_col = kw::load<float, 4>(b + (first + b_i) * ldb + left + b_s);
#pragma unroll
    for (int j = 0; j < 4; j++) a_tile[a_i + j][a_r] = of_row[j];
    kw::store(&b_tile[b_i][b_s], of_col);
    __syncthreads();
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
    __syncthreads();
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

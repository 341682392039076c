// 16 bytes in each load and store.
//
// Idea: a thread copies four adjacent elements of a and of b with one load each. Those of a are
// stored transposed, a_tile[k][row], so that the eight values of a for one step along k are
// adjacent too.
// Traffic: as `cuda_square`.
// Compared with `cuda_square`: 4 loads of 16 bytes from shared memory for 64 multiply-adds instead
// of 16 of 4 bytes; per tile 2 loads from global memory and 5 stores instead of 8 and 8.
// Limit: remaining bank conflicts. With 8 adjacent columns per thread, threads that are four apart
// load from the same banks (two passes, not four); so do the transposed stores of a.
#include "kw/vec.cuh"

using Four = kw::Vec<float, 4>;
constexpr int kRows = 128, kCols = 128, kDepth = 8, kEach = 8;
constexpr int kThreads = kRows * kCols / (kEach * kEach);

__global__ void __launch_bounds__(kThreads)
    matmul_vec16(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
                 int m, int n, int k, long long lda, long long ldb) {
  alignas(16) __shared__ float a_tile[kDepth][kRows], b_tile[kDepth][kCols];
  const int t = threadIdx.x;
  const int top = blockIdx.y * kRows, left = blockIdx.x * kCols;
  const int y = t / (kCols / kEach) * kEach, x = t % (kCols / kEach) * kEach;
  const int a_r = t / (kDepth / 4), a_i = t % (kDepth / 4) * 4;  // four elements along k
  const int b_i = t / (kCols / 4), b_s = t % (kCols / 4) * 4;    // four elements along n

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
        of_a[j] = kw::load<float, 4>(&a_tile[i][y + 4 * j]);
        of_b[j] = kw::load<float, 4>(&b_tile[i][x + 4 * j]);
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
  for (int r = 0; r < kEach; r++)
#pragma unroll
    for (int s = 0; s < kEach / 4; s++)
      if (top + y + r < m && left + x + 4 * s < n)
        kw::store(c + static_cast<long long>(top + y + r) * n + left + x + 4 * s, sums[r][s]);
}

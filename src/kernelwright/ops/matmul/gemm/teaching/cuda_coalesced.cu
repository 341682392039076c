// The same with threadIdx.x along columns.
//
// Idea: adjacent threads of a warp compute adjacent columns, so that the elements that a warp loads
// or stores together are contiguous in memory.
// Traffic: as `cuda_naive`, but a warp's load of b and its store access 4 sectors each, all of
// whose bytes are used, and its load of a is a single address for all lanes.
// Compared with `cuda_naive`: two indices are swapped; sectors per request decrease from 32 to 4.
// Limit: two loads per multiply-add. A multiprocessor executes 128 multiply-adds per cycle, but
// loads 32 values.

__global__ void matmul_coalesced(const float *__restrict__ a, const float *__restrict__ b,
                                 float *__restrict__ c, int m, int n, int k, long long lda,
                                 long long ldb) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || col >= n) return;

  float sum = 0.0f;
  for (int i = 0; i < k; i++) sum += a[row * lda + i] * b[i * ldb + col];
  c[static_cast<long long>(row) * n + col] = sum;
}

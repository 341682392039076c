// One thread per element of c.
//
// Idea: the definition. A thread iterates along a row of a and a column of b; the threads of a warp
// take 32 rows of one column, because threadIdx.x counts rows.
// Traffic: m n k reads of a and of b where m k and k n would do; caches serve most of them. A
// warp's load of a touches 32 rows, so 32 sectors of 32 bytes for 32 values of 4; so does its
// store.
// Limit: sectors per request. L1 delivers one request's 32 sectors over many cycles.

__global__ void matmul_naive(const float *__restrict__ a, const float *__restrict__ b,
                             float *__restrict__ c, int m, int n, int k, long long lda,
                             long long ldb) {
  const int row = blockIdx.y * blockDim.x + threadIdx.x;
  const int col = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= m || col >= n) return;

  float sum = 0.0f;
  for (int i = 0; i < k; i++) sum += a[row * lda + i] * b[i * ldb + col];
  c[static_cast<long long>(row) * n + col] = sum;
}

// One thread per element of c.
//
// Idea: the definition. A thread iterates along a row of a and a column of b; the threads of a warp
// compute 32 rows of one column, because threadIdx.x counts rows.
// Traffic: m n k reads of a and of b, where m k and k n would suffice; the caches serve most of
// them. A warp's load of a accesses 32 rows, that is 32 sectors of 32 bytes for 32 values of 4
// bytes; the same applies to its store.
// Compared with `manual`: the products are not written to memory.
// Limit: sectors per request. L1 needs many cycles for the 32 sectors of one request.

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

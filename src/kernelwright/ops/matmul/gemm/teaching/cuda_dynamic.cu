// The tile's width chosen at launch.
//
// Idea: as `cuda_shared`, with a tile as wide as the block, in dynamic shared memory whose size is
// an argument of the launch. One binary is used for every width.
// Traffic: as `cuda_shared` for tiles of 32; with tiles of 16 global memory is read twice as often.
// Compared with `cuda_shared`: it shows the value of compile-time constants. The compiler can no
// longer unroll the inner loop completely or encode its offsets in the instructions: more
// instructions per multiply-add, in exchange for a choice at run time.
// Limit: instructions, and two loads per multiply-add.

__global__ void matmul_dynamic(const float *__restrict__ a, const float *__restrict__ b,
                               float *__restrict__ c, int m, int n, int k, long long lda,
                               long long ldb) {
  extern __shared__ float tiles[];
  const int tile = blockDim.x;
  float *a_tile = tiles, *b_tile = tiles + tile * tile;
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * tile + y, col = blockIdx.x * tile + x;

  float sum = 0.0f;
  for (int first = 0; first < k; first += tile) {
    a_tile[y * tile + x] = row < m && first + x < k ? a[row * lda + first + x] : 0.0f;
    b_tile[y * tile + x] = col < n && first + y < k ? b[(first + y) * ldb + col] : 0.0f;
    __syncthreads();
    for (int i = 0; i < tile; i++) sum += a_tile[y * tile + i] * b_tile[i * tile + x];
    __syncthreads();  // the next tiles overwrite these
  }
  if (row < m && col < n) c[static_cast<long long>(row) * n + col] = sum;
}

// Lesson occupancy: a matrix product with tiles, and work of equal blocks.

// y = a b, n x n, tiles of 16 x 16. A block computes TILES tiles of y side by
// side, so that a tile of a, once in shared memory, is used TILES times.
template <int TILES>
__global__ void product(const float *a, const float *b, float *y, int n) {
  __shared__ float s[16][16], t[16][16];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 * TILES + tx;
  float sum[TILES] = {};
  for (int k = 0; k < n; k += 16) {
    s[ty][tx] = a[row * n + k + tx];
    for (int c = 0; c < TILES; c++) {
      t[ty][tx] = b[(k + ty) * n + column + 16 * c];
      __syncthreads();
      for (int i = 0; i < 16; i++) sum[c] += s[ty][i] * t[i][tx];
      __syncthreads();
    }
  }
  for (int c = 0; c < TILES; c++) y[row * n + column + 16 * c] = sum[c];
}

// Each thread of each block does the same work.
__global__ void work(float *y) {
  float v = threadIdx.x;
  for (int k = 0; k < 4096; k++) v = v * 0.5f + 1;
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

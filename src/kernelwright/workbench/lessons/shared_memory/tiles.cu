// Lesson shared_memory: reads at a stride, and a transpose through a tile of
// 32 x 32 floats.

// Each lane reads one word; neighboring lanes are STRIDE words apart.
template <int STRIDE> __global__ void strided(const float *x, float *y) {
  __shared__ float s[32 * (STRIDE > 0 ? STRIDE : 1)];
  for (int i = threadIdx.x; i < 32 * (STRIDE > 0 ? STRIDE : 1); i += 32)
    s[i] = x[i];
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x * STRIDE];
}

// y is the transpose of x, both of size n x n; a block of 32 x 8 threads
// moves a tile. Tile row r begins PAD words after the end of row r - 1.
template <int PAD> __global__ void padded(const float *x, float *y, int n) {
  __shared__ float tile[32][32 + PAD];
  int column = blockIdx.x * 32 + threadIdx.x,
      row = blockIdx.y * 32 + threadIdx.y;
  for (int r = 0; r < 32; r += 8)
    tile[threadIdx.y + r][threadIdx.x] = x[(row + r) * n + column];
  __syncthreads();
  column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
  for (int r = 0; r < 32; r += 8)
    y[(row + r) * n + column] = tile[threadIdx.x][threadIdx.y + r];
}

// The same without padding: the word of column c of row r is stored at column
// c ^ r.
__global__ void swizzled(const float *x, float *y, int n) {
  __shared__ float tile[32][32];
  int c = threadIdx.x, column = blockIdx.x * 32 + c, row = blockIdx.y * 32;
  for (int r = threadIdx.y; r < 32; r += 8)
    tile[r][c ^ r] = x[(row + r) * n + column];
  __syncthreads();
  column = blockIdx.y * 32 + c, row = blockIdx.x * 32;
  for (int r = threadIdx.y; r < 32; r += 8)
    y[(row + r) * n + column] = tile[c][r ^ c];
}

// Without shared memory: the loads are coalesced, the stores are not.
__global__ void direct(const float *x, float *y, int n) {
  int column = blockIdx.x * 32 + threadIdx.x,
      row = blockIdx.y * 32 + threadIdx.y;
  for (int r = 0; r < 32; r += 8)
    y[column * n + row + r] = x[(row + r) * n + column];
}

// The tile's size is given at the launch, as the third parameter of <<<grid,
// block, bytes>>>.
__global__ void dynamic(const float *x, float *y, int n, int pitch) {
  extern __shared__ float tile[];
  int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
  for (int r = threadIdx.y; r < 32; r += 8)
    tile[r * pitch + threadIdx.x] = x[(row + r) * n + column];
  __syncthreads();
  column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32;
  for (int r = threadIdx.y; r < 32; r += 8)
    y[(row + r) * n + column] = tile[threadIdx.x * pitch + r];
}

// A tile of 32 x 32 elements through shared memory, its rows 33 apart.
//
// Idea: a warp reads along rows of x and writes along rows of y; in between, the tile is written by
// rows and read by columns. The unused 33rd element of each row puts the elements of a column into
// 32 different banks.
// Traffic: x read and y written once, in whole sectors. Without the tile either the loads or the
// stores of a warp touch 32 sectors instead of 4.
// Limit: 4 bytes per access; `permute_copy.cuda_swizzled` in the library moves 16.
constexpr int kSide = 32;

__global__ void transpose(const float *x, float *y, int rows, int columns) {
  __shared__ float tile[kSide][kSide + 1];
  const int left = blockIdx.x * kSide, top = blockIdx.y * kSide;
  for (int i = threadIdx.y; i < kSide; i += blockDim.y) {
    const int row = top + i, column = left + threadIdx.x;
    if (row < rows && column < columns) tile[i][threadIdx.x] = x[(long long)row * columns + column];
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kSide; i += blockDim.y) {
    const int row = left + i, column = top + threadIdx.x;  // of y
    if (row < columns && column < rows) y[(long long)row * rows + column] = tile[threadIdx.x][i];
  }
}

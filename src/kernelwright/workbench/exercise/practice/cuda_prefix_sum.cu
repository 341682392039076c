// A block per row: Hillis and Steele's scan of a tile in shared memory, two buffers in turn.
//
// Idea: step s adds to each element the one 2^s places before it; after log2(blockDim.x) steps each
// element holds the sum of all before it. A step reads one buffer and writes the other, so it needs
// one barrier. The block goes along its row, and carries the total of each tile to the next.
// Traffic: x read once, y written once, coalesced.
// Limit: log2(blockDim.x) additions for each element where one would do (`cumsum.cuda_blelloch`),
// each through shared memory with a barrier (`cumsum.cuda_warp` uses shuffles).

__global__ void prefix_sum(const float *x, float *y, int columns) {
  __shared__ float sums[2][128];
  const int tid = threadIdx.x;
  x += (long long)blockIdx.x * columns, y += (long long)blockIdx.x * columns;
  float carried = 0.0f;
  int now = 0;
  for (int first = 0; first < columns; first += blockDim.x) {
    now ^= 1;  // the other buffer may still be read
    sums[now][tid] = first + tid < columns ? x[first + tid] : 0.0f;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
      float sum = sums[now][tid];
      if (tid >= step) sum += sums[now][tid - step];
      now ^= 1;
      sums[now][tid] = sum;
      __syncthreads();
    }
    if (first + tid < columns) y[first + tid] = carried + sums[now][tid];
    carried += sums[now][blockDim.x - 1];
  }
}

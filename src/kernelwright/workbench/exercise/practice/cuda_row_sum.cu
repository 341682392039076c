// A block per row: a sum per thread in a register, then a tree in shared memory.
//
// Idea: thread t adds elements t, t + blockDim.x, ...; then the first half of the threads adds the
// sums of the second half to its own, again and again.
// Traffic: x read once, coalesced; one value written per row.
// Limit: log2(blockDim.x) barriers per row; `sum.cuda_shuffle` in the library needs one.

__global__ void row_sum(const float *x, float *y, int columns) {
  __shared__ float sums[256];
  const int tid = threadIdx.x;
  x += (long long)blockIdx.x * columns;
  float sum = 0.0f;
  for (int i = tid; i < columns; i += blockDim.x) sum += x[i];
  sums[tid] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (tid < half) sums[tid] += sums[tid + half];
    __syncthreads();
  }
  if (tid == 0) y[blockIdx.x] = sums[0];
}

// A block per row: two sums over the block, then one pass that normalizes.
//
// Idea: the mean first, then the mean of the squared differences from it: E[x^2] - mean^2 would
// cancel where the mean is large. Each sum is a tree in shared memory.
// Traffic: x read three times (the second and third time from L1 or L2), y written once.
// Limit: the reads after the first; `layer_norm.cuda_block` in the library keeps the row in
// registers.

__device__ float block_sum(float value) {
  __shared__ float parts[256];
  const int tid = threadIdx.x;
  __syncthreads();  // the parts of the sum before have been read
  parts[tid] = value;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (tid < half) parts[tid] += parts[tid + half];
    __syncthreads();
  }
  return parts[0];
}

__global__ void layernorm(const float *x, const float *weight, const float *bias, float *y,
                          int columns, float eps) {
  x += (long long)blockIdx.x * columns, y += (long long)blockIdx.x * columns;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += x[i];
  const float mean = block_sum(sum) / columns;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += (x[i] - mean) * (x[i] - mean);
  const float rstd = rsqrtf(block_sum(squares) / columns + eps);
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
}

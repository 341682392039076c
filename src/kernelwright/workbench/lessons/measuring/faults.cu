// Lesson measuring: three faults, one for each kernel.

// Differences of neighbors; the last thread has none.
__global__ void beyond(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i + 1] - x[i];
}

// A block reverses its elements, without the barrier between the two lines.
__global__ void unordered(const float *x, float *y) {
  __shared__ float s[128];
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

// A square root that states what it expects.
__global__ void expects(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  assert(x[i] >= 0);
  y[i] = sqrtf(x[i]);
}

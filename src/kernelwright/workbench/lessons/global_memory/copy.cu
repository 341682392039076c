// Lesson global_memory: the same number of elements, read in different
// patterns.

template <int STRIDE>
__global__ void strided(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i * STRIDE];
}

template <int OFFSET>
__global__ void shifted(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i + OFFSET];
}

// V is float, float2 or float4; n counts vectors.
template <typename V> __global__ void vectors(const V *x, V *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}

// Kernels that touch memory that is not theirs, or not as it lies.

__global__ void reads_one_more(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i + 1];
}

__global__ void writes_one_more(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) y[i] = i < n ? x[i] : 0.0f;
}

__global__ void reads_one_before(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i - 1];
}

// Rows of a wider tensor: what lies between them is another's.
__global__ void reads_between_rows(const float *x, float *y, int cols, int stride) {
  const int row = blockIdx.x, col = threadIdx.x;
  y[row * cols + col] = x[row * stride + col + 1];
}

__global__ void misaligned_vector(const float *x, float *y, int n) {
  const int i = threadIdx.x * 4 + 1;
  if (i + 3 < n) *reinterpret_cast<float4 *>(y + i - 1) = *reinterpret_cast<const float4 *>(x + i);
}

__global__ void beyond_static_shared(const float *x, float *y) {
  __shared__ float s[32];
  const int i = threadIdx.x;
  s[i + 1] = x[i];
  __syncthreads();
  y[i] = s[i];
}

__global__ void beyond_dynamic_shared(const float *x, float *y) {
  extern __shared__ float dynamic[];
  const int i = threadIdx.x;
  dynamic[i] = x[i];
  __syncthreads();
  y[i] = dynamic[i + 1];
}

__global__ void null(const float *x, float *y) {
  if (threadIdx.x == 3) y[0] = x[0];
}

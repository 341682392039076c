// Kernels that read what nobody has written.

__global__ void shared_never_written(const float *x, float *y) {
  __shared__ float s[64];
  const int i = threadIdx.x;
  if (i < 32) s[i] = x[i];
  __syncthreads();
  y[i] = s[i];
}

__global__ void adds_to_its_result(const float *x, float *y) {
  const int i = threadIdx.x;
  y[i] += x[i];
}

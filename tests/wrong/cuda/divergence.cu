// Kernels whose threads do not meet where they must.

__global__ void barrier_in_a_branch(const float *x, float *y) {
  __shared__ float s[64];
  const int i = threadIdx.x;
  s[i] = x[i];
  if (i < 32) {
    __syncthreads();
    y[i] = s[63 - i];
  } else {
    __syncthreads();  // another
    y[i] = s[63 - i] + 1;
  }
}

// The upper half has ended: nobody waits for it, so this alone is no error.
__global__ void ended_before_the_barrier(const float *x, float *y) {
  const int i = threadIdx.x;
  if (i >= 32) return;
  __syncthreads();
  y[i] = x[i];
}

__global__ void barrier_and_shuffle(const float *x, float *y) {
  const int i = threadIdx.x;
  float v = x[i];
  if (i % 32 < 16)
    __syncthreads();
  else
    v = __shfl_xor_sync(0xffffffffu, v, 1);
  y[i] = v;
}

__global__ void lanes_that_never_come(const float *x, float *y) {
  const int i = threadIdx.x;
  if (i < 16) __syncwarp(0xffffffffu);
  __syncthreads();
  y[i] = x[i];
}

__global__ void mask_without_itself(const float *x, float *y) {
  const int i = threadIdx.x;
  __syncwarp(0x0000ffffu);
  y[i] = x[i];
}

__global__ void shuffle_from_an_ended_lane(const float *x, float *y) {
  const int i = threadIdx.x;
  if (i >= 16) return;
  y[i] = x[i] + __shfl_down_sync(0xffffffffu, x[i], 8);
}

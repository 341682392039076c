// Kernels that race: each lacks one thing that would order its threads.

// A thread reads what its neighbour writes.
__global__ void read_before_written(const float *x, float *y) {
  __shared__ float s[64];
  const int i = threadIdx.x;
  s[i] = x[i];
  y[i] = s[63 - i];
}

// A thread writes what its neighbour still reads.
__global__ void written_before_read(const float *x, float *y) {
  __shared__ float s[64];
  const int i = threadIdx.x;
  s[i] = x[i];
  __syncthreads();
  const float other = s[63 - i];
  s[i] = other + 1;
  __syncthreads();
  y[i] = s[i];
}

// Two threads write one place.
__global__ void written_twice(const float *x, float *y) {
  __shared__ float s[64];
  const int i = threadIdx.x;
  s[i / 32 + i % 32] = x[i];
  __syncthreads();
  y[i] = s[i % 33];
}

// The tutorials of 2007: volatile, and no word between the steps of a warp.
__global__ void lockstep(const float *x, float *y) {
  __shared__ float memory[64];
  volatile float *s = memory;
  const int i = threadIdx.x;
  memory[i] = x[i];
  __syncthreads();
  if (i >= 32) return;
  s[i] = s[i] + s[i + 32];
  s[i] = s[i] + s[i + 16];
  y[i] = s[i];
}

// A shuffle waits for its lanes and orders no memory.
__global__ void shuffle_is_no_barrier(const float *x, float *y) {
  __shared__ float s[32];
  const int i = threadIdx.x;
  s[i] = x[i];
  const float sum = __shfl_xor_sync(0xffffffffu, x[i], 1);
  y[i] = s[31 - i] + sum;
}

// Half a warp is waited for, the other half is read.
__global__ void half_a_mask(const float *x, float *y) {
  __shared__ float s[32];
  const int i = threadIdx.x;
  s[i] = x[i];
  __syncwarp(i < 16 ? 0x0000ffffu : 0xffff0000u);
  y[i] = s[31 - i];
}

// Every block counts, and none atomically.
__global__ void counter(int *count) {
  if (threadIdx.x == 0) *count = *count + 1;
}

// The block that comes last reads what the others wrote: counted, but no fence before.
__global__ void counted_without_fence(const float *x, float *parts, unsigned *arrived, float *y) {
  if (threadIdx.x != 0) return;
  parts[blockIdx.x] = x[blockIdx.x];
  if (atomicInc(arrived, gridDim.x - 1) != gridDim.x - 1) return;
  __threadfence();
  float sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += parts[b];
  *y = sum;
}

// Atomic in one thread, plain in another.
__global__ void half_atomic(int *count) {
  if (threadIdx.x == 0)
    *count = 1;
  else
    atomicAdd(count, 1);
}

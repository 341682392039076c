// Kernels without a fault that a careless check would find: what orders memory besides a barrier.

// The last block to count itself reads what the others wrote: fence, atomic, atomic, fence.
__global__ void counted_with_fences(const float *x, float *parts, unsigned *arrived, float *y) {
  if (threadIdx.x == 0) parts[blockIdx.x] = x[blockIdx.x];
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 1) {  // what thread 0 wrote before the barrier is handed over too
    __threadfence();
    last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    if (last) __threadfence();
  }
  if (!__syncthreads_or(last) || threadIdx.x != 0) return;
  float sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += parts[b];
  *y = sum;
}

// A chain of blocks, each waiting for the flag of the one before: volatile words are no race, and a
// fence on each side hands over what is plain.
__global__ void chain(const float *x, volatile unsigned *flags, float *sums, float *y) {
  if (threadIdx.x != 0) return;
  float before = 0;
  if (blockIdx.x > 0) {
    while (!flags[blockIdx.x - 1]) {
    }
    __threadfence();
    before = sums[blockIdx.x - 1];
  }
  sums[blockIdx.x] = before + x[blockIdx.x];
  __threadfence();
  flags[blockIdx.x] = 1;
  if (blockIdx.x == gridDim.x - 1) *y = before + x[blockIdx.x];
}

// Warps hand over through shared memory, by an atomic flag and fences of the block's scope.
__global__ void warp_to_warp(const float *x, float *y) {
  __shared__ float s;
  __shared__ unsigned full;
  if (threadIdx.x == 0) full = 0;
  __syncthreads();
  if (threadIdx.x == 32) {
    s = x[0];
    __threadfence_block();
    atomicExch(&full, 1u);
  } else if (threadIdx.x == 0) {
    while (atomicAdd(&full, 0u) == 0) __nanosleep(1);
    __threadfence_block();
    *y = s;
  }
}

// Halves of a warp wait for themselves only, and touch only their own.
__global__ void two_halves(const float *x, float *y) {
  __shared__ float s[32];
  const int i = threadIdx.x;
  s[i] = x[i];
  __syncwarp(i < 16 ? 0x0000ffffu : 0xffff0000u);
  y[i] = s[i ^ 15];
}

// Atomics on one place are no race, whatever their order; the barrier orders the plain read.
__global__ void histogram(const int *x, int *y) {
  __shared__ int found[4];
  if (threadIdx.x < 4) found[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&found[x[threadIdx.x] & 3], 1);
  __syncthreads();
  if (threadIdx.x < 4) y[threadIdx.x] = found[threadIdx.x];
}

// Bytes beside each other are each their thread's own.
__global__ void bytes(const unsigned char *x, unsigned char *y) {
  __shared__ unsigned char s[64];
  const int i = threadIdx.x;
  s[i] = x[i];
  y[i] = s[i];
}

// A memcpy does not count on alignment.
__global__ void copies_bytes(const unsigned char *x, unsigned char *y) {
  if (threadIdx.x != 0) return;
  unsigned long long eight;
  memcpy(&eight, x + 1, 8);
  memcpy(y + 1, &eight, 8);
  y[0] = x[0];
}

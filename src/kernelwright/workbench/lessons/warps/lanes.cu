// Lesson warps: branches, loops and exchanges between the lanes of a warp.

// Odd and even threads, or odd and even warps, take different sides.
template <bool BY_WARP> __global__ void branch(const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int which = BY_WARP ? i / 32 : i;
  float v = x[i];
  if (which % 2 == 0) {
    for (int k = 0; k < 64; k++) v = v / 2 + 1;
    y[i] = v;
  } else {
    for (int k = 0; k < 64; k++) v = sqrtf(v) + 1;
    y[i] = v;
  }
}

// The first `bound` threads of a block store.
__global__ void below(const float *x, float *y, int bound) {
  if (threadIdx.x < bound) y[threadIdx.x] = x[threadIdx.x];
}

// Lane k runs k + 1 iterations.
__global__ void uneven(const float *x, float *y) {
  int lane = threadIdx.x % 32;
  float sum = 0;
  for (int k = 0; k <= lane; k++) sum += x[32 * k + lane];
  y[threadIdx.x] = sum;
}

// A warp's sum of 64 values in shared memory, as written before 2017.
__global__ void volatile_sum(const float *x, float *y) {
  __shared__ volatile float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  s[t + 32] = x[t + 32];
  s[t] += s[t + 32];
  s[t] += s[t + 16];
  s[t] += s[t + 8];
  s[t] += s[t + 4];
  s[t] += s[t + 2];
  s[t] += s[t + 1];
  if (t == 0) y[0] = s[0];
}

// The same, ordered: every lane reads before any writes, and writes before
// any reads.
__global__ void synchronized_sum(const float *x, float *y) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = x[t] + x[t + 32];
  for (int step = 16; step > 0; step /= 2) {
    __syncwarp();
    float other = t < step ? s[t + step] : 0;
    __syncwarp();
    s[t] += other;
  }
  if (t == 0) y[0] = s[0];
}

// Without memory: each lane reads a register of the lane `step` further.
__global__ void shuffled_sum(const float *x, float *y) {
  int t = threadIdx.x;
  float sum = x[t] + x[t + 32];
  for (int step = 16; step > 0; step /= 2)
    sum += __shfl_down_sync(0xffffffff, sum, step);
  if (t == 0) y[0] = sum;
}

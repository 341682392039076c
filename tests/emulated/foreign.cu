// Kernels of somebody else's, some of which end the process that they run in.

__global__ void reverse(const float *x, float *y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[n - 1 - threadIdx.x];
}

// Adds to what may be the same memory, and says so.
__global__ void add(const float *x, float *y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] += x[threadIdx.x];
  if (threadIdx.x == 0) printf("added %d\n", n);
}

// y[k] += x[k] for every pair of tensors that the table names.
__global__ void add_lists(float *const *table, int n) {
  table[2 * blockIdx.x + 1][threadIdx.x] += table[2 * blockIdx.x][threadIdx.x];
}

__global__ void writes_behind(float *y, int n) {
  if (threadIdx.x == 0) y[n] = 1;
  if (threadIdx.x < n) y[threadIdx.x] = 0;
}

__global__ void reads_far(const float *x, float *y, int n) { y[threadIdx.x] = x[n + (1 << 20)]; }

__global__ void destroys(float *y, int n) {
  if (threadIdx.x == 3) {
    y[n + 16] = 1;
    __builtin_trap();  // as a process ends whose memory is in disorder
  }
}

__global__ void ends(float *y, int n) {
  y[threadIdx.x] = 1;
  __builtin_trap();
}

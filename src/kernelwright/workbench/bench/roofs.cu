// Kernels that measure the machine's limits, one kernel per limit.
//
// stream: R input and W output streams of n 16-byte vectors. UNROLL vectors of every input are in
// flight before the first is used. cache_read: all blocks together read a small buffer repeatedly,
// each block another part of it in every pass. shared_read: 16 bytes per thread and step. empty:
// the cost of a launch.

__device__ __forceinline__ uint4 operator^(uint4 a, uint4 b) {
  return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w);
}

// Prevents the compiler from removing the loads: practically no data triggers the store, but the
// compiler cannot prove that.
__device__ __forceinline__ void consume(uint4 x, uint4 *sink) {
  if (x.x == 0x9e3779b9u && x.y == 0x7f4a7c15u && x.z == 0xf39cc060u && x.w == 0x5cedc834u)
    *sink = x;
}

template <bool STREAMING> __device__ __forceinline__ uint4 load(const uint4 *p) {
  return STREAMING ? __ldcs(p) : *p;
}
template <bool STREAMING> __device__ __forceinline__ void store(uint4 *p, uint4 x) {
  if (STREAMING)
    __stcs(p, x);
  else
    *p = x;
}

// Pointers beyond R and W are not accessed; a read-only stream uses its first output as the sink.
template <int R, int W, int UNROLL, bool STREAMING>
__global__ void stream(const uint4 *r0, const uint4 *r1, const uint4 *r2, const uint4 *r3,
                       uint4 *w0, uint4 *w1, uint4 *w2, long long n) {
  const uint4 *in[4] = {r0, r1, r2, r3};
  uint4 *out[3] = {w0, w1, w2};
  const long long tile = (long long)blockDim.x * UNROLL;
  uint4 sum = make_uint4(0, 0, 0, 0);
  for (long long base = blockIdx.x * tile; base < n; base += gridDim.x * tile) {
    const long long first = base + threadIdx.x;
    if (base + tile <= n) {
      uint4 x[R > 0 ? R : 1][UNROLL];
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int u = 0; u < UNROLL; u++) x[r][u] = load<STREAMING>(in[r] + first + u * blockDim.x);
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        uint4 y = make_uint4(u, 1, 2, 3);
#pragma unroll
        for (int r = 0; r < R; r++) y = y ^ x[r][u];
#pragma unroll
        for (int w = 0; w < W; w++) store<STREAMING>(out[w] + first + u * blockDim.x, y);
        if (W == 0) sum = sum ^ y;
      }
    } else {
      for (int u = 0; u < UNROLL; u++) {
        const long long i = first + u * blockDim.x;
        if (i >= n) break;
        uint4 y = make_uint4(u, 1, 2, 3);
#pragma unroll
        for (int r = 0; r < R; r++) y = y ^ load<STREAMING>(in[r] + i);
#pragma unroll
        for (int w = 0; w < W; w++) store<STREAMING>(out[w] + i, y);
        if (W == 0) sum = sum ^ y;
      }
    }
  }
  if (W == 0) consume(sum, w0);
}

// Reads n vectors (a power of two) through L2, `passes` times; ld.global.cg bypasses L1.
__global__ void cache_read(const uint4 *x, uint4 *sink, int n, int passes) {
  uint4 sum = make_uint4(0, 0, 0, 0);
  const int share = n / gridDim.x / blockDim.x;  // vectors per thread and pass
  for (int p = 0; p < passes; p++) {
    const int start = (blockIdx.x + p * 37) % gridDim.x * share * blockDim.x + threadIdx.x;
#pragma unroll 8
    for (int i = 0; i < share; i++) sum = sum ^ __ldcg(x + start + i * blockDim.x);
  }
  consume(sum, sink);
}

// `steps` conflict-free 16-byte reads per thread from 16 KiB of shared memory.
__global__ void shared_read(uint4 *sink, int steps) {
  __shared__ uint4 tile[1024];
  tile[threadIdx.x] = make_uint4(threadIdx.x, blockIdx.x, 2, 3);
  __syncthreads();
  uint4 sum = make_uint4(0, 0, 0, 0);
  int at = threadIdx.x;
#pragma unroll 16
  for (int i = 0; i < steps; i++) {
    sum = sum ^ tile[at];
    at = (at + 32) & 1023;
  }
  consume(sum, sink);
}

__global__ void empty() {}

// Kernels of one primitive each; test_emulator.py holds what they should give.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

__global__ void indices(int *out) {
  const int blocks = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int threads = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int all = blockDim.x * blockDim.y * blockDim.z;
  out[blocks * all + threads] = blocks * 10000 + threads;
}

// static and dynamic shared memory, the dynamic under two names
__device__ void reverse(float *x) {
  extern __shared__ __align__(16) float dynamic[];
  const float mine = dynamic[blockDim.x - 1 - threadIdx.x];
  __syncthreads();
  *x = mine;
}
__global__ void shared_memory(float *x, int *aligned) {
  __shared__ double doubles[3];
  __shared__ float4 vectors[64];
  extern __shared__ __align__(16) float dynamic[];
  extern __shared__ __align__(16) unsigned char same_place[];
  if (threadIdx.x < 3) doubles[threadIdx.x] = threadIdx.x;
  vectors[threadIdx.x] = make_float4(0, 0, 0, x[threadIdx.x]);
  __syncthreads();
  reinterpret_cast<float *>(same_place)[threadIdx.x] = vectors[threadIdx.x].w + float(doubles[2]);
  __syncthreads();
  reverse(x + threadIdx.x);
  aligned[0] = (size_t)dynamic % 16 == 0 && (size_t)vectors % 16 == 0;
}

__global__ void block_votes(const int *in, int *out) {
  const int i = threadIdx.x, n = blockDim.x;
  out[i] = __syncthreads_count(in[i]);
  out[n + i] = __syncthreads_and(in[i]);
  out[2 * n + i] = __syncthreads_or(in[i]);
}

template <typename T>
__global__ void shuffles(const T *in, T *out, unsigned mask, int by, int width) {
  const int i = threadIdx.x;
  if (!(mask >> i & 1)) return;
  out[i] = __shfl_sync(mask, in[i], by, width);
  out[32 + i] = __shfl_up_sync(mask, in[i], by, width);
  out[64 + i] = __shfl_down_sync(mask, in[i], by, width);
  out[96 + i] = __shfl_xor_sync(mask, in[i], by, width);
}

__global__ void votes(const int *in, int *out, unsigned mask) {
  const int i = threadIdx.x;
  if (!(mask >> i & 1)) return;
  out[i] = __ballot_sync(mask, in[i]);
  out[32 + i] = __any_sync(mask, in[i]);
  out[64 + i] = __all_sync(mask, in[i]);
  out[96 + i] = __match_any_sync(mask, in[i]);
  int same;
  out[128 + i] = __match_all_sync(mask, in[i], &same);
  out[160 + i] = same;
  out[192 + i] = __reduce_add_sync(mask, in[i]);
  out[224 + i] = __reduce_min_sync(mask, in[i]);
  out[256 + i] = __reduce_max_sync(mask, (unsigned)in[i]);
  out[288 + i] = __reduce_xor_sync(mask, (unsigned)in[i]);
}

// Two halves of a warp go different ways, each with its own mask and number of operations.
__global__ void diverged(int *out) {
  const int i = threadIdx.x;
  int value = i;
  if (i < 20) {
    for (int d = 0; d < 5; ++d) value = __shfl_sync(0xfffffu, value, (i + 1) % 20);
  } else {
    value = __shfl_sync(0xfff00000u, value, 31);
  }
  __syncwarp();
  out[i] = value + 100 * __popc(__ballot_sync(0xffffffffu, i < 20));
}

// Lanes that have ended are not waited for.
__global__ void ended(int *out) {
  const int i = threadIdx.x;
  if (i % 32 >= 20) return;
  int value = i;
  __syncwarp();
  value += __shfl_up_sync(0xffffffffu, value, 1);
  __syncthreads();
  out[i] = value;
}

__global__ void active(int *out) {
  const int i = threadIdx.x;
  if (i % 3 == 0)
    out[i] = __activemask();
  else
    out[i] = ~__activemask();
}

template <typename T> __global__ void atomics(T *cells, const T *in, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(cells, in[i]);
  atomicMin(cells + 1, in[i]);
  atomicMax_block(cells + 2, in[i]);
  T old = cells[3], seen;
  do seen = old, old = atomicCAS(cells + 3, seen, T(seen + in[i]));
  while (old != seen);
  if (i == 0) atomicExch_system(cells + 4, in[i]);
}
__global__ void integer_atomics(unsigned *cells, int n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicSub(cells, 1);
  atomicInc(cells + 1, 6);
  atomicDec(cells + 2, 6);
  atomicAnd(cells + 3, ~(1u << i % 32));
  atomicOr(cells + 4, 1u << i % 7);
  atomicXor(cells + 5, i);
}
template <typename T> __global__ void add_atomically(T *cell, int bits) {
  const unsigned short low = bits;
  T value;
  memcpy(&value, &low, 2);
  atomicAdd(cell, value);
}
__global__ void add_pairs(float *out) {
  __shared__ __half2 h;
  __shared__ __nv_bfloat162 b;
  if (threadIdx.x == 0) h = __floats2half2_rn(0, 0), b = __floats2bfloat162_rn(0, 0);
  __syncthreads();
  atomicAdd(&h, __floats2half2_rn(1, 2));
  atomicAdd(&b, __floats2bfloat162_rn(1, 2));
  __syncthreads();
  if (threadIdx.x == 0) {
    out[0] = __low2float(h), out[1] = __high2float(h);
    out[2] = __low2float(b), out[3] = __high2float(b);
  }
}

template <typename T>
__global__ void arithmetic(const T *a, const T *b, const T *c, T *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    out[i] = a[i] + b[i];
    out[n + i] = __hsub(a[i], b[i]);
    out[2 * n + i] = a[i] * b[i];
    out[3 * n + i] = a[i] / b[i];
    out[4 * n + i] = __hfma(a[i], b[i], c[i]);
    out[5 * n + i] = __hmax(a[i], b[i]);
    out[6 * n + i] = __hmin_nan(a[i], b[i]);
  }
}
template <typename T>
__global__ void to_and_from(const T *in, float *wide, const float *from, T *out, int n, int m) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) wide[i] = in[i];
  for (int i = threadIdx.x; i < m; i += blockDim.x) out[i] = T(from[i]);
}
template <typename T> __global__ void from_double(const double *from, T *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = T(from[i]);
}
__global__ void pairs(const __half *in, __half *out) {
  const __half2 a = *reinterpret_cast<const __half2 *>(in + 2 * threadIdx.x);
  const __half2 y = __hfma2(a, __float2half2_rn(2), __lowhigh2highlow(a));
  reinterpret_cast<__half2 *>(out)[threadIdx.x] = __hmul2(y, __half2half2(__float2half(0.5f)));
}

__global__ void bits(const unsigned *in, unsigned *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const unsigned x = in[i], y = in[(i + 1) % n];
    out[i] = __popc(x);
    out[n + i] = __clz(int(x));
    out[2 * n + i] = __ffs(int(x));
    out[3 * n + i] = __brev(x);
    out[4 * n + i] = __byte_perm(x, y, 0x6b21);
    out[5 * n + i] = __umulhi(x, y);
    out[6 * n + i] = __funnelshift_l(x, y, 7);
    out[7 * n + i] = __float_as_uint(__uint_as_float(x));
    out[8 * n + i] = unsigned(__double2hiint(__hiloint2double(int(x), int(y))));
  }
}

__global__ void maths(const float *in, float *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const float x = in[i];
    out[i] = __expf(x);
    out[n + i] = rsqrtf(fabsf(x));
    out[2 * n + i] = __fdividef(1.0f, x);
    out[3 * n + i] = __saturatef(x);
    out[4 * n + i] = exp2f(x);
    out[5 * n + i] = __fmaf_rn(x, x, 1.0f);
    out[6 * n + i] = float(__float2int_rn(x));
    out[7 * n + i] = max(x, 0.0f) + min(1, 2ll) + sinpif(0.5f);
    out[8 * n + i] = __frcp_rn(x) + normcdff(0.0f);
  }
}

__constant__ float table[4] = {1, 2, 4, 8};
__device__ int launches_so_far = 0;
__global__ void __launch_bounds__(32)
    hints(const float4 *__restrict__ in, float4 *out, const __grid_constant__ int k) {
  float4 v = __ldg(in + threadIdx.x);
  v.x += __ldcs(&in[threadIdx.x].x) + __ldcg(&in[threadIdx.x].y);
#pragma unroll
  for (int i = 0; i < 4; ++i) v.w += table[i] * k;
  __threadfence();
  if (threadIdx.x == 0) atomicAdd(&launches_so_far, 1);
  __syncthreads();
  v.z = launches_so_far;
  __stcs(out + threadIdx.x, v);
}

__global__ void groups(const int *in, int *out) {
  const auto block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  const int i = block.thread_rank(), n = block.size();
  out[i] = cg::reduce(tile, in[i], cg::plus<int>());
  out[n + i] = tile.shfl_xor(in[i], 4);
  out[2 * n + i] = tile.meta_group_rank() * 100 + tile.thread_rank();
  block.sync();
  out[3 * n + i] = -1;
  if (in[i] % 2) {
    const auto odd = cg::coalesced_threads();
    out[3 * n + i] = odd.shfl(in[i], 0) * 100 + odd.thread_rank();
  }
}

// Threads of a block that wait for each other in loops, in both directions.
__global__ void hand_over(volatile int *turn, int *out) {
  for (int round = 0; round < 3; ++round) {
    while (*turn != (round * blockDim.x + threadIdx.x));
    out[round * blockDim.x + threadIdx.x] = *turn;
    *turn = *turn + 1;
  }
}
// A block that waits for the one before it.
__global__ void chain(volatile int *flags, int *out) {
  const int b = blockIdx.x;
  if (b > 0)
    while (flags[b - 1] == 0) __nanosleep(10);
  out[b] = b == 0 ? 1 : out[b - 1] + 1;
  __threadfence();
  flags[b] = 1;
}

// Everybody writes: what is left depends on the order.
__global__ void last_one(int *out) {
  __shared__ int last;
  last = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = last;
}

__global__ void says(int n) {
  if (threadIdx.x < n) printf("thread %d of %s\n", threadIdx.x, "a block");
}

__global__ void scales(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i] + 1;
}
__global__ void meets(const float *x, float *y, int n) {
  __shared__ float s[256];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  const float other = s[255 - threadIdx.x];
  __syncthreads();
  if (i < n) y[i] = other;
}

// ---- kernels that go wrong
__global__ void asserts(const int *in) {
  assert(in[threadIdx.x] < 5);
  __syncthreads();
}
__global__ void stops() {
  if (threadIdx.y == 1) __trap();
}
__global__ void waits_for_ever() {
  if (threadIdx.x < 16)
    __syncwarp();
  else
    __syncthreads();
}
__global__ void loops_for_ever(volatile int *x) { while (*x == 0); }
__global__ void reaches_nowhere(int *x) { x[threadIdx.x == 3 ? 1ll << 44 : 0] = 1; }
__global__ void divides(int *x) { x[1] = x[1] / x[0]; }
__global__ void misaligned(float *x) {
  *reinterpret_cast<float4 *>(x + 4) = *reinterpret_cast<float4 *>(x + 1);
}
__global__ void not_in_its_mask() { __shfl_sync(0xffffu, 1, 0); }
__global__ void overflows_its_stack(int *x) {
  volatile char room[1 << 20];
  for (int i = (1 << 20) - 1; i >= 0; i -= 512) room[i] = x[0];
  x[1] = room[5];
}

// Accesses whose cost is known, by one warp.
#include <kw/async.cuh>
#include <kw/vec.cuh>

__global__ void coalesced(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void shifted(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x + 1]; }
__global__ void apart(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x * 8]; }
__global__ void same(const float *x, float *y) { y[threadIdx.x] = x[5]; }
__global__ void vectors(const float *x, float *y) {
  kw::store<float, 4>(y + 4 * threadIdx.x, kw::load_streaming<float, 4>(x + 4 * threadIdx.x));
}
__global__ void atomics(const float *x, float *y) { atomicAdd(y + threadIdx.x % 2, x[0]); }

template <int STRIDE> __global__ void banks(const float *x, float *y) {
  __shared__ float s[32 * 32];
  s[threadIdx.x * STRIDE] = x[0];
  y[threadIdx.x] = s[threadIdx.x * STRIDE];
}
// Vectors of BYTES of which SHARE neighbours read the same, STRIDE apart.
template <typename V, int SHARE, int STRIDE> __global__ void wide(const float *x, float *y) {
  __shared__ V s[32 * STRIDE];
  const V v = s[threadIdx.x / SHARE * STRIDE];
  y[threadIdx.x] = v.x + x[0];
}
__global__ void elements(const float *x, float *y) {
  __shared__ kw::Vec<float, 4> s[32];
  s[threadIdx.x] = kw::load<float, 4>(x + 4 * threadIdx.x);
  __syncthreads();
  float f[4];
  kw::to_float(s[threadIdx.x], f);
  y[threadIdx.x] = f[0] + f[1] + f[2] + f[3];
}
__global__ void copied(const float *x, float *y) {
  __shared__ float s[32];
  kw::copy_async(s + threadIdx.x, x + threadIdx.x);
  kw::copy_async_wait();
  __syncthreads();
  y[threadIdx.x] = s[31 - threadIdx.x];
}

// Lane t goes round t % 4 times.
__global__ void rounds(const float *x, float *y) {
  float sum = 0;
  for (unsigned i = 0; i < threadIdx.x % 4; ++i) sum += x[threadIdx.x];
  y[threadIdx.x] = sum;
}
// The lanes that read take turns.
__global__ void turns(const float *x, float *y) {
  float sum = 0;
  for (unsigned i = 0; i < 4; ++i)
    if (threadIdx.x % 4 == i) sum += x[threadIdx.x];
  y[threadIdx.x] = sum;
}
__global__ void halves(const float *x, float *y) {
  if (threadIdx.x < 16)
    y[threadIdx.x] = x[threadIdx.x];
  else
    y[threadIdx.x] = 2 * x[threadIdx.x];
}
__global__ void selects(const float *x, float *y) {
  const float v = x[threadIdx.x];
  y[threadIdx.x] = v > 16 || v != v ? v * v + 1 : v / 3;
}
// Half of the lanes have left when the others meet.
__global__ void leaves(const float *x, float *y) {
  if (threadIdx.x >= 16) return;
  y[threadIdx.x] = __shfl_down_sync(0xffff, x[threadIdx.x], 1);
}

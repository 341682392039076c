// One element per thread.
//
// Idea: the formula as in PyTorch, in one kernel; a thread computes its index and one value.
// Traffic: x read once, y written once: the minimum; `manual` moves 5 to 24 times as many bytes.
// Compared with `numba_thread`: 16-bit types are supported.
// Limit: a warp's load of 16-bit elements is 64 bytes, so that too few bytes are in flight to hide
// DRAM latency; erff and the index take more issue slots than there are per element.
#include "kw/types.cuh"

template <bool TANH> __device__ __forceinline__ float gelu(float x) {
  if constexpr (TANH) {
    const float u = 0.79788456f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(u));
  }
  return 0.5f * x * (1.0f + erff(0.70710678f * x));
}

template <bool TANH> __device__ __forceinline__ float gelu_slope(float x) {
  if constexpr (TANH) {
    const float tanh = tanhf(0.79788456f * (x + 0.044715f * x * x * x));
    const float inner = 0.79788456f * (1.0f + 0.134145f * x * x);
    return 0.5f * (1.0f + tanh) + 0.5f * x * (1.0f - tanh * tanh) * inner;
  }
  const float density = 0.39894228f * expf(-0.5f * x * x);
  return 0.5f * (1.0f + erff(0.70710678f * x)) + x * density;
}

template <typename T, bool TANH> __global__ void gelu_fwd_thread(const T *x, T *y, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = kw::from_float<T>(gelu<TANH>(kw::to_float(x[i])));
}

template <typename T, bool TANH>
__global__ void gelu_bwd_thread(const T *gy, const T *x, T *gx, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) gx[i] = kw::from_float<T>(kw::to_float(gy[i]) * gelu_slope<TANH>(kw::to_float(x[i])));
}

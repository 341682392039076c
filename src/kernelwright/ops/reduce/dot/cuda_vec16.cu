// The backward: both gradients in 16-byte vectors.
//
// Idea: a thread reads a vector of each operand and writes the gradient of the other operand.
// Traffic: both operands read once, both gradients written once: the minimum.
// Compared with `native`: one kernel instead of two.
// Limit: DRAM bandwidth.
#include "kw/vec.cuh"

template <typename T, int BLOCK>
__global__ void __launch_bounds__(BLOCK) dot_bwd_vec16(const T *gy, const T *x, const T *other,
                                                       T *gx, T *gother, long long n, int aligned) {
  constexpr int N = kw::kVecWidth<T>;
  const float g = kw::to_float(*gy);
  const long long first = ((long long)blockIdx.x * BLOCK + threadIdx.x) * N;
  if (aligned && first + N <= n) {
    float a[N], b[N];
    kw::to_float(kw::load<T, N>(x + first), a), kw::to_float(kw::load<T, N>(other + first), b);
#pragma unroll
    for (int i = 0; i < N; ++i) a[i] *= g, b[i] *= g;
    kw::store(gx + first, kw::from_float<T>(b)), kw::store(gother + first, kw::from_float<T>(a));
  } else {
    for (long long i = first; i < min(first + N, n); ++i) {
      gx[i] = kw::from_float<T>(g * kw::to_float(other[i]));
      gother[i] = kw::from_float<T>(g * kw::to_float(x[i]));
    }
  }
}

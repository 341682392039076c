// What a histogram's kernels share: an element's bin, and a walk over all elements.
#pragma once
#include <kw/vec.cuh>

namespace kw {

template <typename T> __device__ __forceinline__ double as_double(T x) { return double(x); }
__device__ __forceinline__ double as_double(__half x) { return double(to_float(x)); }
__device__ __forceinline__ double as_double(__nv_bfloat16 x) { return double(to_float(x)); }

// Intervals of equal width between two ends, in float64: float32 would round elements across them.
struct Bins {
  double low, high, scale;
  int count;

  __device__ __forceinline__ Bins(double low, double high, int count)
      : low(low), high(high), scale(count / (high - low)), count(count) {}

  // -1 of an element that is in none, a NaN among them.
  template <typename T> __device__ __forceinline__ int operator()(T x) const {
    const double at = as_double(x);
    if (!(at >= low && at <= high)) return -1;
    return min(int((at - low) * scale), count - 1);
  }
};

// `use(x)` of this thread's share of n elements: vectors of WIDTH, VECS of them on their way.
template <int WIDTH, int VECS, int BLOCK, typename T, typename Use>
__device__ __forceinline__ void for_each_element(const T *x, long long n, const Use &use) {
  const long long step = (long long)gridDim.x * (BLOCK * VECS);
  const long long vectors = n / WIDTH;
  for (long long i = (long long)blockIdx.x * (BLOCK * VECS) + threadIdx.x; i < vectors; i += step) {
    Vec<T, WIDTH> v[VECS];
#pragma unroll
    for (int k = 0; k < VECS; ++k)
      if (i + k * BLOCK < vectors) v[k] = load<T, WIDTH>(x + (i + k * BLOCK) * WIDTH);
#pragma unroll
    for (int k = 0; k < VECS; ++k)
      if (i + k * BLOCK < vectors)
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) use(v[k][j]);
  }
  const long long rest = vectors * WIDTH + threadIdx.x;  // fewer than WIDTH
  if (blockIdx.x == 0 && rest < n) use(x[rest]);
}

}  // namespace kw

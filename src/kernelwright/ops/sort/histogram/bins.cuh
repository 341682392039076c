// Shared by the kernels of a histogram: the bin of an element, and a loop over all elements.
#pragma once
#include <kw/vec.cuh>

namespace kw {

template <typename T> __device__ __forceinline__ double as_double(T x) { return double(x); }
__device__ __forceinline__ double as_double(__half x) { return double(to_float(x)); }
__device__ __forceinline__ double as_double(__nv_bfloat16 x) { return double(to_float(x)); }

// Intervals of equal width, in float64: in float32, rounding would move elements across their ends.
struct Bins {
  double low, high, scale;
  int count;

  __device__ __forceinline__ Bins(double low, double high, int count)
      : low(low), high(high), scale(count / (high - low)), count(count) {}

  // -1 for an element that is in no bin, including NaN.
  template <typename T> __device__ __forceinline__ int operator()(T x) const {
    const double at = as_double(x);
    if (!(at >= low && at <= high)) return -1;
    return min(int((at - low) * scale), count - 1);
  }
};

// Calls `use(x)` for this thread's part of n elements: vectors of WIDTH, VECS of them in flight.
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
  const long long rest = vectors * WIDTH + threadIdx.x;  // fewer than WIDTH elements
  if (blockIdx.x == 0 && rest < n) use(x[rest]);
}

}  // namespace kw

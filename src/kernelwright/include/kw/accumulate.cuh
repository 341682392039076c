// Accumulation types of reductions, and vector reads of memory that is not aligned to 16 bytes.
#pragma once
#include <kw/types.cuh>
#include <kw/vec.cuh>

namespace kw {

// float for types of at most 32 bits, double for double.
template <typename T> struct Accumulator {
  using type = float;
};
template <> struct Accumulator<double> {
  using type = double;
};
template <typename T> using acc_t = typename Accumulator<T>::type;

template <typename T> __device__ __forceinline__ float widen(T x) { return to_float(x); }
__device__ __forceinline__ double widen(double x) { return x; }

template <typename T, int N>
__device__ __forceinline__ void widen(const Vec<T, N> &x, float (&out)[N]) {
  to_float(x, out);
}
template <int N> __device__ __forceinline__ void widen(const Vec<double, N> &x, double (&out)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = x[i];
}

template <typename Out> __device__ __forceinline__ Out narrow(float x) {
  return from_float<Out>(x);
}
template <typename Out> __device__ __forceinline__ Out narrow(double x) { return Out(x); }

// Sums the elements of a vector, or of several vectors, pairwise: the rounding error grows with
// log2 of the number of elements instead of with the number.
template <typename T, int N> __device__ __forceinline__ acc_t<T> pairwise(const Vec<T, N> &x) {
  acc_t<T> a[N];
  widen(x, a);
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < half; ++i) a[i] += a[i + half];
  return a[0];
}
template <typename T, int N, int COUNT>
__device__ __forceinline__ acc_t<T> pairwise(const Vec<T, N> (&x)[COUNT]) {
  static_assert((COUNT & (COUNT - 1)) == 0, "halving needs a power of two");
  acc_t<T> a[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) a[k] = pairwise(x[k]);
#pragma unroll
  for (int half = COUNT / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k) a[k] += a[k + half];
  return a[0];
}

// Divides the n elements from x on into 16-byte vectors: `head` elements before the first aligned
// address, `count` whole vectors and `tail` elements after the last vector.
template <typename T> struct Vectors {
  static constexpr int W = kVecWidth<T>;
  const T *x;
  long long count;
  int head, tail;

  __device__ __forceinline__ Vectors(const T *start, long long n) : x(start) {
    const int past = int(reinterpret_cast<unsigned long long>(start) % 16 / sizeof(T));
    head = past ? W - past : 0;
    if (head > n) head = int(n);
    count = (n - head) / W;
    tail = int(n - head - count * W);
  }
  // Loads COUNT vectors that are `step` apart, with zeros past the last one. All loads are issued
  // before the first result is used. This needs a separate branch without bounds checks: with a
  // predicate for each load the compiler runs out of predicate registers and places additions
  // between the loads.
  template <int COUNT>
  __device__ __forceinline__ void load(Vec<T, W> (&v)[COUNT], long long first, int step) const {
    const T *from = x + head + first * W;
    if (first + (COUNT - 1) * step < count) {
#pragma unroll
      for (int k = 0; k < COUNT; ++k) v[k] = load_streaming<T, W>(from + k * step * W);
    } else {
#pragma unroll
      for (int k = 0; k < COUNT; ++k)
        v[k] = first + k * step < count ? load_streaming<T, W>(from + k * step * W) : Vec<T, W>{};
    }
  }
  // The elements outside whole vectors, one of each end per lane, in lanes 0 to W - 2; other lanes
  // get zeros. They are returned without being added up, so that the caller can add them after the
  // vectors and does not wait for them separately.
  __device__ __forceinline__ Vec<T, 2> edge(int lane) const {
    return {lane < head ? x[lane] : T(0), lane < tail ? x[head + count * W + lane] : T(0)};
  }
};

}  // namespace kw

// N elements of T that one instruction moves (up to 16 bytes).
#pragma once
#include "kw/types.cuh"

namespace kw {

template <typename T, int N> struct alignas(sizeof(T) * N) Vec {
  static_assert(sizeof(T) * N <= 16, "one instruction moves at most 16 bytes");
  T v[N];
  __device__ __forceinline__ T &operator[](int i) { return v[i]; }
  __device__ __forceinline__ const T &operator[](int i) const { return v[i]; }
};

// The number of elements in 16 bytes.
template <typename T> constexpr int kVecWidth = 16 / sizeof(T);

template <typename T, int N> __device__ __forceinline__ Vec<T, N> load(const T *p) {
  return *reinterpret_cast<const Vec<T, N> *>(p);
}
template <typename T, int N> __device__ __forceinline__ void store(T *p, const Vec<T, N> &x) {
  *reinterpret_cast<Vec<T, N> *>(p) = x;
}

// The same for data that is not read again soon: the caches evict it first.
template <typename T, int N> __device__ __forceinline__ Vec<T, N> load_streaming(const T *p) {
  static_assert(sizeof(Vec<T, N>) == 16, "16 bytes at a time");
  const uint4 bits = __ldcs(reinterpret_cast<const uint4 *>(p));
  Vec<T, N> x;
  memcpy(&x, &bits, 16);
  return x;
}
template <typename T, int N>
__device__ __forceinline__ void store_streaming(T *p, const Vec<T, N> &x) {
  static_assert(sizeof(Vec<T, N>) == 16, "16 bytes at a time");
  uint4 bits;
  memcpy(&bits, &x, 16);
  __stcs(reinterpret_cast<uint4 *>(p), bits);
}

// Converts all elements; 16-bit types are converted two at a time.
template <typename T, int N>
__device__ __forceinline__ void to_float(const Vec<T, N> &x, float (&out)[N]) {
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      typename Pair<T>::type pair;
      memcpy(&pair, &x.v[i], 4);
      const float2 two = to_float2(pair);
      out[i] = two.x, out[i + 1] = two.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = to_float(x[i]);
  }
}
template <typename T, int N> __device__ __forceinline__ Vec<T, N> from_float(const float (&in)[N]) {
  Vec<T, N> x;
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const auto pair = Pair<T>::from(in[i], in[i + 1]);
      memcpy(&x.v[i], &pair, 4);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = from_float<T>(in[i]);
  }
  return x;
}

}  // namespace kw

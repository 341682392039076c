// N elements of T moved by one instruction (up to 16 bytes).
#pragma once

namespace kw {

template <typename T, int N> struct alignas(sizeof(T) * N) Vec {
  static_assert(sizeof(T) * N <= 16, "one instruction moves at most 16 bytes");
  T v[N];
  __device__ __forceinline__ T &operator[](int i) { return v[i]; }
  __device__ __forceinline__ const T &operator[](int i) const { return v[i]; }
};

// As many elements as fill 16 bytes.
template <typename T> constexpr int kVecWidth = 16 / sizeof(T);

template <typename T, int N> __device__ __forceinline__ Vec<T, N> load(const T *p) {
  return *reinterpret_cast<const Vec<T, N> *>(p);
}
template <typename T, int N> __device__ __forceinline__ void store(T *p, const Vec<T, N> &x) {
  *reinterpret_cast<Vec<T, N> *>(p) = x;
}

}  // namespace kw

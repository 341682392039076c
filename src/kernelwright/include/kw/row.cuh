// Shared by kernels that hold a row in registers: loads and stores of vectors that may lie past the
// end of the row, and sums over the warps of a row.
#pragma once
#include "kw/reduce.cuh"
#include "kw/vec.cuh"

namespace kw {

template <int BYTES> struct Words;
template <> struct Words<4> {
  using type = unsigned;
};
template <> struct Words<8> {
  using type = uint2;
};
template <> struct Words<16> {
  using type = uint4;
};

// Loads the vector at p, or fills it with `other` if it lies past the end of the row. The vector is
// filled and moved in 32-bit words, because selecting single 16-bit values would cost an
// instruction each.
template <typename T, int N>
__device__ __forceinline__ Vec<T, N> load_or(const T *p, bool inside, float other) {
  const T value = from_float<T>(other);
  if constexpr (sizeof(Vec<T, N>) < 4) {
    return {inside ? *p : value};
  } else {
    Vec<T, N> x;
#pragma unroll
    for (T &v : x.v) v = value;
    typename Words<sizeof(x)>::type words;
    memcpy(&words, &x, sizeof(x));
    if (inside) words = *reinterpret_cast<const decltype(words) *>(p);
    memcpy(&x, &words, sizeof(x));
    return x;
  }
}

// Stores x at p unless p lies past the end of the row.
template <typename T, int N>
__device__ __forceinline__ void store_if(T *p, bool inside, const Vec<T, N> &x) {
  if constexpr (sizeof(x) < 4) {
    if (inside) *p = x[0];
  } else {
    typename Words<sizeof(x)>::type words;
    memcpy(&words, &x, sizeof(x));
    if (inside) *reinterpret_cast<decltype(words) *>(p) = words;
  }
}

// The same, with a hint that L2 should evict the result before data that will be read again.
template <typename T, int N>
__device__ __forceinline__ void store_streaming_if(T *p, bool inside, const Vec<T, N> &x) {
  if constexpr (sizeof(x) < 4) {
    if (inside) *p = x[0];
  } else {
    typename Words<sizeof(x)>::type words;
    memcpy(&words, &x, sizeof(x));
    if (inside) __stcs(reinterpret_cast<decltype(words) *>(p), words);
  }
}

// Optimization barrier: returns x, opaque to the compiler (blockIdx.z is 0). Without it the
// compiler keeps the floats of one pass unpacked for the next pass, which takes twice the
// registers.
template <typename T, int N> __device__ __forceinline__ Vec<T, N> opaque(Vec<T, N> x) {
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
    unsigned words[N / 2];
    memcpy(words, &x, sizeof(x));
#pragma unroll
    for (unsigned &w : words) w ^= blockIdx.z;
    memcpy(&x, words, sizeof(x));
  }
  return x;
}

// Every warp of a block or cluster adds up the same N parts (a power of two) from shared memory.
template <int N> __device__ __forceinline__ float reduce_parts(const float *parts) {
  const int lane = threadIdx.x % 32;
  float all = parts[lane % N];
#pragma unroll
  for (int i = 32; i < N; i += 32) all += parts[lane + i];
  return warp_reduce<Sum, (N < 32 ? N : 32)>(all);
}

}  // namespace kw

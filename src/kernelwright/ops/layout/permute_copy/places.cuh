// Positions of the elements of a permutation.
#pragma once

namespace kw {

// Divides a by a positive number in place and returns the remainder. 64-bit divisions take five
// times as long.
__device__ __forceinline__ long long divide(long long &a, long long by) {
  long long rest;
  if (((a | by) >> 32) == 0) {
    const unsigned quotient = unsigned(a) / unsigned(by);
    rest = unsigned(a) - quotient * unsigned(by);
    a = quotient;
  } else {
    rest = a % by;
    a /= by;
  }
  return rest;
}

// Up to three dimensions around the elements that a thread processes, the innermost first.
struct Outer {
  long long size[3], x[3], y[3];
};

// The first elements of the k-th outer position; false if there are not as many.
__device__ __forceinline__ bool outer_place(const Outer &outer, long long k, long long &x,
                                            long long &y) {
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    if (outer.size[d] == 1) continue;
    const long long i = divide(k, outer.size[d]);
    x += i * outer.x[d];
    y += i * outer.y[d];
  }
  return k == 0;
}

// The number of a block in a grid whose columns are full.
__device__ __forceinline__ long long block_number() {
  return (long long)blockIdx.y * gridDim.x + blockIdx.x;
}

template <int BYTES> struct Element;
template <> struct Element<1> {
  using type = unsigned char;
};
template <> struct Element<2> {
  using type = unsigned short;
};
template <> struct Element<4> {
  using type = unsigned;
};
template <> struct Element<8> {
  using type = unsigned long long;
};

}  // namespace kw

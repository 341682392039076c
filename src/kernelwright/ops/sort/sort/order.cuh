// Elements of any type as unsigned integers of their size, in the order of PyTorch's sort: -0.0
// equals 0.0, all NaNs are equal and greater than any number. Kernels move the bits of an element,
// and look at its order only where they compare, so that zeros and NaNs arrive as they were.
#pragma once
#include <kw/types.cuh>

namespace kw {

template <int BYTES> struct BitsOf;
template <> struct BitsOf<1> {
  using type = unsigned char;
};
template <> struct BitsOf<2> {
  using type = unsigned short;
};
template <> struct BitsOf<4> {
  using type = unsigned;
};
template <> struct BitsOf<8> {
  using type = unsigned long long;
};
template <typename T> using bits_t = typename BitsOf<sizeof(T)>::type;

template <typename U> constexpr U kSign = U(U(1) << (8 * sizeof(U) - 1));

// The bits of infinity; 0 of integers.
template <typename T> constexpr bits_t<T> kInfinity = 0;
template <> constexpr unsigned short kInfinity<__half> = 0x7c00;
template <> constexpr unsigned short kInfinity<__nv_bfloat16> = 0x7f80;
template <> constexpr unsigned kInfinity<float> = 0x7f800000u;
template <> constexpr unsigned long long kInfinity<double> = 0x7ff0000000000000ull;

template <typename T> __device__ __forceinline__ bits_t<T> order_of(bits_t<T> x) {
  using U = bits_t<T>;
  constexpr U sign = kSign<U>;
  if constexpr (kInfinity<T> != 0) {
    if (U(x & U(~sign)) > kInfinity<T>) return U(~U(0));
    if (x == sign) return sign;
    return U(x ^ (x & sign ? U(~U(0)) : sign));
  } else {
    return T(-1) < T(0) ? U(x ^ sign) : x;
  }
}

// The order backwards, for a descending sort: equal elements stay in their order.
template <typename T> __device__ __forceinline__ bits_t<T> order_of(bits_t<T> x, bool descending) {
  using U = bits_t<T>;
  return U(order_of<T>(x) ^ (descending ? U(~U(0)) : U(0)));
}

}  // namespace kw

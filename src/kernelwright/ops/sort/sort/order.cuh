// Elements of any type as unsigned integers of their size, in the order of PyTorch's sort: -0.0
// equals 0.0; all NaNs are equal and greater than any number. Kernels move the original bits of an
// element and convert them only for comparisons, so that zeros and NaNs are unchanged.
#pragma once
#include <kw/types.cuh>

namespace kw {

template <int BYTES> struct BitsOf;
template <> struct BitsOf<1> {
  using type = unsigned char;
  using with_sign = signed char;
};
template <> struct BitsOf<2> {
  using type = unsigned short;
  using with_sign = short;
};
template <> struct BitsOf<4> {
  using type = unsigned;
  using with_sign = int;
};
template <> struct BitsOf<8> {
  using type = unsigned long long;
  using with_sign = long long;
};
template <typename T> using bits_t = typename BitsOf<sizeof(T)>::type;
template <typename T> using signed_t = typename BitsOf<sizeof(T)>::with_sign;

template <typename U> constexpr U kSign = U(U(1) << (8 * sizeof(U) - 1));

// The bits of infinity; 0 for integers.
template <typename T> constexpr bits_t<T> kInfinity = 0;
template <> constexpr unsigned short kInfinity<__half> = 0x7c00;
template <> constexpr unsigned short kInfinity<__nv_bfloat16> = 0x7f80;
template <> constexpr unsigned kInfinity<float> = 0x7f800000u;
template <> constexpr unsigned long long kInfinity<double> = 0x7ff0000000000000ull;

// The bits of a number where zero is positive and NaN has all bits set except the sign. In single
// precision an addition of 0 does both: the only NaN that CUDA's arithmetic returns is 0x7fffffff.
template <typename T> __device__ __forceinline__ bits_t<T> canonical(bits_t<T> x) {
  using U = bits_t<T>;
  constexpr U sign = kSign<U>;
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 4) {
    asm("add.rn.f32 %0, %0, 0f00000000;" : "+r"(x));
    return x;
  }
#endif
  const U number = x == sign ? U(0) : x;
  return U(x & U(~sign)) > kInfinity<T> ? U(~sign) : number;
}

template <typename T> __device__ __forceinline__ bits_t<T> order_of(bits_t<T> x) {
  using U = bits_t<T>;
  constexpr U sign = kSign<U>;
  if constexpr (kInfinity<T> != 0) {
    const U number = canonical<T>(x);
    return number ^ U(U(signed_t<T>(number) >> (8 * sizeof(U) - 1)) | sign);
  } else {
    return T(-1) < T(0) ? U(x ^ sign) : x;
  }
}

// A bfloat16 is the upper half of a float.
template <> __device__ __forceinline__ unsigned short order_of<__nv_bfloat16>(unsigned short x) {
  return (unsigned short)(order_of<float>(unsigned(x) << 16) >> 16);
}

// The reverse order, for a descending sort: equal elements keep their order.
template <typename T> __device__ __forceinline__ bits_t<T> order_of(bits_t<T> x, bool descending) {
  using U = bits_t<T>;
  return U(order_of<T>(x) ^ (descending ? U(~U(0)) : U(0)));
}

}  // namespace kw

// Operands of mma.sync out of a cache's rows. A product does not depend on the order along k, so a
// lane takes neighbors in memory: of keys a unit of 16 bytes of a row, of values the same elements
// of two rows, which byte permutes pair. 16-bit elements are multiplied as they are; 8-bit ones
// become float16, which holds each of them exactly.
#pragma once
#include "../../../matmul/gemm/mma.cuh"

namespace split {

// Elements of a cache: Operand, the type that is multiplied; kPairs, pairs of it in 4 bytes.
template <typename T> struct Plain {
  using Operand = T;
  static constexpr int kBytes = 2, kPairs = 1;
  static __device__ __forceinline__ void expand(unsigned word, unsigned *pairs) { *pairs = word; }
};

// Four bytes as two registers of float16.
struct E4M3 {
  using Operand = __half;
  static constexpr int kBytes = 1, kPairs = 2;
  static __device__ __forceinline__ void expand(unsigned word, unsigned *pairs) {
#ifdef __CUDA_ARCH__
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
        : "=r"(pairs[0]), "=r"(pairs[1])
        : "r"(word));
#else
    pairs[0] = pairs[1] = 0;
    for (int i = 0; i < 4; i++)
      pairs[i / 2] |= static_cast<unsigned>(value(word >> 8 * i & 0xff)) << 16 * (i % 2);
#endif
  }
#ifndef __CUDA_ARCH__
  // Seven bits are a float16's, whose exponent counts from 8 less.
  static unsigned short value(unsigned bits) {
    const auto size = static_cast<unsigned short>((bits & 0x7f) << 7);
    const float x = 256.0f * __half2float(__ushort_as_half(size));
    const auto half = (bits & 0x7f) == 0x7f ? 0x7fff : __half_as_ushort(__float2half_rn(x));
    return static_cast<unsigned short>(half | (bits & 0x80) << 8);
  }
#endif
};

// The upper byte of a float16.
struct E5M2 {
  using Operand = __half;
  static constexpr int kBytes = 1, kPairs = 2;
  static __device__ __forceinline__ void expand(unsigned word, unsigned *pairs) {
    pairs[0] = __byte_perm(word, 0, 0x1404);
    pairs[1] = __byte_perm(word, 0, 0x3424);
  }
};

// 0x6400 + b are the bits of 1024 + b; a byte with its sign turned is 128 more than the integer.
struct Int8 {
  using Operand = __half;
  static constexpr int kBytes = 1, kPairs = 2;
  static __device__ __forceinline__ unsigned less_1152(unsigned bits) {
    __half2 x, offset;
    constexpr unsigned kOffset = 0x64806480;
    memcpy(&x, &bits, 4);
    memcpy(&offset, &kOffset, 4);
    x = __hsub2(x, offset);
    memcpy(&bits, &x, 4);
    return bits;
  }
  static __device__ __forceinline__ void expand(unsigned word, unsigned *pairs) {
    word ^= 0x80808080u;
    pairs[0] = less_1152(__byte_perm(word, 0x64646464u, 0x4140));
    pairs[1] = less_1152(__byte_perm(word, 0x64646464u, 0x4342));
  }
};

// Pairs (element i of a, element i of b) of two words of a cache.
template <class E>
__device__ __forceinline__ void across(unsigned a, unsigned b, unsigned (&pairs)[2 * E::kPairs]) {
  constexpr bool kNarrow = E::kBytes == 1;
  E::expand(__byte_perm(a, b, kNarrow ? 0x5140 : 0x5410), pairs);
  E::expand(__byte_perm(a, b, kNarrow ? 0x7362 : 0x7632), pairs + E::kPairs);
}

// Two numbers in a register.
template <typename T> __device__ __forceinline__ unsigned packed(float a, float b) {
  const auto pair = kw::Pair<T>::from(a, b);
  unsigned bits;
  memcpy(&bits, &pair, 4);
  return bits;
}

// Start copying BYTES (8 or 16), or zeros if they are not `inside`.
template <int BYTES>
__device__ __forceinline__ void copy_or_zero(char *shared, const char *from, bool inside) {
  if constexpr (BYTES == 16) {
    matmul::copy_async_16(shared, from, inside ? 16 : 0);
  } else {
    static_assert(BYTES == 8, "a unit has 8 or 16 bytes");
#ifdef __CUDA_ARCH__
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
                 "r"(inside ? 8 : 0)
                 : "memory");
#else
    uint2 unit = {};
    if (inside) memcpy(&unit, from, 8);
    *reinterpret_cast<uint2 *>(shared) = unit;
#endif
  }
}

}  // namespace split

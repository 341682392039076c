// Random 32-bit words defined by a seed and a counter, and stochastic rounding with them.
#pragma once
#include <kw/types.cuh>

namespace kw {

// The 64-bit product of two words: the lower half in x, the upper half in y. The multiplication is
// written in PTX because NVRTC 13.0 computes `1ull * a * b`, and the exclusive or with its halves,
// entirely in 64 bits, which includes an addition of cross terms that are 0.
__device__ __forceinline__ uint2 multiply_wide(unsigned a, unsigned b) {
  uint2 product;
#ifdef __CUDA_ARCH__
  asm("{ .reg .u64 t; mul.wide.u32 t, %2, %3; mov.b64 {%0, %1}, t; }"
      : "=r"(product.x), "=r"(product.y)
      : "r"(a), "r"(b));
#else
  const unsigned long long t = 1ull * a * b;
  product = {unsigned(t), unsigned(t >> 32)};
#endif
  return product;
}

// Moves a seed that is the same in all threads of a warp to a uniform register, so that the scalar
// unit computes the keys of every round. All threads of the warp must call it.
__device__ __forceinline__ unsigned long long uniform(unsigned long long seed) {
#ifdef __CUDA_ARCH__
  const unsigned low = __reduce_or_sync(0xffffffffu, unsigned(seed));
  return low | static_cast<unsigned long long>(__reduce_or_sync(0xffffffffu, unsigned(seed >> 32)))
                   << 32;
#else
  return seed;
#endif
}

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): each
// 128-bit counter becomes four words. All counters use one key schedule.
template <int N>
__device__ __forceinline__ void philox_rounds(unsigned long long seed, uint4 (&c)[N]) {
  unsigned key0 = unsigned(seed), key1 = unsigned(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (uint4 &x : c) {
      const uint2 a = multiply_wide(0xD2511F53u, x.x), b = multiply_wide(0xCD9E8D57u, x.z);
      x = {b.y ^ x.y ^ key0, b.x, a.y ^ x.w ^ key1, a.x};
    }
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
}

// Four random words for a 64-bit counter.
__device__ __forceinline__ uint4 philox(unsigned long long seed, unsigned long long counter) {
  uint4 c[1] = {{unsigned(counter), unsigned(counter >> 32), 0, 0}};
  philox_rounds(seed, c);
  return c[0];
}

// Rounds up or down depending on 16 random bits; the mean over all 2^16 of them is x. Infinity and
// NaN are returned unchanged. The code has no branches, because NVRTC 13.0 did not terminate on a
// version with branches.
__device__ __forceinline__ __nv_bfloat16 round_stochastic(float x, unsigned random) {
  constexpr unsigned kInfinite = 0x7f800000u, kQuiet = 0x00400000u;
  const unsigned bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  const unsigned special = bits | (size > kInfinite ? kQuiet : 0);
  const unsigned rounded = size >= kInfinite ? special : bits + random;
  return __ushort_as_bfloat16(static_cast<unsigned short>(rounded >> 16));
}

}  // namespace kw

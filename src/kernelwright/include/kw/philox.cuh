// Random 32-bit words that a seed and a counter define, and rounding by them.
#pragma once
#include <kw/types.cuh>

namespace kw {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four
// words for each 64-bit counter.
__device__ __forceinline__ uint4 philox(unsigned long long seed, unsigned long long counter) {
  unsigned key0 = unsigned(seed), key1 = unsigned(seed >> 32);
  uint4 c = {unsigned(counter), unsigned(counter >> 32), 0, 0};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xD2511F53ull * c.x, b = 0xCD9E8D57ull * c.z;
    c = {unsigned(b >> 32) ^ c.y ^ key0, unsigned(b), unsigned(a >> 32) ^ c.w ^ key1, unsigned(a)};
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  return c;
}

// Up or down by 16 random bits; the mean over all of them is x. An infinity or a NaN has no
// neighbours. Without branches, on which NVRTC 13.0 has been seen to compile for ever.
__device__ __forceinline__ __nv_bfloat16 round_stochastic(float x, unsigned random) {
  constexpr unsigned kInfinite = 0x7f800000u, kQuiet = 0x00400000u;
  const unsigned bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  const unsigned special = bits | (size > kInfinite ? kQuiet : 0);
  const unsigned rounded = size >= kInfinite ? special : bits + random;
  return __ushort_as_bfloat16(static_cast<unsigned short>(rounded >> 16));
}

}  // namespace kw

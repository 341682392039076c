// The random words of eight neighbours: philox.cuh's, for a fifth fewer instructions.
//
// NVRTC 13.0 carries philox.cuh's products and what is xored to them through in 64 bits: each
// product of two words gets an addition of cross terms, which are 0. Here PTX says that words are
// multiplied; and two counters go through the rounds together, under one schedule of keys.
#pragma once
#include "kw/dropout.cuh"

namespace kw {

// The 64-bit product of two words: the lower half in x, the upper in y.
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

// words[4 i ... 4 i + 3] = philox(seed, 2 octet + i)
__device__ __forceinline__ void octet_words(unsigned long long seed, unsigned long long octet,
                                            unsigned (&words)[kOctet]) {
  unsigned key0 = unsigned(seed), key1 = unsigned(seed >> 32);
  const unsigned low = unsigned(octet) * 2, high = unsigned(octet >> 31);
  uint4 c[2] = {{low, high, 0, 0}, {low + 1, high, 0, 0}};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (uint4 &x : c) {
      const uint2 a = multiply_wide(0xD2511F53u, x.x), b = multiply_wide(0xCD9E8D57u, x.z);
      x = {b.y ^ x.y ^ key0, b.x, a.y ^ x.w ^ key1, a.x};
    }
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    words[4 * i] = c[i].x, words[4 * i + 1] = c[i].y;
    words[4 * i + 2] = c[i].z, words[4 * i + 3] = c[i].w;
  }
}

// What an octet's elements are multiplied with: `Dropout::factor` of `Dropout::bits`, without the
// bits. Where all are dropped no word may be kept: `threshold` has 25 bits then, of which a word
// compares 24, and every factor is 0.
template <Draw DRAW> struct Factors {
  unsigned long long seed;
  unsigned threshold;
  float scale;

  __device__ __forceinline__ Factors(const Dropout<DRAW> &dropout)
      : seed(dropout.seed),
        threshold(dropout.threshold << 8),
        scale(dropout.threshold >> 24 ? 0.0f : dropout.scale) {}

  __device__ __forceinline__ void get(long long octet, float (&factor)[kOctet]) const {
    if constexpr (DRAW == Draw::kNone) {
#pragma unroll
      for (float &f : factor) f = 1.0f;
    } else {
      unsigned words[kOctet];
      octet_words(seed, octet, words);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) factor[i] = words[i] >= threshold ? scale : 0.0f;
    }
  }
};

}  // namespace kw

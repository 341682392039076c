// Calls of adjacent sequences at one position, and the conversion of their words.
#pragma once
#include "../stream.cuh"

namespace kw {

// The words of a position in N adjacent sequences below 2^32. They share one product in each of the
// first two rounds; the other product of the first round is that of the previous sequence plus a
// constant.
template <int N>
__device__ __forceinline__ void neighbours(const Stream &stream, unsigned position,
                                           unsigned sequence, uint4 (&calls)[N]) {
  constexpr unsigned kEven = 0xD2511F53u, kOdd = 0xCD9E8D57u;
  const unsigned long long at = stream.first + position;
  unsigned key0 = unsigned(stream.seed), key1 = unsigned(stream.seed >> 32);
  const uint2 even = multiply_wide(kEven, unsigned(at)), first = multiply_wide(kOdd, sequence);
  const unsigned shared = even.y ^ key1;
  const unsigned long long product = static_cast<unsigned long long>(first.y) << 32 | first.x;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const unsigned long long odd = product + static_cast<unsigned long long>(k) * kOdd;
    calls[k] = {unsigned(odd >> 32) ^ unsigned(at >> 32) ^ key0, unsigned(odd), shared, even.x};
  }
  key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  const uint2 same = multiply_wide(kOdd, shared);
#pragma unroll
  for (uint4 &x : calls) {
    const uint2 own = multiply_wide(kEven, x.x);
    x = {same.y ^ x.y ^ key0, same.x, own.y ^ x.w ^ key1, own.x};
  }
#pragma unroll
  for (int round = 2; round < 10; ++round) {
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
#pragma unroll
    for (uint4 &x : calls) {
      const uint2 a = multiply_wide(kEven, x.x), b = multiply_wide(kOdd, x.z);
      x = {b.y ^ x.y ^ key0, b.x, a.y ^ x.w ^ key1, a.x};
    }
  }
}

// Two values of a distribution. A uniform number that must become 0 is multiplied by 0 instead of
// being replaced: comparisons and selections use the busiest pipe, multiplications do not.
template <typename Distribution>
__device__ __forceinline__ void pair_of(const Distribution &distribution, unsigned a, unsigned b,
                                        float &x, float &y) {
  distribution.pair(a, b, x, y);
}
template <typename T>
__device__ __forceinline__ void pair_of(const Uniform<T> &, unsigned a, unsigned b, float &x,
                                        float &y) {
  x = unit(a), y = unit(b);
  x *= x < kRoundsToOne<T> ? 1.0f : 0.0f, y *= y < kRoundsToOne<T> ? 1.0f : 0.0f;
}

}  // namespace kw

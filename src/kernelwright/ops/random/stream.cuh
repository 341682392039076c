// The random numbers of PyTorch's CUDA generator: cuRAND's Philox4x32-10, whose 128-bit counter is
// a position in a sequence (lower half) and the number of the sequence (upper half).
#pragma once
#include "kw/philox.cuh"
#include "kw/vec.cuh"

namespace kw {

// A generator's seed and offset. PyTorch advances offsets by multiples of four: one per word.
struct Stream {
  unsigned long long seed, first;

  // All threads of a warp take part: the seed is theirs together.
  __device__ __forceinline__ explicit Stream(const long long *state)
      : seed(uniform(state[0])), first(static_cast<unsigned long long>(state[1]) >> 2) {}

  __device__ __forceinline__ uint4 counter(unsigned long long position,
                                           unsigned long long sequence) const {
    const unsigned long long at = first + position;
    return {unsigned(at), unsigned(at >> 32), unsigned(sequence), unsigned(sequence >> 32)};
  }
  __device__ __forceinline__ uint4 words(unsigned long long position,
                                         unsigned long long sequence) const {
    uint4 c[1] = {counter(position, sequence)};
    philox_rounds(seed, c);
    return c[0];
  }
};

// The words of a position in N neighbouring sequences below 2^32. They share a product in each of
// the first two rounds, and the other of the first is the one before plus a constant.
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

__device__ __forceinline__ unsigned word(const uint4 &words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// A uniform number in (0, 1], as cuRAND makes it: 24 bits near 1, more near 0.
__device__ __forceinline__ float unit(unsigned word) {
  return fmaf(__uint2float_rn(word), 0x1p-32f, 0x1p-33f);
}

// The least number that rounds to 1 in T: half of the spacing below 1 away; for float 1 itself.
template <typename T> constexpr float kRoundsToOne = 1.0f;
template <> constexpr float kRoundsToOne<__half> = 1.0f - 0x1p-12f;
template <> constexpr float kRoundsToOne<__nv_bfloat16> = 1.0f - 0x1p-9f;

// Distributions. `pair` makes two values of two neighbouring words of a call, still in float.

// [0, 1): what would be 1 in T is 0.
template <typename T> struct Uniform {
  __device__ __forceinline__ void pair(unsigned a, unsigned b, float &x, float &y) const {
    x = one(a), y = one(b);
  }
  static __device__ __forceinline__ float one(unsigned word) {
    const float u = unit(word);
    return u >= kRoundsToOne<T> ? 0.0f : u;
  }
};

// Box and Muller's: a radius of the first word, an angle of the second. The sum makes -0.0 of the
// radius 0 to 0.0, as PyTorch's addition of the mean does.
template <typename T> struct Normal {
  __device__ __forceinline__ void pair(unsigned a, unsigned b, float &x, float &y) const {
    constexpr float kTurn = 0x1p-32f * 6.2831855f;
    const float radius = sqrtf(-2.0f * logf(unit(a)));
    float sine, cosine;
    __sincosf(fmaf(__uint2float_rn(b), kTurn, kTurn / 2), &sine, &cosine);
    x = fmaf(radius * sine, 1.0f, 0.0f), y = fmaf(radius * cosine, 1.0f, 0.0f);
  }
};

// 1 with probability p.
template <typename T> struct Bernoulli {
  float p;
  __device__ __forceinline__ void pair(unsigned a, unsigned b, float &x, float &y) const {
    x = unit(a) < p ? 1.0f : 0.0f, y = unit(b) < p ? 1.0f : 0.0f;
  }
};

}  // namespace kw

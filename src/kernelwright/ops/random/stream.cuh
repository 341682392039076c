// The random numbers of PyTorch's CUDA generator: cuRAND's Philox4x32-10, whose 128-bit counter
// consists of a position in a sequence (lower half) and the index of the sequence (upper half).
#pragma once
#include "kw/philox.cuh"
#include "kw/vec.cuh"

namespace kw {

// A generator's seed and offset. PyTorch advances offsets by multiples of four, one per word.
struct Stream {
  unsigned long long seed, first;

  // All threads of a warp must call it: the seed is held in uniform registers.
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

__device__ __forceinline__ unsigned word(const uint4 &words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// A uniform number in (0, 1], computed as in cuRAND: 24 bits near 1, more near 0.
__device__ __forceinline__ float unit(unsigned word) {
  return fmaf(__uint2float_rn(word), 0x1p-32f, 0x1p-33f);
}

// The smallest number that rounds to 1 in T: half of the spacing below 1 away; for float 1 itself.
template <typename T> constexpr float kRoundsToOne = 1.0f;
template <> constexpr float kRoundsToOne<__half> = 1.0f - 0x1p-12f;
template <> constexpr float kRoundsToOne<__nv_bfloat16> = 1.0f - 0x1p-9f;

// Distributions. `pair` converts two adjacent words of a call to two values, still in float.

// [0, 1): values that would round to 1 in T become 0.
template <typename T> struct Uniform {
  __device__ __forceinline__ void pair(unsigned a, unsigned b, float &x, float &y) const {
    x = one(a), y = one(b);
  }
  static __device__ __forceinline__ float one(unsigned word) {
    const float u = unit(word);
    return u >= kRoundsToOne<T> ? 0.0f : u;
  }
};

// Box and Muller's method: a radius from the first word, an angle from the second. The addition
// converts a -0.0 for radius 0 to 0.0, as PyTorch's addition of the mean does.
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

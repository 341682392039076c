// Dropout of eight neighbours at a time: their places in row-major order are 8 octet ... 8 octet +
// 7, so that their random words come from one Philox counter, and their mask is one byte.
#pragma once
#include "kw/map.cuh"
#include "kw/math.cuh"
#include "kw/philox.cuh"

namespace kw {

// Where dropout's factors come from: nowhere (all are 1), a seed, or the bits of a stored mask.
enum class Draw { kNone, kSeed, kMask };

constexpr int kOctet = 8;

// Word i / 2 of philox(seed, octet); where i is odd, with its halves exchanged. `high` is
// octet >> 32: a caller that knows it to be 0 says so.
__device__ __forceinline__ void octet_words(unsigned long long seed, unsigned octet, unsigned high,
                                            unsigned (&words)[kOctet]) {
  uint4 c[1] = {{octet, high, 0, 0}};
  philox_rounds(seed, c);
  const unsigned drawn[kOctet / 2] = {c[0].x, c[0].y, c[0].z, c[0].w};
#pragma unroll
  for (int i = 0; i < kOctet; ++i)
    words[i] = i % 2 ? drawn[i / 2] << 16 | drawn[i / 2] >> 16 : drawn[i / 2];
}

// What one call's dropout is: `p` in float64, since 1 - p would lose its digits near 1.
template <Draw DRAW> struct Dropout {
  unsigned long long seed = 0;
  unsigned threshold = 0;
  float scale = 1.0f;
  const unsigned char *mask = nullptr;

  __device__ __forceinline__ Dropout(const long long *seed_, const unsigned char *mask_, double p) {
    if constexpr (DRAW == Draw::kNone) return;
    scale = 1.0f / static_cast<float>(1.0 - p);
    if constexpr (DRAW == Draw::kMask) {
      mask = mask_;
    } else {
      seed = static_cast<unsigned long long>(*seed_);
      threshold = static_cast<unsigned>(ceil(p * 16777216.0));
    }
  }

  // Bit i: element 8 octet + i is kept. A word's upper 24 bits are compared, as integers.
  __device__ __forceinline__ unsigned bits(long long octet) const {
    if constexpr (DRAW == Draw::kNone) return 0xffu;
    if constexpr (DRAW == Draw::kMask) return mask[octet];
    unsigned words[kOctet], kept = 0;
    octet_words(seed, unsigned(octet), unsigned(octet >> 32), words);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) kept |= (words[i] >> 8 >= threshold ? 1u : 0u) << i;
    return kept;
  }

  // What element i is multiplied with: times 0, not replaced by 0, so that a NaN stays one.
  __device__ __forceinline__ float factor(unsigned bits, int i) const {
    if constexpr (DRAW == Draw::kNone) return 1.0f;
    return bits >> i & 1 ? scale : 0.0f;
  }
};

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
      octet_words(seed, unsigned(octet), unsigned(octet >> 32), words);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) factor[i] = words[i] >= threshold ? scale : 0.0f;
    }
  }
};

// Factors for a thread of many octets, fewer than 2^31 in all: the seed is in registers of the
// warp, all of whose threads make this together. A bit says what is kept, for those who store it.
template <Draw DRAW> struct WarpFactors {
  unsigned long long seed = 0;
  unsigned threshold = 0;
  float scale = 1.0f;
  const unsigned char *mask = nullptr;

  // That every factor is 0 where all are dropped, says a product: a choice would be made again for
  // each word.
  __device__ __forceinline__ WarpFactors(const long long *seed_, const unsigned char *mask_,
                                         double p) {
    if constexpr (DRAW == Draw::kNone) return;
    const unsigned dropped = static_cast<unsigned>(ceil(p * 16777216.0));
    const float kept = fmaxf(static_cast<float>(1.0 - p), 0x1p-24f);
    scale = normal_reciprocal(kept) * static_cast<float>(1 - (dropped >> 24));
    threshold = dropped << 8, mask = mask_;
    if constexpr (DRAW == Draw::kSeed) seed = uniform(static_cast<unsigned long long>(*seed_));
  }

  __device__ __forceinline__ unsigned get(unsigned octet, float (&factor)[kOctet]) const {
    unsigned words[kOctet], bits = 0;
    if constexpr (DRAW == Draw::kSeed) octet_words(seed, octet, 0, words);
    if constexpr (DRAW == Draw::kMask) bits = mask[octet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      const bool kept =
          DRAW == Draw::kNone || (DRAW == Draw::kSeed ? words[i] >= threshold : bits >> i & 1);
      factor[i] = kept ? scale : 0.0f;
      bits |= unsigned(kept) << i;
    }
    return scale == 0.0f ? 0 : bits;
  }

  // x of an octet becomes 0 x where dropped, for callers that multiply with `scale` themselves:
  // some lanes skip a multiplication, where `get` chooses a factor and all multiply with it.
  __device__ __forceinline__ void drop(unsigned octet, float (&x)[kOctet]) const {
    static_assert(DRAW != Draw::kMask, "a mask is read by get");
    if constexpr (DRAW == Draw::kSeed) {
      unsigned words[kOctet];
      octet_words(seed, octet, 0, words);
#pragma unroll
      for (int i = 0; i < kOctet; ++i)
        if (words[i] < threshold) x[i] *= 0.0f;
    }
  }
};

// Eight elements of T in one or two vectors of 16 bytes.
template <typename T> struct Octet {
  static constexpr int kWidth = kVecWidth<T>, kVecs = kOctet / kWidth;
  Vec<T, kWidth> v[kVecs];

  template <bool STREAM> static __device__ __forceinline__ Octet read(const T *p) {
    Octet x;
#pragma unroll
    for (int i = 0; i < kVecs; ++i) x.v[i] = kw::read<STREAM>(p + i * kWidth);
    return x;
  }
  template <bool STREAM>
  static __device__ __forceinline__ void write(T *p, const float (&x)[kOctet]) {
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      float part[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) part[j] = x[i * kWidth + j];
      kw::write<STREAM>(p + i * kWidth, from_float<T, kWidth>(part));
    }
  }
  __device__ __forceinline__ void floats(float (&x)[kOctet]) const {
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      float part[kWidth];
      to_float(v[i], part);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[i * kWidth + j] = part[j];
    }
  }
};

}  // namespace kw

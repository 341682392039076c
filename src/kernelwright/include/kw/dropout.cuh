// Dropout of eight neighbours at a time: their places in row-major order are 8 octet ... 8 octet +
// 7, so that their random words are those of two Philox counters, and their mask is one byte.
#pragma once
#include "kw/map.cuh"
#include "kw/philox.cuh"

namespace kw {

// Where dropout's factors come from: nowhere (all are 1), a seed, or the bits of a stored mask.
enum class Draw { kNone, kSeed, kMask };

constexpr int kOctet = 8;

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
    const uint4 a = philox(seed, 2ull * octet), b = philox(seed, 2ull * octet + 1);
    const unsigned words[kOctet] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    unsigned kept = 0;
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

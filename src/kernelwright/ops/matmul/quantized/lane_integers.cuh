// Weights of 4 and 8 bits for clustered.cuh, in groups of 128 along k: a step is SPAN groups.
//
// A lane's 32 elements of a group of a row are adjacent with 4 bits, and twice 16 adjacent elements
// with 8. Values are converted to operands after subtraction of their zero point, which is exact in
// 16 bits; the sums of a group are scaled.
#pragma once
#include "../gemm/few_rows/lanes.cuh"
#include "integers.cuh"

namespace few_rows {

template <typename T, int BITS, int SPAN> struct IntegerLanes {
  static constexpr int kScales = SPAN, kDepth = 128 * SPAN, kUnits = BITS / 4 * SPAN;
  static constexpr int kOfX = 4 * SPAN;
  static_assert(sizeof(T) == 2, "a scale and a zero point are 4 bytes");
  const unsigned char *packed;
  const T *scales;  // shape (groups, n, 2)
  int n, k;

  __device__ __forceinline__ const char *at(int row, int depth) const {
    return reinterpret_cast<const char *>(packed) + row * pitch() + depth / 8 * BITS;
  }
  __device__ __forceinline__ long long pitch() const {
    return static_cast<long long>(k / 8) * BITS;
  }
  // Whether unit `u` of lanes q is inside in step `step`.
  __device__ __forceinline__ bool inside(int step, int u, int q) const {
    return SPAN == 1 || step * kDepth + u / (BITS / 4) * 128 < k;
  }
  __device__ __forceinline__ const unsigned *scale_at(int row, int step) const {
    return reinterpret_cast<const unsigned *>(scales) + scales_of(step) + row;
  }
  __device__ __forceinline__ long long scales_of(int steps) const {
    return static_cast<long long>(steps * SPAN) * n;
  }
  static __device__ __forceinline__ float scale(unsigned meta) {
    return kw::to_float2(pair_of<T>(meta)).x;
  }

  // The turn in which lanes q multiply unit `unit` of a step of x.
  static __device__ __forceinline__ int turn(int unit) {
    return unit / 16 * 4 + (BITS == 4 ? unit % 4 : unit % 16 / 8 * 2 + unit % 2);
  }
  static __device__ __forceinline__ int q(int unit) {
    return BITS == 4 ? unit % 16 / 4 : unit % 8 / 2;
  }
  // The inverse, within a group.
  static __device__ __forceinline__ int unit(int turn, int q) {
    return BITS == 4 ? 4 * q + turn : turn / 2 * 8 + 2 * q + turn % 2;
  }

  // The eight elements of a row that are multiplied in a turn.
  struct Row {
    unsigned meta;
    __device__ __forceinline__ explicit Row(unsigned meta) : meta(meta) {}
    __device__ __forceinline__ uint4 eight(const uint4 (&units)[kUnits], int turn) const {
      const uint4 &of = units[BITS == 4 ? turn / 4 : turn / 2];
      if constexpr (BITS == 4) {
        const unsigned words[4] = {of.x, of.y, of.z, of.w};
        return FourBits<T>(meta).eight(words[turn % 4]);
      } else {
        return EightBits<T>(meta).eight(turn % 2 ? of.z : of.x, turn % 2 ? of.w : of.y);
      }
    }
  };
};

}  // namespace few_rows

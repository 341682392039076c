// Weights of 16-bit elements for clustered.cuh; lane_integers.cuh of quantized products defines
// others.
//
// A step is 16 rows by kDepth elements along k, for each group of a warp. Lane 4 i + q multiplies
// kUnits units of 16 bytes of row i and of row i + 8: units q, q + 4, ... of the step. A product
// does not depend on the order along k, so a lane uses elements that are adjacent in memory,
// whereas mma.sync specifies four separate pairs; x is read in the same order.
#pragma once
#include "../mma.cuh"

namespace few_rows {

template <typename T> struct DenseLanes {
  static constexpr int kScales = 0;  // groups of a step that have a scale per row
  static constexpr int kDepth = 64, kUnits = 2;
  static constexpr int kOfX = 2;  // units of a row of x that a lane multiplies in a step
  const T *first;
  long long line;
  int n, k;

  __device__ __forceinline__ const char *at(int row, int depth) const {
    return reinterpret_cast<const char *>(first + row * line + depth);
  }
  __device__ __forceinline__ long long pitch() const { return line * 2; }
  // Whether unit `u` of lanes q is inside in step `step`.
  __device__ __forceinline__ bool inside(int step, int u, int q) const {
    return step * kDepth + 32 * u + 8 * q < k;
  }

  // The turn in which lanes q multiply unit `unit` of a step of x.
  static __device__ __forceinline__ int turn(int unit) { return unit / 4; }
  static __device__ __forceinline__ int q(int unit) { return unit % 4; }
  static __device__ __forceinline__ int unit(int turn, int q) { return 4 * turn + q; }

  // The eight elements of a row that are multiplied in a turn.
  struct Row {
    __device__ __forceinline__ explicit Row(unsigned) {}
    __device__ __forceinline__ uint4 eight(const uint4 (&units)[kUnits], int turn) const {
      return units[turn];
    }
  };
};

}  // namespace few_rows

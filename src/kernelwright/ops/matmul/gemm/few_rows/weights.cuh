// Weights of 16-bit elements for few_rows.cuh. `weights.cuh` of a quantized product has others.
//
// A slice of 128 rows by 128 of k lies in shared memory; load() gives a lane its share of the 64 of
// k that a warp multiplies, for the 16 rows that begin at `row`: two steps of 32 along k, of which
// lane l holds 8 elements of row l / 4 (low) and of row l / 4 + 8 (high). A product does not depend
// on the order along k, so a step's lane takes 8 neighbours, 16 bytes, where mma.sync would have it
// take four pairs; x is taken in the same order.
#pragma once
#include "../mma.cuh"

namespace few_rows {

constexpr int kRows = 128, kSlice = 128, kThreads = 256;

struct Fragments {
  uint4 low[2], high[2];
};

template <typename T> struct Dense {
  static constexpr bool kScaled = false;
  static constexpr int kBytes = kRows * kSlice * 2;
  const T *first;
  long long line;
  int n, k;

  // Unit `unit` of 16 bytes of a row. Rows side by side use different halves of the banks.
  static __device__ __forceinline__ int place(int row, int unit) {
    return row * (kSlice * 2) + 16 * (unit ^ (row & 1) << 2);
  }
  // Where the 8 elements of x lie that lane q = l % 4 multiplies in step j at 4 j + q.
  static __device__ __forceinline__ int unit_of_x(int unit) { return unit; }

  // Start copying the slice that begins at (top, from).
  __device__ __forceinline__ void copy(char *shared, int top, int from) const {
    const int unit = threadIdx.x % 16, row = threadIdx.x / 16;
    const bool inside = from + 8 * unit < k;
    const T *p = first + (top + row) * line + from + 8 * unit;
#pragma unroll
    for (int i = 0; i < kRows; i += kThreads / 16)
      matmul::copy_async_16(shared + place(row + i, unit), p + i * line,
                            inside && top + row + i < n ? 16 : 0);
  }
  static __device__ __forceinline__ void load(Fragments &of, const char *shared, int row,
                                              int half) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int unit = 4 * (2 * half + j) + lane % 4;
      of.low[j] = *reinterpret_cast<const uint4 *>(shared + place(row + lane / 4, unit));
      of.high[j] = *reinterpret_cast<const uint4 *>(shared + place(row + lane / 4 + 8, unit));
    }
  }
};

}  // namespace few_rows

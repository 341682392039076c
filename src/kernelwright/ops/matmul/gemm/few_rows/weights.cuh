// Weights of 16-bit elements for few_rows.cuh; integers.cuh of quantized products defines others.
//
// Shared memory holds a slice of 128 rows by 128 elements along k. A Lane has its part of the 64
// elements along k that a warp multiplies, for the 16 rows that begin at `row`: two steps of 32
// along k, in which lane l holds 8 elements of row l / 4 (low) and of row l / 4 + 8 (high). A
// product does not depend on the order along k, so a lane uses 8 adjacent elements, 16 bytes,
// whereas mma.sync specifies four separate pairs; x is read in the same order.
#pragma once
#include "../mma.cuh"

namespace few_rows {

constexpr int kRows = 128, kSlice = 128, kThreads = 256;

struct Fragments {
  uint4 low[2], high[2];
};

// Returns x and makes the compiler keep it in a register instead of recomputing it in each slice.
__device__ __forceinline__ int kept(int x) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

template <typename T> struct Dense {
  static constexpr bool kScaled = false;
  static constexpr int kRow = kSlice * 2, kBytes = kRows * kRow, kUnits = kRow / 16;
  const T *first;
  long long line;
  int n, k;

  // The position of unit `unit` of 16 bytes of a row. Adjacent rows use different halves of the
  // banks.
  static __device__ __forceinline__ int place(int row, int unit) {
    return row * kRow + 16 * (unit ^ (row & 1) << 2);
  }
  // The position of the 8 elements of x that lane q = l % 4 multiplies in step j, at 4 j + q.
  static __device__ __forceinline__ int unit_of_x(int unit) { return unit; }

  // The data that a thread copies: a unit of every (kThreads / kUnits)-th row, slice after slice.
  struct Cursor {
    const T *p;
    long long step;
    int to, rows, deep;  // rows and elements along k inside, from the thread's first on

    __device__ __forceinline__ void copy(char *shared) const {
#pragma unroll
      for (int i = 0; i < kRows * kUnits / kThreads; i++)
        matmul::copy_async_16(shared + to + i * (kThreads / kUnits) * kRow, p + i * step,
                              deep > 0 && i * (kThreads / kUnits) < rows ? 16 : 0);
    }
    __device__ __forceinline__ void next() { p += kSlice, deep -= kSlice; }
  };
  __device__ __forceinline__ Cursor cursor(int top, int from) const {
    const int unit = threadIdx.x % kUnits, row = threadIdx.x / kUnits;
    return {first + (top + row) * line + from + 8 * unit, kThreads / kUnits * line,
            kept(place(row, unit)), n - top - row, k - from - 8 * unit};
  }

  // The data that a lane multiplies: of 32 rows from `row` on, and of half the slice.
  struct Lane {
    int at[2];  // in each step
    __device__ __forceinline__ Lane(int row, int half) {
      const int lane = threadIdx.x % 32;
      for (int j = 0; j < 2; j++)
        at[j] = kept(place(row + lane / 4, 4 * (2 * half + j) + lane % 4));
    }
    // Loads 16 rows, the first (t = 0) or the second (t = 1).
    __device__ __forceinline__ void load(Fragments &of, const char *shared, int t) const {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        of.low[j] = *reinterpret_cast<const uint4 *>(shared + at[j] + 16 * t * kRow);
        of.high[j] = *reinterpret_cast<const uint4 *>(shared + at[j] + (16 * t + 8) * kRow);
      }
    }
  };
};

}  // namespace few_rows

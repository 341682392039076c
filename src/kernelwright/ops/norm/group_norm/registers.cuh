// Shared by kernels that hold a slab of channels in registers: a thread's channels, and sums over
// groups. Sizes are compile-time constants, so that divisions by them cost little.
#pragma once
#include "slabs.cuh"

namespace kw {

__device__ constexpr int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }

// A slab of COLUMNS vectors of VEC channels per row, in groups of PER channels.
template <int VEC, int COLUMNS, int PER, int THREADS> struct Held {
  static constexpr int kSlab = COLUMNS * VEC, kGroups = kSlab / PER;
  static constexpr int kRows = THREADS / COLUMNS;  // rows that the block processes at a time
  // The maximum number of groups to which the channels of a vector belong, and of vectors to which
  // those of a group belong. Groups start at multiples of kStep in a vector, and vice versa.
  static constexpr int kStep = gcd(PER, VEC);
  static constexpr int kParts = (PER - kStep + VEC - 1) / PER + 1;
  static constexpr int kColumns = (VEC - kStep + PER - 1) / VEC + 1;
  static_assert(kGroups * PER == kSlab && COLUMNS <= THREADS && kGroups <= THREADS, "a slab");

  int row, column;  // of this thread; it has no column if row == kRows

  __device__ __forceinline__ Held() {
    row = threadIdx.x / COLUMNS, column = threadIdx.x - row * COLUMNS;
  }
  // The group of channel i of the thread's vector: group() + part(i).
  __device__ __forceinline__ int group() const { return column * VEC / PER; }
  __device__ __forceinline__ int part(int i) const {
    return kParts == 1 ? 0 : VEC % PER == 0 ? i / PER : (column * VEC + i) / PER - group();
  }

  // Adds up the threads' sums of channels, for each group. A warp calls each(g, sum), converged,
  // for its groups g. Every thread must call this; `lanes` holds kParts * THREADS values, and is
  // used again only after a barrier.
  template <typename Each>
  __device__ __forceinline__ void add_groups(const float (&mine)[VEC], float *lanes,
                                             const Each &each) const {
    constexpr int kWarps = THREADS / 32;
#pragma unroll
    for (int p = 0; p < kParts; p++) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < VEC; i++) sum += part(i) == p ? mine[i] : 0.0f;
      lanes[p * THREADS + threadIdx.x] = sum;
    }
    __syncthreads();
    for (int g = threadIdx.x / 32; g < kGroups; g += kWarps) {
      float sum = 0.0f;
      for (int k = threadIdx.x % 32; k < kRows * kColumns; k += 32) {
        const int row = k / kColumns, column = g * PER / VEC + k - row * kColumns;
        if (column * VEC >= (g + 1) * PER) continue;
        const int part = g - column * VEC / PER;
        sum += lanes[part * THREADS + row * COLUMNS + column];
      }
      each(g, warp_reduce<Sum>(sum));
    }
  }
};

// The rows of a slab that one of BLOCKS blocks holds.
template <int BLOCKS> struct Rows {
  int first, count;
  __device__ __forceinline__ Rows(int rows, int block) {
    const int each = (rows + BLOCKS - 1) / BLOCKS;
    first = min(block * each, rows), count = min(each, rows - first);
  }
};

// The number of blocks whose registers a multiprocessor should hold together, if each thread holds
// VECTORS vectors of BYTES bytes: several, so that one loads while another computes. A thread needs
// up to 60 registers for other values, or waits for some of its loads.
template <int THREADS, int VECTORS, int BYTES> __device__ constexpr int resident_blocks() {
  constexpr int kWords = VECTORS * ((BYTES + 3) / 4);
  constexpr int kThreads = kWords <= 8 ? 1024 : kWords <= 20 ? 768 : kWords <= 84 ? 512 : THREADS;
  return kThreads < THREADS ? 1 : kThreads / THREADS;
}

}  // namespace kw

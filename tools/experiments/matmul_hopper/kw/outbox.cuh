// The way of a tile's results from registers to memory.
#pragma once
#include "kw/hopper.cuh"
#include "kw/types.cuh"

namespace kw {

// What a thread of a warp group holds of a tile is in columns 8 p + first_column() and the next.
__device__ __forceinline__ int first_column() { return threadIdx.x % 4 * 2; }

// A warp group's 64 x COLS results leave in pieces of 64 x 64 through BUFFERS boxes of shared
// memory; the last piece overlaps the one before it where COLS is no multiple of 64. Each thread
// writes its part with stmatrix, swizzled as the copy engine reads it; one thread sends a box off,
// and waits until the one that is needed next has been read before all meet again.
template <typename T, int BUFFERS> struct Outbox {
  static constexpr int kBytes = BUFFERS * 64 * 128;
  unsigned char *boxes;
  int barrier, next = 0;  // a named barrier of the warp group

  template <int N, typename Columns>
  __device__ __forceinline__ void send(float (&d)[N], const TensorMap &map, int row, int col,
                                       const Columns &columns) {
    constexpr int kCols = 2 * N;
    const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
    const int to_row = warp * 16 + lane % 16;
#pragma unroll
    for (int piece = 0; piece < (kCols + 63) / 64; piece++) {
      const int start = piece * 64 < kCols - 64 ? piece * 64 : kCols - 64;
      unsigned char *box = boxes + next * 64 * 128;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        unsigned r[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int pair = start / 8 + j * 2 + i / 2, at = pair * 4 + i % 2 * 2;
          const float2 v = columns(make_float2(d[at], d[at + 1]), pair);
          const auto rounded = Pair<T>::from(v.x, v.y);
          memcpy(&r[i], &rounded, 4);
        }
        store_matrices(box + to_row * 128 + ((2 * j + lane / 16) ^ (to_row % 8)) * 16, r);
      }
      fence_proxy_async();
      const bool sender = warp == 0 && elected();
      if (sender) tma_store_wait_read<(BUFFERS > 1 ? BUFFERS - 2 : 0)>();
      meet(barrier, kGroup);
      if (sender) {
        tma_store(map, box, col + start, row);
        tma_store_commit();
        if (BUFFERS == 1) tma_store_wait_read<0>();
      }
      if (BUFFERS == 1) meet(barrier, kGroup);
      if (++next == BUFFERS) next = 0;
    }
  }
};

}  // namespace kw

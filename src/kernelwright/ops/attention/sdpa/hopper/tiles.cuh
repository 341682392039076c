// The order of blocks of queries, and how the warp that loads tells the others which one is next.
#pragma once
#include "hopper/operands.cuh"
#include "softmax.cuh"

namespace attention {

// A block of queries of a head, counted over all batches.
struct Tile {
  int block, head;
};

// Filled in by `_order` of cuda_dynamic.py. Heads are processed in sections; within a section the
// last blocks of all heads come first, which with a causal mask have the most keys.
struct Tiles {
  unsigned count;
  int blocks, all_heads, section;  // blocks of queries per head; heads; heads per section
  int heads, group;                // heads of q per batch, and how many of them share keys

  __device__ __forceinline__ Tile tile(unsigned n) const {
    const int whole = n / (section * blocks), first = whole * section;
    const int within = n - whole * section * blocks, width = min(section, all_heads - first);
    return {blocks - 1 - within / width, first + within % width};
  }
};

// The number of the next tile, from the warp that loads to the warps that multiply.
struct Next {
  kw::Barrier full, empty;
  unsigned number;

  __device__ __forceinline__ void init(int warps) { full.init(1), empty.init(warps); }
  __device__ __forceinline__ void put(unsigned n, unsigned parity) {
    empty.wait(parity ^ 1);
    number = n;
    full.arrive();
  }
  __device__ __forceinline__ unsigned take(unsigned parity) {
    full.wait(parity);
    const unsigned n = number;
    __syncwarp();
    if (threadIdx.x % 32 == 0) empty.arrive();
    return n;
  }
};

// Called by each block after its last tile: the last one sets both counters to zero again.
__device__ __forceinline__ void leave(unsigned *counters) {
  __threadfence();
  if (atomicAdd(counters + 1, 1u) == gridDim.x - 1) counters[0] = counters[1] = 0;
}

// As `hide`, with one comparison with a constant for each score.
template <bool CAUSAL, int N>
__device__ __forceinline__ void hide_from(float (&s)[N], int row, int first, int keys) {
  int seen[2];
#pragma unroll
  for (int h = 0; h < 2; h++)
    seen[h] = (CAUSAL ? min(keys, row + 8 * h + 1) : keys) - first - threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < N; i++)
    if (i / 4 * 8 + i % 2 >= seen[i % 4 / 2]) s[i] = -kw::kInfinity;
}

}  // namespace attention

// Stream-K: which slabs of which tiles a cluster multiplies, and how a block hands the sums of a
// part of a tile to the block that finishes it.
#pragma once
#include "kw/hopper.cuh"

namespace kw {

// A stretch of slabs of one tile.
struct Work {
  int tile, first, last;
};

// What cluster `mine` of `clusters` works on, in order.
struct Schedule {
  unsigned slabs, shared_slabs, clusters, mine;
  unsigned at, end, tile, tiles;
  __device__ __forceinline__ Schedule(unsigned tiles, unsigned shared_tiles, unsigned slabs,
                                      unsigned clusters, unsigned mine)
      : slabs(slabs),
        shared_slabs(shared_tiles * slabs),
        clusters(clusters),
        mine(mine),
        at(begin(mine)),
        end(begin(mine + 1)),
        tile(shared_tiles + mine),
        tiles(tiles) {}
  __device__ __forceinline__ unsigned begin(unsigned cluster) const {
    return shared_slabs * cluster / clusters;  // under 2^32 for k up to 7 million
  }
  __device__ __forceinline__ bool next(Work &work) {
    if (at < end) {
      const unsigned which = at / slabs, first = at - which * slabs;
      const unsigned count = min(slabs - first, end - at);
      work = {static_cast<int>(which), static_cast<int>(first), static_cast<int>(first + count)};
      at += count;
      return true;
    }
    if (tile >= tiles) return false;
    work = {static_cast<int>(tile), 0, static_cast<int>(slabs)};
    tile += clusters;
    return true;
  }
};

// A block's place in the workspace: the sums of a warp group, four by four, and a flag for them.
template <int QUADS> struct Handover {
  float4 *sums;     // [block][group][quad][thread]
  unsigned *flags;  // [block][group], all zero before and after the kernel
  int group, barrier;

  __device__ __forceinline__ float4 *of(int block) const {
    return sums + ((block * 2 + group) * QUADS) * kGroup + threadIdx.x % kGroup;
  }
  __device__ __forceinline__ void leave(int block, int quad, float4 v) const {
    __stcg(of(block) + quad * kGroup, v);
  }
  __device__ __forceinline__ void raise(int block) const {
    __threadfence();
    meet(barrier, kGroup);
    if (threadIdx.x % kGroup == 0) atomicExch(flags + block * 2 + group, 1u);
  }
  __device__ __forceinline__ void await(int block) const {
    if (threadIdx.x % kGroup == 0) {
      while (atomicCAS(flags + block * 2 + group, 1u, 0u) != 1u) {
      }
      __threadfence();
    }
    meet(barrier, kGroup);
  }
};

}  // namespace kw

// The walk of blocks that hold nothing over their share of a set.
#pragma once
#include "sets.cuh"

namespace kw {

// A warp's vectors of its block's share, UNROLL of each lane in flight, of as many pieces as that
// takes: load(u, place, inside) of each, then each(u, row, place) of those inside. REVERSE: from
// the last piece on.
template <int VEC, int UNROLL, bool REVERSE, typename Load, typename Each>
__device__ __forceinline__ void for_each_vector(const Sets &sets, const Share &share,
                                                const Load &load, const Each &each) {
  const int chunks = (sets.piece + 32 * VEC - 1) / (32 * VEC), warps = blockDim.x / 32;
  const int slots = (share.last - share.first) * chunks, lane = threadIdx.x % 32;
  for (int first = threadIdx.x / 32; first < slots; first += warps * UNROLL) {
    int row[UNROLL];
    long long at[UNROLL];
    bool inside[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int slot = first + u * warps, here = REVERSE ? slots - 1 - slot : slot;
      const Item item(sets, share.first + here / chunks);
      const int from = (here % chunks * 32 + lane) * VEC;
      inside[u] = slot < slots && from < item.count;
      row[u] = item.row, at[u] = item.at + from;
      load(u, at[u], inside[u]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (inside[u]) each(u, row[u], at[u]);
  }
}

}  // namespace kw

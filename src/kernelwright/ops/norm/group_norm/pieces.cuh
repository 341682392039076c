// Loops over a block's part of a set without keeping it.
#pragma once
#include "sets.cuh"

namespace kw {

// Loops over a warp's vectors of its block's part of a set, with UNROLL vectors per lane in flight,
// which may belong to several pieces. Calls load(u, place, inside) for each vector, then each(u,
// row, place) for those that are inside. REVERSE: starts with the last piece.
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

// The order of tiles, such that blocks that run at the same time read the same rows and columns.
#pragma once

namespace matmul {

// The tile of c that a block computes: groups of rows of tiles, each from its first column to its
// last.
__device__ __forceinline__ int2 tile_of(int block, int down, int across) {
  constexpr int kGroup = 8;
  const int top = block / (kGroup * across) * kGroup, rows = min(kGroup, down - top);
  const int within = block - top * across;
  return {top + within % rows, within / rows};
}

}  // namespace matmul

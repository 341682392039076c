// The parts of the dynamic shared memory of blocks that hold a slab, behind its vectors.
#pragma once
#include "slabs.cuh"

namespace kw {

struct Room {
  Sums *parts, *means;                    // of each block's groups; of groups
  float *lanes, *kept, *total, *squares;  // of rows of channels, channels, groups

  __device__ __forceinline__ Room(void *at, const Slabs &slabs, int blocks, int rows)
      : parts(static_cast<Sums *>(at)),
        means(parts + blocks * slabs.groups()),
        lanes(reinterpret_cast<float *>(means + slabs.groups())),
        kept(lanes + rows * slabs.slab),
        total(kept + slabs.slab),
        squares(total + slabs.groups()) {}
};

}  // namespace kw

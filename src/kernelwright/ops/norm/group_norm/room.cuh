// The layout of the dynamic shared memory of blocks that hold a slab, after its vectors.
#pragma once
#include "slabs.cuh"

namespace kw {

struct Room {
  Sums *parts, *means;                    // sums of each block's groups; of the groups
  float *lanes, *kept, *total, *squares;  // per row of channels, per channel, per group

  __device__ __forceinline__ Room(void *at, const Slabs &slabs, int blocks, int rows)
      : parts(static_cast<Sums *>(at)),
        means(parts + blocks * slabs.groups()),
        lanes(reinterpret_cast<float *>(means + slabs.groups())),
        kept(lanes + rows * slabs.slab),
        total(kept + slabs.slab),
        squares(total + slabs.groups()) {}
};

}  // namespace kw

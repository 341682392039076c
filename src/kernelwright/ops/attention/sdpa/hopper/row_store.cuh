// Stores a warp group's 64 rows of sums through a separate buffer: the next tile begins while the
// copy engine still reads this one.
#pragma once
#include "hopper/operands.cuh"
#include "softmax.cuh"

namespace attention {

template <typename T, int BOX> struct RowStore {
  unsigned buffer;  // shared_address() of the group's rows; boxes are BOX bytes apart
  int named_barrier;

  static __device__ __forceinline__ bool issues() { return threadIdx.x % kw::kWarpGroup == 0; }

  // Stores the rows, multiplied by `scale` (of a thread's two rows) and rounded.
  template <int N>
  __device__ __forceinline__ void store(const float (&d)[N], const float (&scale)[2],
                                        const kw::TensorMap &map, const kw::Corner &at) const {
    const int lane = threadIdx.x % 32, row = threadIdx.x % kw::kWarpGroup / 32 * 16 + lane % 16;
    if (issues()) kw::tma_store_wait_read<0>();
    kw::named_barrier_sync(named_barrier, kw::kWarpGroup);  // the buffer is free
#pragma unroll
    for (int i = 0; i < N / 8; i++) {  // 16 columns
      unsigned packed[4];
#pragma unroll
      for (int j = 0; j < 4; j++)
        packed[j] = pack<T>(d[8 * i + 2 * j] * scale[j % 2], d[8 * i + 2 * j + 1] * scale[j % 2]);
      kw::store_matrices(
          buffer + i / 4 * BOX + row * 128 + ((i % 4 * 2 + lane / 16) ^ (row % 8)) * 16, packed);
    }
    kw::fence_proxy_async();
    kw::named_barrier_sync(named_barrier, kw::kWarpGroup);
    if (issues()) {
      for (int i = 0; i < N / 32; i++)
        kw::tma_store(map, buffer + i * BOX, {at.col + 64 * i, at.row, at.head, at.batch});
      kw::tma_store_commit();
    }
  }
  // Called before the block exits: its shared memory must have been read.
  __device__ __forceinline__ void finish() const {
    if (issues()) kw::tma_store_wait_read<0>();
  }
};

}  // namespace attention

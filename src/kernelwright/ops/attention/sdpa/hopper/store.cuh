// Stores a warp group's 64 rows of sums to memory.
#pragma once
#include "hopper/operands.cuh"
#include "softmax.cuh"

namespace attention {

// The rows are multiplied by `scale` (of a thread's two rows), rounded, and written to shared
// memory at `out`, which the warp group no longer reads: 64 rows of boxes, BOX bytes apart. One
// thread has the copy engine store them, and waits until it has read them.
template <typename T, int BOX, int N>
__device__ __forceinline__ void store_rows(const float (&d)[N], const float (&scale)[2],
                                           unsigned out, const kw::TensorMap &map,
                                           const kw::Corner &at, int named_barrier) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % kw::kWarpGroup / 32 * 16 + lane % 16;
#pragma unroll
  for (int i = 0; i < N / 8; i++) {  // 16 columns
    unsigned packed[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
      packed[j] = pack<T>(d[8 * i + 2 * j] * scale[j % 2], d[8 * i + 2 * j + 1] * scale[j % 2]);
    kw::store_matrices(out + i / 4 * BOX + row * 128 + ((i % 4 * 2 + lane / 16) ^ (row % 8)) * 16,
                       packed);
  }
  kw::fence_proxy_async();
  kw::named_barrier_sync(named_barrier, kw::kWarpGroup);
  if (threadIdx.x % kw::kWarpGroup == 0) {
    for (int i = 0; i < N / 32; i++)
      kw::tma_store(map, out + i * BOX, {at.col + 64 * i, at.row, at.head, at.batch});
    kw::tma_store_commit();
    kw::tma_store_wait_read<0>();
  }
}

}  // namespace attention

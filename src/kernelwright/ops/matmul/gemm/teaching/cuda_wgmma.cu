// Hopper's tensor cores: one warp group instruction multiplies 64 x 128 x 16 from shared memory.
//
// Idea: two warp groups copy 64 elements along k of 128 rows of A and 128 columns of B to shared
// memory, in the layout that wgmma reads without bank conflicts (128-byte swizzle). Each multiplies
// 64 rows. Operands may have either order, which the descriptor states; nothing is transposed.
// Traffic: each block reads its rows of A and columns of B, which are reused 128 times; C once.
// Compared with `cuda_mma`: mma.sync loads operands to registers first, which takes most issue
// slots.
// Limit: loading and multiplying alternate; a block waits for memory every 64 elements along k.
#include "kw/hopper/async.cuh"
#include "../hopper/direct_store.cuh"
#include "kw/hopper/wgmma.cuh"

constexpr int kTile = 128, kThreads = 256;

// Copies a tile of an operand, kTile wide from `width` on and 64 along k from `k` on, to shared
// memory in the layout of Operand<K_MAJOR>. Elements outside are 0.
template <bool K_MAJOR, typename T>
__device__ __forceinline__ void load_tile(unsigned char *to, const T *from, long long stride,
                                          int width, int k, int width_end, int k_end) {
  for (int unit = threadIdx.x; unit < kTile * 8; unit += kThreads) {
    const int block = K_MAJOR ? 0 : unit / 512, row = unit / 8 - block * 64, u = unit % 8;
    const int y = (K_MAJOR ? width : k) + row, x = (K_MAJOR ? k : width + block * 64) + u * 8;
    const int y_end = K_MAJOR ? width_end : k_end, x_end = K_MAJOR ? k_end : width_end;
    const T *start = from + y * stride + x;
    uint4 values = {};
    if (y < y_end && x + 8 <= x_end) {
      values = *reinterpret_cast<const uint4 *>(start);
    } else if (y < y_end) {
      for (int i = 0; i < 8; i++)
        if (x + i < x_end) reinterpret_cast<T *>(&values)[i] = start[i];
    }
    *reinterpret_cast<uint4 *>(to + block * 8192 + row * 128 + (u ^ row % 8) * 16) = values;
  }
}

template <typename T, bool A_K, bool B_K>
__global__ void __launch_bounds__(kThreads)
    matmul_wgmma(const T *a, const T *b, T *c, int m, int n, int k, long long a_stride,
                 long long b_stride, long long a_batch, long long b_batch) {
  __shared__ alignas(1024) unsigned char tile_a[kTile * 128], tile_b[kTile * 128];
  const int group = threadIdx.x / kw::kWarpGroup;
  const int row = blockIdx.y * kTile, col = blockIdx.x * kTile;
  a += blockIdx.z * a_batch;
  b += blockIdx.z * b_batch;
  c += static_cast<long long>(blockIdx.z) * m * n;
  const auto of_a = kw::Operand<A_K>::descriptor(kw::shared_address(tile_a + group * 64 * 128));
  const auto of_b = kw::Operand<B_K>::descriptor(kw::shared_address(tile_b));
  float d[kTile / 2];
  for (int k0 = 0; k0 < k; k0 += 64) {
    load_tile<A_K>(tile_a, a, a_stride, row, k0, m, k);
    load_tile<B_K>(tile_b, b, b_stride, col, k0, n, k);
    kw::fence_proxy_async();
    __syncthreads();
    kw::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++)
      kw::Wgmma<T, kTile>::template mma<A_K, B_K>(
          d, of_a + kw::Operand<A_K>::step(i), of_b + kw::Operand<B_K>::step(i), k0 > 0 || i > 0);
    kw::wgmma_commit();
    kw::wgmma_wait<0>();
    __syncthreads();
  }
  kw::pin(d);
  kw::store_directly(d, c, row + group * 64, col, m, n);
}

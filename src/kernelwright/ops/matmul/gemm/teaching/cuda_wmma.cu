// Tensor cores, through C++.
//
// Idea: nvcuda::wmma. A warp holds 16 x 16 blocks of a, b and c as fragments, whose layout is known
// only to the compiler, and multiplies two in one call. float32 operands are rounded to tf32.
// Traffic: as `cuda_warp`: tiles of 128 x 128, two of them in shared memory, copied by cp.async. c
// is stored through shared memory, since the layout of a fragment is not specified.
// Compared with `cuda_warp`: one instruction performs 2,048 or more multiply-adds instead of 32.
// Limit: loads of fragments. Padded rows avoid most bank conflicts, but these are loads of 4 and 8
// bytes, for which a warp waits. Not emulated: the emulator has no tensor cores.
#include <mma.h>

#include "kw/async.cuh"
#include "kw/vec.cuh"

namespace wmma = nvcuda::wmma;

constexpr int kRows = 128, kCols = 128, kWarpRows = 32, kWarpCols = 64, kThreads = 256;

// The type as which wmma reads operands stored as T, and the fragment's size along k.
template <typename T> struct Kind {
  using type = T;
  static constexpr int kDepth = 16;
};
template <> struct Kind<float> {
  using type = wmma::precision::tf32;
  static constexpr int kDepth = 8;
};

template <class FRAGMENT> __device__ __forceinline__ void round_to_tf32(FRAGMENT &f) {
#pragma unroll
  for (int i = 0; i < f.num_elements; i++) f.x[i] = wmma::__float_to_tf32(f.x[i]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    matmul_wmma(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int n,
                int k, long long lda, long long ldb) {
  constexpr int kVec = kw::kVecWidth<T>, kStep = Kind<T>::kDepth, kDepth = 4 * kVec;
  constexpr int kPitchA = kDepth + kVec, kPitchB = kCols + kVec;
  using Four = kw::Vec<T, kVec>;
  using Element = typename Kind<T>::type;
  __shared__ union {
    struct {
      alignas(32) T a[2][kRows][kPitchA], b[2][kDepth][kPitchB];
    } tiles;
    alignas(32) float out[kThreads / 32][16][20];
  } shared;
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const int top = blockIdx.y * kRows, left = blockIdx.x * kCols;
  const int y = warp / (kCols / kWarpCols) * kWarpRows, x = warp % (kCols / kWarpCols) * kWarpCols;

  const auto copy = [&](int slot, int first) {
#pragma unroll
    for (int e = t; e < kRows * kDepth / kVec; e += kThreads) {
      const int r = e / (kDepth / kVec), i = e % (kDepth / kVec) * kVec;
      auto *to = reinterpret_cast<Four *>(&shared.tiles.a[slot][r][i]);
      if (top + r < m && first + i < k)
        kw::copy_async(to, reinterpret_cast<const Four *>(a + (top + r) * lda + first + i));
      else
        *to = Four{};
    }
#pragma unroll
    for (int e = t; e < kDepth * kCols / kVec; e += kThreads) {
      const int i = e / (kCols / kVec), s = e % (kCols / kVec) * kVec;
      auto *to = reinterpret_cast<Four *>(&shared.tiles.b[slot][i][s]);
      if (left + s < n && first + i < k)
        kw::copy_async(to, reinterpret_cast<const Four *>(b + (first + i) * ldb + left + s));
      else
        *to = Four{};
    }
  };

  wmma::fragment<wmma::accumulator, 16, 16, kStep, float> sums[kWarpRows / 16][kWarpCols / 16];
#pragma unroll
  for (auto &row : sums)
#pragma unroll
    for (auto &sum : row) wmma::fill_fragment(sum, 0.0f);

  copy(0, 0);
  for (int first = 0, slot = 0; first < k; first += kDepth, slot ^= 1) {
    kw::copy_async_wait();
    __syncthreads();
    if (first + kDepth < k) copy(slot ^ 1, first + kDepth);
#pragma unroll
    for (int i = 0; i < kDepth; i += kStep) {
      wmma::fragment<wmma::matrix_a, 16, 16, kStep, Element, wmma::row_major> of_a[kWarpRows / 16];
      wmma::fragment<wmma::matrix_b, 16, 16, kStep, Element, wmma::row_major> of_b[kWarpCols / 16];
#pragma unroll
      for (int r = 0; r < kWarpRows / 16; r++) {
        wmma::load_matrix_sync(of_a[r], &shared.tiles.a[slot][y + 16 * r][i], kPitchA);
        if constexpr (sizeof(T) == 4) round_to_tf32(of_a[r]);
      }
#pragma unroll
      for (int s = 0; s < kWarpCols / 16; s++) {
        wmma::load_matrix_sync(of_b[s], &shared.tiles.b[slot][i][x + 16 * s], kPitchB);
        if constexpr (sizeof(T) == 4) round_to_tf32(of_b[s]);
      }
#pragma unroll
      for (int r = 0; r < kWarpRows / 16; r++)
#pragma unroll
        for (int s = 0; s < kWarpCols / 16; s++)
          wmma::mma_sync(sums[r][s], of_a[r], of_b[s], sums[r][s]);
    }
  }

  __syncthreads();  // the tiles are no longer in use: each warp stores through part of them
  auto &out = shared.out[warp];
#pragma unroll
  for (int r = 0; r < kWarpRows / 16; r++)
#pragma unroll
    for (int s = 0; s < kWarpCols / 16; s++) {
      wmma::store_matrix_sync(&out[0][0], sums[r][s], 20, wmma::mem_row_major);
      __syncwarp();
#pragma unroll
      for (int e = lane; e < 256; e += 32) {
        const int row = top + y + 16 * r + e / 16, col = left + x + 16 * s + e % 16;
        if (row < m && col < n)
          c[static_cast<long long>(row) * n + col] = kw::from_float<T>(out[e / 16][e % 16]);
      }
      __syncwarp();
    }
}

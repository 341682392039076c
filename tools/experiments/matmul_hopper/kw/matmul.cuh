// What matrix products on Hopper share: slabs of the operands in shared memory, and the ring of
// them between the warp group that loads and those that multiply.
#pragma once
#include "kw/epilogue.cuh"
#include "kw/outbox.cuh"
#include "kw/tiles.cuh"
#include "kw/wgmma.cuh"

namespace kw {

// WIDTH rows of A or columns of B by 64 of k, in 16-bit elements; SHARE blocks load a part each.
template <bool K_MAJOR, int WIDTH, int SHARE> struct Slab {
  static constexpr int kBytes = (K_MAJOR ? WIDTH : (WIDTH + 63) / 64 * 64) * 128;
  static __device__ __forceinline__ void load(unsigned char *to, const TensorMap &map,
                                              Barrier *full, int width0, int k0, int part,
                                              unsigned short mask) {
    if constexpr (K_MAJOR) {
      constexpr int kPart = WIDTH / SHARE;
      one(to + part * kPart * 128, map, full, k0, width0 + part * kPart, mask);
    } else {
      constexpr int kPart = 64 / SHARE;
#pragma unroll
      for (int w = 0; w < WIDTH; w += 64)
        one(to + w * 128 + part * kPart * 128, map, full, width0 + w, k0 + part * kPart, mask);
    }
  }

 private:
  static __device__ __forceinline__ void one(unsigned char *to, const TensorMap &map, Barrier *full,
                                             int x, int y, unsigned short mask) {
    if constexpr (SHARE == 1)
      tma_load(to, map, full, x, y);
    else
      tma_load(to, map, full, x, y, mask);
  }
};

// The ring of slabs between the warp group that loads and those that multiply. GROUPS of them share
// a tile of BM rows: each has kParts times 64.
template <typename T, int BM, int BN, int STAGES, int GROUPS, typename Cluster, bool A_K, bool B_K>
struct Stream {
  using A = Slab<A_K, BM, Cluster::kCols>;
  using B = Slab<B_K, BN, Cluster::kRows>;
  static constexpr int kParts = BM / 64 / GROUPS, kStage = A::kBytes + B::kBytes;
  static constexpr int kBytes = STAGES * kStage;
  struct Barriers {
    Barrier full[STAGES], empty[STAGES];
  };
  unsigned char *ring;
  Barriers &barriers;
  Ring<STAGES> at = {};

  // One thread, before all threads of the cluster meet.
  __device__ __forceinline__ void open() {
    for (int s = 0; s < STAGES; s++) {
      barriers.full[s].init(1);
      barriers.empty[s].init(GROUPS * Cluster::kBlocks);
    }
    fence_barrier_init();
  }

  // One thread: slabs [first, last) of the tile at (m0, n0).
  __device__ __forceinline__ void load(const TensorMap &a, const TensorMap &b, int m0, int n0,
                                       int first, int last, const Cluster &cluster) {
    for (int slab = first; slab < last; slab++, at.advance()) {
      unsigned char *to = ring + at.stage * kStage;
      Barrier *full = &barriers.full[at.stage];
      barriers.empty[at.stage].wait(at.parity ^ 1);
      full->expect(kStage);
      A::load(to, a, full, m0, slab * 64, cluster.col, cluster.row_mask());
      B::load(to + A::kBytes, b, full, n0, slab * 64, cluster.row, cluster.col_mask());
    }
  }

  // A warp group: the sum over the next `slabs`, at least one, of its share of the rows. It calls
  // issued() once the tensor cores have all of it before them.
  template <typename F>
  __device__ __forceinline__ void multiply(float (&d)[kParts][BN / 2], int slabs, int share,
                                           const F &issued) {
    int before = 0;
    for (int slab = 0; slab < slabs; slab++) {
      barriers.full[at.stage].wait(at.parity);
      const unsigned to = shared_address(ring + at.stage * kStage);
      const auto of_b = Operand<B_K>::descriptor(to + A::kBytes);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; k++)
#pragma unroll
        for (int p = 0; p < kParts; p++) {
          const auto of_a = Operand<A_K>::descriptor(to + (share * kParts + p) * 64 * 128);
          Wgmma<T, BN>::template mma<A_K, B_K>(d[p], of_a + Operand<A_K>::step(k),
                                               of_b + Operand<B_K>::step(k), slab > 0 || k > 0);
        }
      wgmma_commit();
      if (slab == slabs - 1) issued();
      wgmma_wait<1>();
      if (slab > 0) release(before);
      before = at.stage;
      at.advance();
    }
    wgmma_wait<0>();
    release(before);
#pragma unroll
    for (int p = 0; p < kParts; p++) settle(d[p]);
  }

 private:
  // To every block that loads for this one.
  __device__ __forceinline__ void release(int stage) {
    const int to = threadIdx.x % kGroup;
    if (to >= Cluster::kBlocks) return;
    if constexpr (Cluster::kBlocks == 1)
      barriers.empty[stage].arrive();
    else
      barriers.empty[stage].arrive(to);
  }
};

}  // namespace kw

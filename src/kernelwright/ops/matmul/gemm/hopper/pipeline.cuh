// The pipeline of all Hopper rungs: slices of A and B with 64 elements along k, in a ring in shared
// memory between the warp that loads them and the warp groups that multiply them.
#pragma once
#include "tiles.cuh"
#include "kw/hopper/wgmma.cuh"

namespace kw {

constexpr int kSlice = 64;  // elements along k: 128 bytes of a 16-bit type

// One operand's tile in a stage: WIDTH rows of A or columns of B by 64 elements along k. SHARE
// blocks of a cluster load one part each, for all of them.
template <bool K_MAJOR, int WIDTH, int SHARE> struct OperandTile {
  static constexpr int kBytes = (K_MAJOR ? WIDTH : (WIDTH + 63) / 64 * 64) * 128;
  static __device__ __forceinline__ void load(unsigned to, const TensorMap &map, Barrier *full,
                                              int width, int k, int batch, int part,
                                              unsigned short mask) {
    if constexpr (K_MAJOR) {
      constexpr int kPart = WIDTH / SHARE;
      copy(to + part * kPart * 128, map, full, k, width + part * kPart, batch, mask);
    } else {
      constexpr int kPart = kSlice / SHARE;
#pragma unroll
      for (int w = 0; w < WIDTH; w += 64)
        copy(to + w * 128 + part * kPart * 128, map, full, width + w, k + part * kPart, batch,
             mask);
    }
  }

 private:
  static __device__ __forceinline__ void copy(unsigned to, const TensorMap &map, Barrier *full,
                                              int x, int y, int z, unsigned short mask) {
    if constexpr (SHARE == 1)
      tma_load(to, map, full, x, y, z);
    else
      tma_load(to, map, full, x, y, z, mask);
  }
};

// The operands of a launch: their maps, the bytes that a stage receives (fewer than it holds if the
// matrix is smaller than a tile), and whether each has a batch dimension or is one matrix for all.
struct Operands {
  const TensorMap &a, &b;
  int bytes, a_batched, b_batched;
};

// GROUPS warp groups share a tile of BM rows: each multiplies kParts times 64 of them.
template <typename T, int BM, int BN, int STAGES, int GROUPS, typename Cluster, bool A_K, bool B_K>
struct Pipeline {
  using A = OperandTile<A_K, BM, Cluster::kCols>;
  using B = OperandTile<B_K, BN, Cluster::kRows>;
  static constexpr int kParts = BM / 64 / GROUPS, kStage = A::kBytes + B::kBytes;
  static constexpr int kBytes = STAGES * kStage;
  struct Barriers {
    Barrier full[STAGES], empty[STAGES];
  };
  unsigned ring;  // shared_address() of the ring
  Barriers &barriers;
  RingPosition<STAGES> at = {};

  // Called by one thread, before all threads of the cluster synchronize.
  __device__ __forceinline__ void init() {
    for (int s = 0; s < STAGES; s++) {
      barriers.full[s].init(1);
      barriers.empty[s].init(GROUPS * Cluster::kBlocks);
    }
    fence_barrier_init();
  }

  // Called by one thread: loads slices [first, last) along k of the tile at `tile`.
  __device__ __forceinline__ void load(const Operands &of, const Place &tile, int first, int last,
                                       const Cluster &cluster) {
    for (int slice = first; slice < last; slice++, at.advance()) {
      const unsigned to = ring + at.stage * kStage;
      Barrier *full = &barriers.full[at.stage];
      barriers.empty[at.stage].wait(at.parity ^ 1);
      full->expect(of.bytes);
      A::load(to, of.a, full, tile.row, slice * kSlice, tile.batch * of.a_batched, cluster.col,
              cluster.row_mask());
      B::load(to + A::kBytes, of.b, full, tile.col, slice * kSlice, tile.batch * of.b_batched,
              cluster.row, cluster.col_mask());
    }
  }

  // Called by a warp group: d = its rows of the product over the next `slices` slices, at least
  // one. issued() is called after all instructions for the tensor cores have been issued.
  template <typename F>
  __device__ __forceinline__ void multiply(float (&d)[kParts][BN / 2], int slices, int share,
                                           const F &issued) {
    int before = 0;
    for (int slice = 0; slice < slices; slice++) {
      barriers.full[at.stage].wait(at.parity);
      const unsigned to = ring + at.stage * kStage;
      const auto of_b = Operand<B_K>::descriptor(to + A::kBytes);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; k++)
#pragma unroll
        for (int p = 0; p < kParts; p++) {
          const auto of_a = Operand<A_K>::descriptor(to + (share * kParts + p) * 64 * 128);
          Wgmma<T, BN>::template mma<A_K, B_K>(d[p], of_a + Operand<A_K>::step(k),
                                               of_b + Operand<B_K>::step(k), slice > 0 || k > 0);
        }
      wgmma_commit();
      if (slice == slices - 1) issued();
      wgmma_wait<1>();
      if (slice > 0) release(before);
      before = at.stage;
      at.advance();
    }
    wgmma_wait<0>();
    release(before);
#pragma unroll
    for (int p = 0; p < kParts; p++) pin(d[p]);
  }

 private:
  // A stage may be overwritten: signals this to every block that loads into it.
  __device__ __forceinline__ void release(int stage) {
    const int to = threadIdx.x % kWarpGroup;
    if (to >= Cluster::kBlocks) return;
    if constexpr (Cluster::kBlocks == 1)
      barriers.empty[stage].arrive();
    else
      barriers.empty[stage].arrive(to);
  }
};

}  // namespace kw

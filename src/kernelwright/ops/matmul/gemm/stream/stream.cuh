// x weight^T for at most 64 rows of x: one warp streams the weight through a ring in shared memory,
// with x beside it, and warp groups multiply 64 rows of the weight each.
//
// The weight is the left operand of wgmma, so that all 64 rows of an instruction are used whatever
// the number of rows of x, which is the width of the instruction. The blocks of a cluster divide k
// and send their sums to the block that owns the rows. Without a cluster a block iterates over
// tiles, and the ring fills for the next tile while the sums of the last are stored.
#pragma once
#include "kw/hopper/async.cuh"
#include "kw/cluster.cuh"

namespace stream {

// BLOCKS: blocks of 8 rows of x. GROUPS: warp groups, of 64 rows of the weight each.
template <int BLOCKS, int GROUPS, int CLUSTER, int STAGES> struct Shape {
  static constexpr int kBlocks = BLOCKS, kGroups = GROUPS, kCluster = CLUSTER, kStages = STAGES;
  static constexpr int kColumns = 8 * BLOCKS, kSums = 4 * BLOCKS;
  static constexpr int kRows = 64 * GROUPS, kOwned = kRows / CLUSTER;
  static constexpr int kMultiplying = 128 * GROUPS, kThreads = kMultiplying + 32;
  static constexpr int kPitch = kColumns + 2;  // floats per row of sums: 8 bytes times odd
  static_assert(kOwned * CLUSTER == kRows, "every block owns the same number of rows");
};

// The barriers of the ring. A stage is released by every warp that multiplies.
template <class SHAPE> struct Ring {
  kw::Barrier full[SHAPE::kStages], empty[SHAPE::kStages];

  __device__ __forceinline__ void init() {
    for (int s = 0; s < SHAPE::kStages; s++) full[s].init(1), empty[s].init(4 * SHAPE::kGroups);
    kw::fence_barrier_init();
  }
};

// A block's part of a launch: tiles, and steps along k of each.
template <class SHAPE> struct Part {
  int rank, first, by, tiles, begin, count;

  __device__ __forceinline__ Part(int n, int steps)
      : rank(SHAPE::kCluster > 1 ? kw::cluster_rank() : 0),
        first(blockIdx.x / SHAPE::kCluster),
        by(gridDim.x / SHAPE::kCluster),
        tiles((n + SHAPE::kRows - 1) / SHAPE::kRows) {
    const int each = (steps + SHAPE::kCluster - 1) / SHAPE::kCluster;
    begin = rank * each;
    count = max(0, min(each, steps - begin));
  }
};

// A thread's sums of a tile: register 4 b + 2 h + i is of row 16 warp + lane / 4 + 8 h of the tile
// and row 8 b + 2 (lane % 4) + i of x.
template <class SHAPE> using Sums = float[SHAPE::kSums];

// Stores a tile's sums from registers.
template <class SHAPE, class STORE>
__device__ __forceinline__ void store_sums(const Sums<SHAPE> &sums, int top, int m, int n,
                                           const STORE &store) {
  const int lane = threadIdx.x % 32, row = top + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int at = 0; at < SHAPE::kSums; at++) {
    const int i = row + 8 * (at / 2 % 2), r = at / 4 * 8 + lane % 4 * 2 + at % 2;
    if (i < n && r < m) store(sums[at], i, r, n);
  }
}

// The sums of a cluster's tile: every block sends two rows of x at a time to the owner of a row of
// the weight, which adds them in the order of blocks and stores them.
template <class SHAPE> struct Exchange {
  kw::Mailbox &box;
  float *received;
  int m, n, rank;

  __device__ __forceinline__ unsigned bytes() const {
    return SHAPE::kCluster * SHAPE::kOwned * ((m + 1) / 2) * sizeof(float2);
  }
  __device__ __forceinline__ void send(const Sums<SHAPE> &sums) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = threadIdx.x / 32 * 16 + 8 * h + lane / 4;
      float *to = received + (rank * SHAPE::kOwned + row % SHAPE::kOwned) * SHAPE::kPitch;
#pragma unroll
      for (int b = 0; b < SHAPE::kBlocks; b++) {
        const int r = 8 * b + lane % 4 * 2;
        if (r >= m) continue;
        const float2 both = {sums[4 * b + 2 * h], sums[4 * b + 2 * h + 1]};
        box.send(reinterpret_cast<float2 *>(to + r), both, row / SHAPE::kOwned);
      }
    }
  }
  template <class STORE> __device__ __forceinline__ void store(int top, const STORE &store) const {
    box.wait();
    top += rank * SHAPE::kOwned;
    for (int at = threadIdx.x; at < (m + 1) / 2 * SHAPE::kOwned; at += SHAPE::kMultiplying) {
      const int i = at % SHAPE::kOwned, r = at / SHAPE::kOwned * 2;
      float2 total = {0.0f, 0.0f};
#pragma unroll
      for (int part = 0; part < SHAPE::kCluster; part++) {
        const float *p = received + (part * SHAPE::kOwned + i) * SHAPE::kPitch + r;
        const float2 v = *reinterpret_cast<const float2 *>(p);
        total = {total.x + v.x, total.y + v.y};
      }
      if (top + i < n) store(total.x, top + i, r, n);
      if (top + i < n && r + 1 < m) store(total.y, top + i, r + 1, n);
    }
  }
};

// Called by one thread: keeps the ring full for all tiles of the block.
template <class SHAPE, class OPERANDS>
__device__ __forceinline__ void load(Ring<SHAPE> &ring, unsigned shared, const Part<SHAPE> &part,
                                     const OPERANDS &operands) {
  kw::RingPosition<SHAPE::kStages> at;
  for (int tile = part.first; tile < part.tiles; tile += part.by)
    for (int step = part.begin; step < part.begin + part.count; step++, at.advance()) {
      ring.empty[at.stage].wait(at.parity ^ 1);
      ring.full[at.stage].expect(operands.bytes);
      operands.load(shared + at.stage * OPERANDS::kStage, &ring.full[at.stage], tile * SHAPE::kRows,
                    step);
    }
}

// OPERANDS: what a stage holds, how it is loaded, and how a warp group multiplies it. `unaligned`:
// dynamic shared memory; after the ring follow the sums received from the cluster.
template <class SHAPE, class OPERANDS, class STORE>
__device__ __forceinline__ void multiply(const OPERANDS &operands, unsigned char *unaligned,
                                         int steps, int m, int n, const STORE &store) {
  __shared__ Ring<SHAPE> ring;
  __shared__ kw::Mailbox box;
  const unsigned start = kw::shared_address(unaligned), shared = (start + 1023) & ~1023u;
  auto *received =
      reinterpret_cast<float *>(unaligned + (shared - start) + SHAPE::kStages * OPERANDS::kStage);
  const Part<SHAPE> part(n, steps);
  const Exchange<SHAPE> exchange{box, received, m, n, part.rank};
  if (threadIdx.x == 0) ring.init();
  if constexpr (SHAPE::kCluster > 1) box.open(exchange.bytes());
  __syncthreads();
  const bool loads = threadIdx.x >= SHAPE::kMultiplying;
  if (loads && kw::elect_one()) load<SHAPE>(ring, shared, part, operands);
  __syncwarp();
  if constexpr (SHAPE::kCluster > 1) kw::Mailbox::ready();  // every block has opened its mailbox
  if (loads) return;

  kw::RingPosition<SHAPE::kStages> at;
  for (int tile = part.first; tile < part.tiles; tile += part.by) {
    Sums<SHAPE> sums = {};
    for (int step = 0; step < part.count; step++, at.advance()) {
      ring.full[at.stage].wait(at.parity);
      operands.multiply(sums, shared + at.stage * OPERANDS::kStage);
      if (threadIdx.x % 32 == 0) ring.empty[at.stage].arrive();
    }
    if constexpr (SHAPE::kCluster > 1) {
      exchange.send(sums);
      exchange.store(tile * SHAPE::kRows, store);
    } else {
      store_sums<SHAPE>(sums, tile * SHAPE::kRows, m, n, store);
    }
  }
}

}  // namespace stream

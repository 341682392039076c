// x weight^T for at most 64 rows of x: the blocks of a cluster divide k, x is held in shared
// memory, and each lane has a ring of units of the weight.
//
// A block keeps its part of x for the whole launch. Its warps share the rows of a tile and the
// steps along k. A lane copies the data that it multiplies itself, so that it waits only for its
// own copies and no block-wide barrier is needed between a copy and its use. At the end of a tile
// every warp sends its sums to the block that owns their rows, which adds them in the order of
// blocks and warps.
#pragma once
#include "kw/async.cuh"
#include "kw/cluster.cuh"
#include "kw/launch.cuh"
#include "lanes.cuh"

namespace few_rows {

// BLOCKS: blocks of 8 rows of x. GROUPS: groups of 16 rows of the weight per warp. ALONG_N x
// ALONG_K warps. AHEAD: see copy_weight_16.
template <int BLOCKS, int GROUPS, int ALONG_N, int ALONG_K, int CLUSTER, int STAGES, int AHEAD>
struct Split {
  static constexpr int kBlocks = BLOCKS, kGroups = GROUPS, kAlongK = ALONG_K, kCluster = CLUSTER;
  static constexpr int kStages = STAGES, kAhead = AHEAD, kThreads = 32 * ALONG_N * ALONG_K;
  static constexpr int kRows = 16 * GROUPS * ALONG_N;  // per tile
  static constexpr int kOwned = kRows / CLUSTER, kParts = ALONG_K * CLUSTER;
  static constexpr int kPitch = 8 * BLOCKS + 2;  // floats per row of sums: 8 bytes times odd
  static_assert(kOwned % 8 == 0, "a block owns whole halves of fragments");
};

// Copies 16 bytes. `AHEAD`: bytes around them that the L2 cache fetches too, or 0.
template <int AHEAD>
__device__ __forceinline__ void copy_weight_16(char *shared, const void *from, int bytes) {
#ifdef __CUDA_ARCH__
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (AHEAD == 128)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
  else if constexpr (AHEAD == 256)
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
  else
    matmul::copy_async_16(shared, from, bytes);
#else
  matmul::copy_async_16(shared, from, bytes);
#endif
}

// The data that a warp copies ahead: its rows of the cluster's tiles, its steps along k.
template <class WEIGHTS, class SPLIT> struct Ring {
  static constexpr int kGroups = SPLIT::kGroups, kUnits = WEIGHTS::kUnits;
  static constexpr int kOfUnits = kGroups * 2 * kUnits * 512;
  static constexpr int kStage = kOfUnits + WEIGHTS::kScales * kGroups * 64;
  static_assert(kGroups <= 2, "a lane copies one row's scale");

  const WEIGHTS &weights;
  char *slots;
  int begin, count, first;  // steps of this block; the first step of this warp
  int tiles, tile, step, to = 0;
  int rows;          // rows of the tile that are inside, from this lane's first row on
  const char *from;  // this lane's first unit
  const unsigned *scale;

  __device__ __forceinline__ Ring(const WEIGHTS &weights, char *shared, int begin, int count,
                                  int tiles)
      : weights(weights),
        slots(shared + threadIdx.x / 32 * SPLIT::kStages * kStage),
        begin(begin),
        count(count),
        first(threadIdx.x / 32 % SPLIT::kAlongK),
        tiles(first < count ? tiles : 0),
        tile(blockIdx.x / SPLIT::kCluster) {
    seek();
  }
  static __device__ __forceinline__ int next(int slot) {
    return slot + kStage == SPLIT::kStages * kStage ? 0 : slot + kStage;
  }
  __device__ __forceinline__ void seek() {
    const int lane = threadIdx.x % 32;
    const int top = tile * SPLIT::kRows + threadIdx.x / 32 / SPLIT::kAlongK * 16 * kGroups;
    step = first;
    rows = weights.n - top - lane / 4;
    from = weights.at(top + lane / 4, (begin + step) * WEIGHTS::kDepth) + 16 * (lane % 4);
    if constexpr (WEIGHTS::kScales > 0)
      scale = weights.scale_at(min(top + lane, weights.n - 1), begin + step);
  }
  // Starts copying the next step, if there is one.
  __device__ __forceinline__ void copy() {
    if (tile < tiles) {
      start();
      from += SPLIT::kAlongK * kUnits * 64;
      if constexpr (WEIGHTS::kScales > 0) scale += weights.scales_of(SPLIT::kAlongK);
      step += SPLIT::kAlongK;
      if (step >= count) {
        tile += gridDim.x / SPLIT::kCluster;
        seek();
      }
    }
    kw::copy_async_commit();
    to = next(to);
  }
  __device__ __forceinline__ void start() const {
    const int lane = threadIdx.x % 32;
    char *slot = slots + to;
    const char *p = from;
    bool inside[kUnits];
#pragma unroll
    for (int u = 0; u < kUnits; u++) inside[u] = weights.inside(begin + step, u, lane % 4);
#pragma unroll
    for (int i = 0; i < 2 * kGroups; i++) {
#pragma unroll
      for (int u = 0; u < kUnits; u++)
        copy_weight_16<SPLIT::kAhead>(slot + (i * kUnits + u) * 512 + lane * 16, p + 64 * u,
                                      8 * i < rows && inside[u] ? 16 : 0);
      p += 8 * weights.pitch();
    }
    if constexpr (WEIGHTS::kScales > 0) {
      auto *of_rows = reinterpret_cast<unsigned *>(slot + kOfUnits) + lane;
#pragma unroll
      for (int s = 0; s < WEIGHTS::kScales; s++) {
        if (lane >= 16 * kGroups) continue;
        if (weights.inside(begin + step, s * kUnits / WEIGHTS::kScales, 0))
          kw::copy_async(of_rows + s * 16 * kGroups, scale + s * static_cast<long long>(weights.n));
        else
          of_rows[s * 16 * kGroups] = 0;
      }
    }
  }
};

// A warp's sums: for each group, of 16 rows of the weight; for each block, of 8 rows of x.
template <typename T, class WEIGHTS, class SPLIT> struct Sums {
  static constexpr int kGroups = SPLIT::kGroups, kBlocks = SPLIT::kBlocks;
  static constexpr int kUnits = WEIGHTS::kUnits, kScales = WEIGHTS::kScales;
  using Fragments = float[kGroups][kBlocks][4];
  Fragments of;

  // `shared`: a step of the ring. `x`, `last_x`: this lane's first unit of x, for all blocks except
  // the last and for the last. `turn_of_x`: bytes between the units of consecutive turns.
  __device__ __forceinline__ void multiply(const char *shared, const char *x, const char *last_x,
                                           int turn_of_x) {
    const int lane = threadIdx.x % 32;
    uint4 units[kGroups][2][kUnits];
#pragma unroll
    for (int g = 0; g < kGroups; g++)
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int u = 0; u < kUnits; u++)
          units[g][h][u] = *reinterpret_cast<const uint4 *>(
              shared + ((2 * g + h) * kUnits + u) * 512 + lane * 16);
    if constexpr (kScales == 0) {
      const unsigned meta[kGroups][2] = {};
      multiply<0, WEIGHTS::kOfX>(of, units, meta, x, last_x, turn_of_x);
    } else {
      const auto *of_rows = reinterpret_cast<const unsigned *>(shared + kGroups * 2 * kUnits * 512);
      scaled<0>(units, of_rows + lane / 4, x, last_x, turn_of_x);
    }
  }
  // Multiplies the scaled groups of a step from group S on.
  template <int S>
  __device__ __forceinline__ void scaled(const uint4 (&units)[kGroups][2][kUnits],
                                         const unsigned *of_rows, const char *x, const char *last_x,
                                         int turn_of_x) {
    if constexpr (S < kScales) {
      unsigned meta[kGroups][2];
#pragma unroll
      for (int i = 0; i < 2 * kGroups; i++) meta[i / 2][i % 2] = of_rows[S * 16 * kGroups + 8 * i];
      Fragments in_group = {};
      constexpr int kTurns = WEIGHTS::kOfX / kScales;
      multiply<S * kTurns, (S + 1) * kTurns>(in_group, units, meta, x, last_x, turn_of_x);
#pragma unroll
      for (int g = 0; g < kGroups; g++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const float by = WEIGHTS::scale(meta[g][h]);
#pragma unroll
          for (int b = 0; b < kBlocks; b++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++)
              of[g][b][i] = fmaf(by, in_group[g][b][i], of[g][b][i]);
        }
      scaled<S + 1>(units, of_rows, x, last_x, turn_of_x);
    }
  }
  // Multiplies turns [FROM, TO) of a step.
  template <int FROM, int TO>
  static __device__ __forceinline__ void multiply(Fragments &sums,
                                                  const uint4 (&units)[kGroups][2][kUnits],
                                                  const unsigned (&meta)[kGroups][2], const char *x,
                                                  const char *last_x, int turn_of_x) {
#pragma unroll
    for (int turn = FROM; turn < TO; turn++) {
      uint4 low[kGroups], high[kGroups];
#pragma unroll
      for (int g = 0; g < kGroups; g++) {
        low[g] = typename WEIGHTS::Row(meta[g][0]).eight(units[g][0], turn);
        high[g] = typename WEIGHTS::Row(meta[g][1]).eight(units[g][1], turn);
      }
#pragma unroll
      for (int b = 0; b < kBlocks; b++) {
        const char *of_x = b + 1 < kBlocks ? x + b * 512 : last_x;
        const uint4 v = *reinterpret_cast<const uint4 *>(of_x + turn * turn_of_x);
#pragma unroll
        for (int g = 0; g < kGroups; g++) {
          const unsigned first[4] = {low[g].x, high[g].x, low[g].y, high[g].y};
          const unsigned second[4] = {low[g].z, high[g].z, low[g].w, high[g].w};
          matmul::multiply_add<T>(sums[g][b], first, v.x, v.y);
          matmul::multiply_add<T>(sums[g][b], second, v.z, v.w);
        }
      }
    }
  }
};

// A block's part of a launch.
template <class WEIGHTS, class SPLIT> struct Part {
  int rank;                                    // rank in the cluster
  int tiles, first, from_tile_to_tile, turns;  // of the cluster
  int begin, count;                            // steps along k

  __device__ __forceinline__ Part(int n, int k)
      : rank(SPLIT::kCluster > 1 ? kw::cluster_rank() : 0),
        tiles((n + SPLIT::kRows - 1) / SPLIT::kRows),
        first(blockIdx.x / SPLIT::kCluster),
        from_tile_to_tile(gridDim.x / SPLIT::kCluster),
        turns((tiles - first + from_tile_to_tile - 1) / from_tile_to_tile) {
    const int steps = (k + WEIGHTS::kDepth - 1) / WEIGHTS::kDepth;
    const int each = (steps + SPLIT::kCluster - 1) / SPLIT::kCluster;
    begin = rank * each;
    count = max(0, min(each, steps - begin));
  }
};

// Sends sums to the blocks that own their rows, through two mailboxes in turn.
template <class SPLIT> struct Exchange {
  static constexpr int kOwned = SPLIT::kOwned, kPitch = SPLIT::kPitch, kAlongK = SPLIT::kAlongK;
  static constexpr bool kSent = SPLIT::kCluster > 1;

  kw::Mailbox *boxes;
  float *sums;
  int m, n, rank, first, from_tile_to_tile, turns;

  template <class PART>
  __device__ __forceinline__ Exchange(kw::Mailbox (&boxes)[2], char *shared, int m, int n,
                                      const PART &part)
      : boxes(boxes),
        sums(reinterpret_cast<float *>(shared)),
        m(m),
        n(n),
        rank(part.rank),
        first(part.first),
        from_tile_to_tile(part.from_tile_to_tile),
        turns(part.turns) {
    if constexpr (kSent)
      kw::Mailbox::open_all(boxes, bytes(), [&](int turn) { return turn < turns; });
  }
  __device__ __forceinline__ unsigned bytes() const {
    return SPLIT::kParts * kOwned * ((m + 1) / 2) * sizeof(float2);
  }
  __device__ __forceinline__ float *box(int turn) const {
    return sums + turn % 2 * (SPLIT::kParts * kOwned * kPitch);
  }
  __device__ __forceinline__ void ready() const {
    if constexpr (kSent) kw::Mailbox::ready();
  }
  // Sends two rows of x at a time, those that are inside.
  template <class SUMS> __device__ __forceinline__ void send(const SUMS &from, int turn) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int part = rank * kAlongK + warp % kAlongK;
#pragma unroll
    for (int g = 0; g < SPLIT::kGroups; g++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = (warp / kAlongK * SPLIT::kGroups + g) * 16 + 8 * h + lane / 4;
        float *to = box(turn) + (part * kOwned + row % kOwned) * kPitch;
#pragma unroll
        for (int b = 0; b < SPLIT::kBlocks; b++) {
          const int r = 8 * b + lane % 4 * 2;
          if (r >= m) continue;
          const float2 both = {from.of[g][b][2 * h], from.of[g][b][2 * h + 1]};
          auto *slot = reinterpret_cast<float2 *>(to + r);
          if constexpr (kSent)
            boxes[turn % 2].send(slot, both, row / kOwned);
          else
            *slot = both;
        }
      }
  }
  // Adds the received sums in the order of blocks and warps.
  template <class STORE> __device__ __forceinline__ void receive(int turn, const STORE &store) {
    if constexpr (kSent)
      boxes[turn % 2].wait(turn / 2 % 2);
    else
      __syncthreads();
    const int top = (first + turn * from_tile_to_tile) * SPLIT::kRows + rank * kOwned;
    for (int at = threadIdx.x; at < (m + 1) / 2 * kOwned; at += SPLIT::kThreads) {
      const int i = at % kOwned, r = at / kOwned * 2;
      float2 total = {0.0f, 0.0f};
#pragma unroll
      for (int part = 0; part < SPLIT::kParts; part++) {
        const float *p = box(turn) + (part * kOwned + i) * kPitch + r;
        const float2 v = *reinterpret_cast<const float2 *>(p);
        total = {total.x + v.x, total.y + v.y};
      }
      if (top + i < n) store(total.x, top + i, r, n);
      if (top + i < n && r + 1 < m) store(total.y, top + i, r + 1, n);
    }
    if (kSent && turn + 2 < turns) boxes[turn % 2].expect(bytes());
  }
};

// Starts copying this block's steps of x: unit by unit, in the order in which lanes multiply them,
// with all rows of x for each unit.
template <typename T, class WEIGHTS>
__device__ __forceinline__ void copy_x(char *shared, const T *x, long long x_line, int begin,
                                       int count, int m, int k) {
  constexpr int kUnits = WEIGHTS::kDepth / 8;
  const unsigned units = count * kUnits;
  for (unsigned at = threadIdx.x; at < m * units; at += blockDim.x) {
    const int r = at / units, u = at % units, deep = begin * WEIGHTS::kDepth + 8 * u;
    const int turn = u / kUnits * WEIGHTS::kOfX + WEIGHTS::turn(u % kUnits);
    matmul::copy_async_16(shared + ((turn * m + r) * 4 + WEIGHTS::q(u % kUnits)) * 16,
                          x + r * x_line + deep, deep < k ? 16 : 0);
  }
}

// `shared`: dynamic shared memory, in which the rings begin at `rings` and the sums received from
// the cluster at `boxed`.
template <typename T, class WEIGHTS, class SPLIT, class STORE>
__device__ __forceinline__ void clustered(const WEIGHTS &weights, const T *x, long long x_line,
                                          char *shared, int rings, int boxed, int m, int n, int k,
                                          const STORE &store) {
  __shared__ kw::Mailbox boxes[2];
  const Part<WEIGHTS, SPLIT> part(n, k);
  Exchange<SPLIT> exchange(boxes, shared + boxed, m, n, part);

  kw::wait_for_launch_before();
  copy_x<T, WEIGHTS>(shared, x, x_line, part.begin, part.count, m, k);
  kw::copy_async_commit();
  Ring<WEIGHTS, SPLIT> ring(weights, shared + rings, part.begin, part.count, part.tiles);
#pragma unroll
  for (int i = 0; i < SPLIT::kStages - 1; i++) ring.copy();
  kw::copy_async_wait_all_but<SPLIT::kStages - 1>();
  __syncthreads();  // x has arrived
  kw::let_next_launch_start();
  exchange.ready();

  const int lane = threadIdx.x % 32, turn_of_x = m * 64;
  const char *of_x = shared + min(lane / 4, m - 1) * 64 + lane % 4 * 16;
  const char *last_x = shared + min(8 * SPLIT::kBlocks - 8 + lane / 4, m - 1) * 64 + lane % 4 * 16;
  int slot = 0;
  for (int turn = 0; turn < part.turns; turn++) {
    Sums<T, WEIGHTS, SPLIT> sums = {};
    for (int step = ring.first; step < part.count; step += SPLIT::kAlongK) {
      kw::copy_async_wait_all_but<SPLIT::kStages - 2>();
      __syncwarp();  // other lanes' scales have arrived, and the previous slot is read
      ring.copy();
      const int to_x = step * WEIGHTS::kOfX * turn_of_x;
      sums.multiply(ring.slots + slot, of_x + to_x, last_x + to_x, turn_of_x);
      slot = ring.next(slot);
    }
    exchange.send(sums, turn);
    exchange.receive(turn, store);
  }
}

}  // namespace few_rows

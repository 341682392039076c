// A decoding step's attention: blocks, and within them warps, share the keys of a head of the
// cache.
//
// Scores are 16 rows of queries times 8 columns of keys, sums 16 rows of a head's elements times 8
// columns of queries: scores then have the layout of the second product's right operand. A warp has
// a ring of its own in shared memory: before the merge no barrier of the block is needed. Its lanes
// copy whole rows, so that a request is for whole lines.
#pragma once
#include "kw/async.cuh"
#include "kw/last_block.cuh"
#include "warp.cuh"

namespace split {

// As many lanes copy a row of n units: the largest power of two that divides n.
__host__ __device__ constexpr int lanes_of(int n) { return n % 32 == 0 ? 32 : n & -n; }

// A warp's ring in shared memory. A lane's units of a row are next to those of other lanes in
// memory, and an instruction copies whole rows, or as much of them as 32 lanes do.
template <class S, class ROWS> struct Ring {
  static constexpr int kKeyLanes = lanes_of(4 * S::kKeyUnits), kKeyRows = 32 / kKeyLanes;
  static constexpr int kValueLanes = lanes_of(8 * S::kValueUnits), kValueRows = 32 / kValueLanes;
  char *shared;
  const ROWS &rows;
  const char *k, *v;  // where the lane starts to copy
  int keys, lane = threadIdx.x % 32;

  __device__ __forceinline__ Ring(char *shared, const ROWS &rows, int keys)
      : shared(shared),
        rows(rows),
        k(rows.k + threadIdx.x % 32 / kKeyLanes * static_cast<long long>(rows.k_row) +
          threadIdx.x % kKeyLanes * 16),
        v(rows.v + threadIdx.x % 32 / kValueLanes * static_cast<long long>(rows.v_row) +
          threadIdx.x % kValueLanes * S::kValueBytes),
        keys(keys) {}

  // Of a tile of 16 keys, for lane `of`: rows of keys of / 4 and 8 more, whose scores are columns.
  __device__ __forceinline__ char *key(int slot, int m, int half, int c, int of) const {
    return shared + slot * S::kSlot + m * S::kTileBytes + (half * S::kKeyUnits + c) * 512 + of * 16;
  }
  // For lane `of`: rows of values 2 (of % 4) and the next, and 8 more, whose weights it has. The
  // lanes of two rows, and those of a column, have different banks.
  __device__ __forceinline__ char *value(int slot, int m, int i, int c, int of) const {
    return shared + slot * S::kSlot + m * S::kTileBytes + S::kOfKeys +
           ((i * S::kValueUnits + c) * 32 + (of ^ of / 8)) * S::kValueBytes;
  }
  // Keys from `first` on. Nothing of what follows the last key is read.
  __device__ __forceinline__ void copy(int slot, int first, const int (&places)[S::kTiles]) const {
#pragma unroll
    for (int m = 0; m < S::kTiles; m++, first += 16) {
      long long of_k, of_v;
      rows.find(first, places[m], of_k, of_v);
#pragma unroll
      for (int down = 0; down < 16; down += kKeyRows) {
        const int row = down + lane / kKeyLanes, token = first + row;
        const char *from = rows.key(k + of_k + down * rows.k_row, token, lane % kKeyLanes * 16);
#pragma unroll
        for (int right = 0; right < 4 * S::kKeyUnits; right += kKeyLanes) {
          const int unit = right + lane % kKeyLanes;
          copy_or_zero<16>(key(slot, m, row / 8, unit / 4, row % 8 * 4 + unit % 4),
                           from + right * 16, token < keys && unit * S::kKeyElements < S::kD);
        }
      }
#pragma unroll
      for (int down = 0; down < 16; down += kValueRows) {
        const int row = down + lane / kValueLanes, token = first + row;
        const char *from =
            rows.value(v + of_v + down * rows.v_row, token, lane % kValueLanes * S::kValueBytes);
#pragma unroll
        for (int right = 0; right < 8 * S::kValueUnits; right += kValueLanes) {
          const int unit = right + lane % kValueLanes;
          copy_or_zero<S::kValueBytes>(
              value(slot, m, row % 2 + row / 8 * 2, unit / 8, unit % 8 * 4 + row % 8 / 2),
              from + right * S::kValueBytes, token < keys && unit * S::kValueElements < S::kDv);
        }
      }
    }
  }
  __device__ __forceinline__ void look_up(int (&places)[S::kTiles], int first) const {
#pragma unroll
    for (int m = 0; m < S::kTiles; m++, first += 16)
      places[m] = first < keys ? rows.place(first) : 0;
  }
};

// Products of queries and the keys of tile m.
template <class S, class ROWS>
__device__ __forceinline__ void score(float (&z)[S::kHalves][S::kTiles][2][4], int m,
                                      const Queries<S> &queries, const Ring<S, ROWS> &ring,
                                      int slot) {
#pragma unroll
  for (int c = 0; c < S::kKeyUnits; c++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint4 unit = *reinterpret_cast<const uint4 *>(ring.key(slot, m, half, c, ring.lane));
      const unsigned words[4] = {unit.x, unit.y, unit.z, unit.w};
      unsigned key[4 * S::kPairs];
#pragma unroll
      for (int i = 0; i < 4; i++) S::Elements::expand(words[i], key + i * S::kPairs);
#pragma unroll
      for (int i = 0; i < S::kSteps; i++)
#pragma unroll
        for (int p = 0; p < S::kHalves; p++)
          matmul::multiply_add<typename S::Operand>(z[p][m][half], queries.rows[p][c][i],
                                                    key[2 * i], key[2 * i + 1]);
    }
}

// To base 2, of one group's queries; -inf for what follows the last of `left` keys.
template <class S>
__device__ __forceinline__ void to_base_2(float (&to)[S::kTiles][2][2],
                                          const float (&z)[S::kTiles][2][4], int half, float unit,
                                          float factor, int left) {
#pragma unroll
  for (int m = 0; m < S::kTiles; m++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float x = z[m][i / 2][2 * half + i % 2];
      if constexpr (S::kPairs == 2) x *= unit;
      to[m][i / 2][i % 2] = x * factor;
    }
  if (left >= S::kKeys) return;
#pragma unroll
  for (int m = 0; m < S::kTiles; m++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (16 * m + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2 >= left)
        to[m][i / 2][i % 2] = -kw::kInfinity;
}

// Adds values of tile m by their weights.
template <class S, class ROWS>
__device__ __forceinline__ void add_values(Sums<S> &sums, int m,
                                           const unsigned (&weights)[S::kGroups][S::kTiles][2],
                                           const Ring<S, ROWS> &ring, int slot) {
  using Words = kw::Vec<unsigned, S::kValueWords>;
#pragma unroll
  for (int c = 0; c < S::kValueUnits; c++) {
    Words of[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
      of[i] = *reinterpret_cast<const Words *>(ring.value(slot, m, i, c, ring.lane));
#pragma unroll
    for (int i = 0; i < S::kValueWords; i++) {
      unsigned low[S::kOfWord], high[S::kOfWord];
      across<typename S::Elements>(of[0][i], of[1][i], low);
      across<typename S::Elements>(of[2][i], of[3][i], high);
#pragma unroll
      for (int p = 0; p < S::kOfWord; p += 2) {
        const unsigned rows[4] = {low[p], low[p + 1], high[p], high[p + 1]};
        const int tile = (c * S::kValueWords + i) * S::kPairs + p / 2;
#pragma unroll
        for (int g = 0; g < S::kGroups; g++)
          matmul::multiply_add<typename S::Operand>(sums.y[g][tile], rows, weights[g][m][0],
                                                    weights[g][m][1]);
      }
    }
  }
}

// Steps of KEYS from `begin` to `end`, of which a warp takes every kWarps-th. The first are copied.
template <class S, class ROWS>
__device__ __forceinline__ void start(const Ring<S, ROWS> &ring, int begin, int end) {
  const int first = begin + threadIdx.x / 32;
  int places[S::kStages][S::kTiles];
#pragma unroll
  for (int i = 0; i < S::kStages; i++) ring.look_up(places[i], (first + i * S::kWarps) * S::kKeys);
#pragma unroll
  for (int i = 0; i < S::kStages; i++) {
    const int step = first + i * S::kWarps;
    if (step < end) ring.copy(i, step * S::kKeys, places[i]);
    kw::copy_async_commit();
  }
}

// All of them, after `start`.
template <class S, class ROWS>
__device__ __forceinline__ void attend(Sums<S> &sums, const Queries<S> &queries,
                                       const Ring<S, ROWS> &ring, int begin, int end,
                                       float factor) {
  constexpr int kAhead = S::kStages * S::kWarps;
  const int first = begin + threadIdx.x / 32;
  int places[S::kTiles];
  ring.look_up(places, (first + kAhead) * S::kKeys);  // a step before it is needed
  int slot = 0;
  for (int step = first; step < end; step += S::kWarps) {
    kw::copy_async_wait_all_but<S::kStages - 1>();
    __syncwarp();  // for what other lanes copied
    float z[S::kHalves][S::kTiles][2][4] = {}, base_2[S::kTiles][2][2];
#pragma unroll
    for (int m = 0; m < S::kTiles; m++) score(z, m, queries, ring, slot);
    unsigned weights[S::kGroups][S::kTiles][2];
#pragma unroll
    for (int g = 0; g < S::kGroups; g++) {
      to_base_2<S>(base_2, z[g / 2], g % 2, queries.unit[g], factor, ring.keys - step * S::kKeys);
      sums.weigh(g, base_2, weights[g]);
    }
#pragma unroll
    for (int m = 0; m < S::kTiles; m++) add_values(sums, m, weights, ring, slot);

    __syncwarp();  // every lane has read the slot
    if (step + kAhead < end) ring.copy(slot, (step + kAhead) * S::kKeys, places);
    kw::copy_async_commit();
    ring.look_up(places, (step + kAhead + S::kWarps) * S::kKeys);
    slot = slot == S::kStages - 1 ? 0 : slot + 1;
  }
}

// Where results go: of a block's queries, and of a split of their keys.
template <typename T> struct Results {
  T *y;
  float *lse;  // or null
  float *sums;
  State *states;
  unsigned *arrived;
  int mine, splits, split;
  float scale;         // of values
  bool empty_is_zero;  // where no key has a weight; NaN otherwise, as softmax gives
};

// A warp's sums to shared memory.
template <class S>
__device__ __forceinline__ void put(const Sums<S> &sums, float *y, State *states) {
  const int row = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  constexpr int kOfUnit = S::kValueWords * S::kPairs;
#pragma unroll
  for (int g = 0; g < S::kGroups; g++) {
    const float total = kw::warp_reduce<kw::Sum, 4>(sums.total[g]);
    if (quad == 0) states[8 * g + row] = {sums.top[g], total};
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int j = 0; j < S::kTilesOfSums; j++) {
        const int dim = (j / kOfUnit * 8 + row) * S::kValueElements + j % kOfUnit * 2;
        *reinterpret_cast<float2 *>(y + (8 * g + 2 * quad + i) * S::kPitch + dim) = {
            sums.y[g][j][i], sums.y[g][j][2 + i]};
      }
  }
}

// Merges the warps of a block, then, in the last block of those that share the keys, the blocks.
template <class S>
__device__ __forceinline__ void finish(const Sums<S> &sums, char *shared,
                                       const Results<typename S::T> &to) {
  constexpr int kThreads = 32 * S::kWarps, kWide = S::kDv / 4, kSums = S::kQueries * S::kPitch;
  auto *y = reinterpret_cast<float *>(shared);
  auto *states = reinterpret_cast<State *>(y + S::kWarps * kSums);
  const int warp = threadIdx.x / 32;
  __syncthreads();  // every warp has read its ring
  put(sums, y + warp * kSums, states + warp * S::kQueries);
  __syncthreads();
  Parts parts = {y, states, S::kWarps, S::kQueries, S::kPitch};
  if (to.splits > 1) {
    for (int i = threadIdx.x; i < to.mine * kWide; i += kThreads) {
      State of;
      const int at = to.split * S::kQueries + i / kWide;
      const float4 sum = parts.merged(i / kWide, i % kWide * 4, of);
      *reinterpret_cast<float4 *>(to.sums + static_cast<long long>(at) * S::kDv + i % kWide * 4) =
          sum;
      if (i % kWide == 0) to.states[at] = of;
    }
    __syncthreads();
    if (!kw::is_last_block(to.arrived, to.splits)) return;
    parts = {to.sums, to.states, to.splits, S::kQueries, S::kDv};
  }
  for (int i = threadIdx.x; i < to.mine * kWide; i += kThreads) {
    State of;
    const float4 sum = parts.merged(i / kWide, i % kWide * 4, of);
    const float total = to.empty_is_zero && of.total == 0.0f ? 1.0f : of.total;
    const float x[4] = {sum.x / total * to.scale, sum.y / total * to.scale,
                        sum.z / total * to.scale, sum.w / total * to.scale};
    kw::store(to.y + i * 4, kw::from_float<typename S::T>(x));
    if (to.lse && i % kWide == 0)
      to.lse[i / kWide] = (of.top + log2f(of.total)) * 0.6931471805599453f;
  }
}

// A block's whole work.
template <class S, class ROWS>
__device__ __forceinline__ void decode(char *shared, const typename S::T *q, long long next,
                                       const ROWS &rows, int keys, float factor,
                                       const Results<typename S::T> &results) {
  const Ring<S, ROWS> ring(shared + threadIdx.x / 32 * (S::kStages * S::kSlot), rows, keys);
  const int steps = (keys + S::kKeys - 1) / S::kKeys;
  const int share = (steps + results.splits - 1) / results.splits;
  const int begin = results.split * share, end = min(begin + share, steps);
  start(ring, begin, end);
  Queries<S> queries;  // on their way together with the first keys
  queries.load(q, next, results.mine);
  Sums<S> sums;
  attend(sums, queries, ring, begin, end, factor * 1.4426950408889634f);
  finish(sums, shared, results);
}

}  // namespace split

// A decoding step's attention: blocks, and within them warps, share the keys of a head of the
// cache.
//
// Queries are the 8 columns of mma.sync, keys and then the head's elements its 16 rows, so a group
// of 8 query heads wastes nothing. A lane copies the units that it multiplies itself (operands.cuh)
// to a ring of its own in shared memory, and waits for its own copies only: between the first tile
// and the merge there is no barrier and no exchange but the weights', by movmatrix.
#pragma once
#include "kw/async.cuh"
#include "kw/last_block.cuh"
#include "warp.cuh"

namespace split {

// A lane's ring in shared memory.
template <class S, class ROWS> struct Ring {
  char *of_keys, *of_values;
  const ROWS &rows;
  int keys, row = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;

  __device__ __forceinline__ Ring(char *shared, const ROWS &rows, int keys)
      : of_keys(shared + threadIdx.x % 32 * 16),
        of_values(shared + S::kOfKeys + threadIdx.x % 32 * S::kValueBytes),
        rows(rows),
        keys(keys) {}

  // Of a tile of 16 keys: rows of keys lane / 4 and 8 more, where its scores will be.
  __device__ __forceinline__ char *key(int slot, int m, int half, int c) const {
    return of_keys + slot * S::kSlot + m * S::kTileBytes + (half * S::kKeyUnits + c) * 512;
  }
  // Rows of values 2 (lane % 4) and the next, and 8 more, where its weights will be.
  __device__ __forceinline__ char *value(int slot, int m, int i, int c) const {
    return of_values + slot * S::kSlot + m * S::kTileBytes +
           (i * S::kValueUnits + c) * 32 * S::kValueBytes;
  }
  // Keys from `first` on. Nothing of what follows the last key is read.
  __device__ __forceinline__ void copy(int slot, int first, const int (&places)[S::kTiles]) const {
#pragma unroll
    for (int m = 0; m < S::kTiles; m++, first += 16) {
      const char *tile = rows.keys(first, places[m]);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int i = row + 8 * half;
        const char *from = rows.key(tile, first, i) + 16 * quad;
#pragma unroll
        for (int c = 0; c < S::kKeyUnits; c++)
          copy_or_zero<16>(key(slot, m, half, c), from + 64 * c,
                           first + i < keys && (4 * c + quad) * S::kKeyElements < S::kD);
      }
      tile = rows.values(first, places[m]);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int i = 2 * quad + j % 2 + j / 2 * 8;
        const char *from = rows.value(tile, first, i) + S::kValueBytes * row;
#pragma unroll
        for (int c = 0; c < S::kValueUnits; c++)
          copy_or_zero<S::kValueBytes>(
              value(slot, m, j, c), from + 8 * S::kValueBytes * c,
              first + i < keys && (8 * c + row) * S::kValueElements < S::kDv);
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
__device__ __forceinline__ void score(float (&z)[S::kGroups][S::kTiles][4], int m,
                                      const Queries<S> &queries, const Ring<S, ROWS> &ring,
                                      int slot) {
#pragma unroll
  for (int c = 0; c < S::kKeyUnits; c++) {
    unsigned of[2][4 * S::kPairs];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint4 unit = *reinterpret_cast<const uint4 *>(ring.key(slot, m, half, c));
      const unsigned words[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
      for (int i = 0; i < 4; i++) S::Elements::expand(words[i], of[half] + i * S::kPairs);
    }
#pragma unroll
    for (int i = 0; i < 4 * S::kPairs; i += 2) {
      const unsigned rows[4] = {of[0][i], of[1][i], of[0][i + 1], of[1][i + 1]};
#pragma unroll
      for (int g = 0; g < S::kGroups; g++)
        matmul::multiply_add<typename S::Operand>(z[g][m], rows, queries.pairs[g][c][i],
                                                  queries.pairs[g][c][i + 1]);
    }
  }
}

// Scores of what follows the last of `left` keys become -inf.
template <class S> __device__ __forceinline__ void hide(float (&z)[S::kTiles][4], int left) {
#pragma unroll
  for (int m = 0; m < S::kTiles; m++)
#pragma unroll
    for (int r = 0; r < 4; r++)
      if (16 * m + threadIdx.x % 32 / 4 + r / 2 * 8 >= left) z[m][r] = -kw::kInfinity;
}

// Adds values of tile m by their weights.
template <class S, class ROWS>
__device__ __forceinline__ void add_values(Sums<S> &sums, int m,
                                           const unsigned (&weights)[S::kGroups][S::kTiles][2],
                                           const Ring<S, ROWS> &ring, int slot) {
#pragma unroll
  for (int c = 0; c < S::kValueUnits; c++) {
    unsigned words[4][S::kValueWords];
#pragma unroll
    for (int j = 0; j < 4; j++) memcpy(words[j], ring.value(slot, m, j, c), S::kValueBytes);
#pragma unroll
    for (int i = 0; i < S::kValueWords; i++) {
      unsigned low[S::kOfWord], high[S::kOfWord];
      across<typename S::Elements>(words[0][i], words[1][i], low);
      across<typename S::Elements>(words[2][i], words[3][i], high);
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

// Steps of KEYS from `begin` to `end`, of which a warp takes every kWarps-th.
template <class S, class ROWS>
__device__ __forceinline__ void attend(Sums<S> &sums, const Queries<S> &queries,
                                       const Ring<S, ROWS> &ring, int begin, int end,
                                       float factor) {
  constexpr int kAhead = S::kStages * S::kWarps;
  const int first = begin + threadIdx.x / 32;
  int of_stage[S::kStages][S::kTiles], places[S::kTiles];
#pragma unroll
  for (int i = 0; i < S::kStages; i++)
    ring.look_up(of_stage[i], (first + i * S::kWarps) * S::kKeys);
#pragma unroll
  for (int i = 0; i < S::kStages; i++) {
    const int step = first + i * S::kWarps;
    if (step < end) ring.copy(i, step * S::kKeys, of_stage[i]);
    kw::copy_async_commit();
  }
  ring.look_up(places, (first + kAhead) * S::kKeys);  // a step before it is needed
  int slot = 0;
  for (int step = first; step < end; step += S::kWarps) {
    kw::copy_async_wait_all_but<S::kStages - 1>();
    float z[S::kGroups][S::kTiles][4] = {};
#pragma unroll
    for (int m = 0; m < S::kTiles; m++) score(z, m, queries, ring, slot);
    unsigned weights[S::kGroups][S::kTiles][2];
    const int left = ring.keys - step * S::kKeys;
#pragma unroll
    for (int g = 0; g < S::kGroups; g++) {
      queries.to_base_2(z[g], g, factor);
      if (left < S::kKeys) hide<S>(z[g], left);
      sums.weigh(g, z[g], weights[g]);
    }
#pragma unroll
    for (int m = 0; m < S::kTiles; m++) add_values(sums, m, weights, ring, slot);

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
#pragma unroll
  for (int g = 0; g < S::kGroups; g++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int query = 8 * g + 2 * quad + i;
      const float total = over_rows<kw::Sum>(sums.total[g][i]);
      if (row == 0) states[query] = {sums.top[g][i], total};
#pragma unroll
      for (int j = 0; j < S::kSums; j++) {
        constexpr int kOfUnit = S::kValueWords * S::kPairs;
        const int dim = (j / kOfUnit * 8 + row) * S::kValueElements + j % kOfUnit * 2;
        float *to = y + query * S::kPitch + dim;
        *reinterpret_cast<float2 *>(to) = {sums.y[g][j][i], sums.y[g][j][2 + i]};
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
  Queries<S> queries;
  queries.load(q, next, results.mine);
  Sums<S> sums;
  const int begin = results.split * share;
  attend(sums, queries, ring, begin, min(begin + share, steps), factor * 1.4426950408889634f);
  finish(sums, shared, results);
}

}  // namespace split

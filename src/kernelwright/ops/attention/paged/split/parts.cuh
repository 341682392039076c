// Parts of `stream.cuh`, merged by a second launch. The last block of an item would read the parts
// of all its heads alone, one after the other: of one long sequence, whose heads are one item, as
// many parts as there are blocks. The second launch has a block for each query, whose warps share
// the parts.
#pragma once
#include "kw/launch.cuh"
#include "stream.cuh"

namespace split {

// As `Consumers`, but pieces of a shared item are left to `merge`.
template <class G> struct PartConsumers : Consumers<G> {
  using Base = Consumers<G>;
  using S = typename G::S;
  __device__ __forceinline__ explicit PartConsumers(const Shared<G> &shared) : Base{shared} {}

  __device__ __forceinline__ void finish(const Sums<S> &sums, const Target<typename S::T> &to,
                                         const Piece &piece) {
    const Shared<G> &shared = this->shared;
    this->meet();  // the piece before has been read
    this->put(sums);
    this->meet();
    const long long slot = 2 * static_cast<int>(blockIdx.x) + (piece.part == 0);
    for (int i = threadIdx.x; i < G::kQueries * Base::kWide; i += Base::kThreads) {
      const int query = i / Base::kWide, dim = i % Base::kWide * 4;  // of all heads
      const int head = query / S::kQueries, of_head = query % S::kQueries;
      if (of_head >= to.mine) continue;
      State of;
      const float4 sum = Base::merged(
          shared.sums, shared.states, G::kSumsPitch, G::kTeams, dim,
          [&](int team) { return team * G::kQueries + query; }, of);
      if (piece.whole()) {
        Base::store(to, static_cast<long long>(head) * to.next + of_head, dim, sum, of);
      } else {
        const long long at = slot * G::kQueries + query;
        *reinterpret_cast<float4 *>(to.sums + at * S::kDv + dim) = sum;
        if (dim == 0) to.states[at] = of;
      }
    }
  }
};

// As `stream`.
template <class G, class LENGTHS, class CALL>
__device__ __forceinline__ void stream_parts(char *memory, const LENGTHS &lengths, const CALL &call,
                                             int items, float factor) {
  using S = typename G::S;
  const Shared<G> shared(memory);
  shared.init();
  Schedule<LENGTHS, G::kTokens> schedule(lengths, items);
  if (threadIdx.x / 32 >= S::kWarps) {
    Position<S::kStages> at;
    while (!schedule.done()) {
      const Piece piece = schedule.next();
      produce<G>(shared, at, call.rows(piece), piece);
    }
    return;
  }
  PartConsumers<G> consumers(shared);
  while (!schedule.done()) {
    const Piece piece = schedule.next();
    if (schedule.done()) kw::let_next_launch_start();  // its blocks have room as these exit
    Queries<S> queries;
    queries.load(call.queries(piece), call.next_query(), call.mine(piece));
    Sums<S> sums;
    consumers.attend(sums, queries, piece, factor * 1.4426950408889634f);
    consumers.finish(sums, call.target(piece), piece);
  }
}

// The parts of an item, as `Schedule` with `blocks` blocks numbers them.
struct ItemParts {
  int from, count;  // the block of the first, and their number

  template <int TOKENS, class LENGTHS>
  static __device__ __forceinline__ ItemParts of(const LENGTHS &lengths, int sequence, int item,
                                                 int items, int blocks) {
    int all = 0, before = 0, mine = 0;
    for (int b = threadIdx.x % 32; b < lengths.count; b += 32) {
      const int steps = max(1, (lengths.tokens(b) + TOKENS - 1) / TOKENS);
      all += steps;
      if (b < sequence) before += steps;
      if (b == sequence) mine = steps;
    }
    all = kw::warp_reduce<kw::Sum, 32>(all) * items;
    before = kw::warp_reduce<kw::Sum, 32>(before) * items;
    mine = kw::warp_reduce<kw::Sum, 32>(mine);
    const int share = (all + blocks - 1) / blocks, first = before + item * mine;
    const int from = first / share;
    return {from, (first + mine - 1) / share - from + 1};
  }
};

// Merges the parts of a query, number `query` of a part's, in WARPS warps; `row` of the results.
template <class G, int WARPS>
__device__ __forceinline__ void merge(const Target<typename G::S::T> &to, const ItemParts &parts,
                                      int query, long long row) {
  constexpr int kDv = G::S::kDv;
  __shared__ float4 shared_sums[WARPS][kDv / 4];
  __shared__ float shared_totals[WARPS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto slot = [&](int part) {
    return (2 * static_cast<long long>(parts.from + part) + (part == 0)) * G::kQueries + query;
  };
  float top = -kw::kInfinity;
  for (int i = lane; i < parts.count; i += 32) top = fmaxf(top, to.states[slot(i)].top);
  top = kw::warp_reduce<kw::Max, 32>(top);
  for (int dim = 4 * lane; dim < kDv; dim += 128) {
    float4 y = {};
    float total = 0.0f;
#pragma unroll 8
    for (int i = warp; i < parts.count; i += WARPS) {
      const State part = to.states[slot(i)];
      const float4 x = *reinterpret_cast<const float4 *>(to.sums + slot(i) * kDv + dim);
      const float w = weight(part.top, top);
      total += w * part.total;
      y = {y.x + w * x.x, y.y + w * x.y, y.z + w * x.z, y.w + w * x.w};
    }
    shared_sums[warp][dim / 4] = y;
    if (dim == 0) shared_totals[warp] = total;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kDv / 4; i += 32 * WARPS) {
    float4 y = {};
    State of = {top, 0.0f};
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
      const float4 x = shared_sums[w][i];
      of.total += shared_totals[w];
      y = {y.x + x.x, y.y + x.y, y.z + x.z, y.w + x.w};
    }
    Consumers<G>::store(to, row, 4 * i, y, of);
  }
}

}  // namespace split

// The combined value of all tiles before a tile, where each tile is one block of a single launch.
// The blocks pass their totals through words in memory that contain a flag (flagged_value.cuh) and
// are zero before the launch. A block waits for earlier blocks, so it must not start before them:
// GPUs start blocks in the order of their indices, but CUDA does not guarantee it.
//
// decoupled(): a block looks back over its predecessors until it reaches one whose complete prefix
// is known (D. Merrill, M. Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back,
// 2016). Which predecessor that is depends on timing, and so does the order of floating-point
// additions.
// tree(): combines fixed groups in a fixed order (32 tiles, 1,024 tiles, and so on) and is
// therefore deterministic.
#pragma once
#include "kw/scan.cuh"

namespace kw {

using StateWord = unsigned long long;  // a flag in the upper half, 32 bits of a state in the lower
template <typename State> constexpr int kStateWords = sizeof(State) / 4;

template <typename State>
__device__ __forceinline__ void publish_state(volatile StateWord *at, State x, unsigned flag = 1) {
  unsigned words[kStateWords<State>];
  memcpy(words, &x, sizeof(State));
#pragma unroll
  for (int i = 0; i < kStateWords<State>; ++i) at[i] = StateWord(flag) << 32 | words[i];
}

// Reads a state if all of its words have been published, and returns its flag; otherwise returns 0.
template <typename State>
__device__ __forceinline__ unsigned peek_state(const volatile StateWord *at, State &x) {
  StateWord read[kStateWords<State>];
  unsigned words[kStateWords<State>];
#pragma unroll
  for (int i = 0; i < kStateWords<State>; ++i) read[i] = at[i];
  const unsigned flag = unsigned(read[0] >> 32);
  bool whole = true;
#pragma unroll
  for (int i = 0; i < kStateWords<State>; ++i) {
    whole &= unsigned(read[i] >> 32) == flag;
    words[i] = unsigned(read[i]);
  }
  if (!whole || flag == 0) return 0;
  memcpy(&x, words, sizeof(State));
  return flag;
}

// Called by one warp with the tile's total in every lane; every lane receives the combined value of
// the tiles before it. `words` holds one state per tile.
template <typename Op>
__device__ __forceinline__ typename Op::State decoupled(volatile StateWord *words, unsigned tile,
                                                        typename Op::State total) {
  using State = typename Op::State;
  constexpr int EACH = kStateWords<State>;
  constexpr unsigned kTotal = 1, kPrefix = 2;
  const int lane = threadIdx.x % 32;
  if (lane == 0) publish_state(words + (long long)tile * EACH, total, tile == 0 ? kPrefix : kTotal);
  State before = Op::identity();
  // lane 31 reads the preceding tile, so that the lanes are in the order of the tiles
  for (long long last = (long long)tile - 1; last >= 0; last -= 32) {
    const long long mine = last - 31 + lane;
    State x = Op::identity();
    unsigned flag = kPrefix;  // nothing precedes the first tile
    if (mine >= 0)
      while (!(flag = peek_state(words + mine * EACH, x))) {
      }
    const unsigned known = __ballot_sync(0xffffffffu, flag == kPrefix);
    const int from = known ? 31 - __clz(int(known)) : 0;
    const State sum = warp_scan<Op>(lane < from ? Op::identity() : x);
    before = Op::apply(shuffle(sum, 31), before);
    if (known) break;
  }
  if (lane == 0 && tile > 0)
    publish_state(words + (long long)tile * EACH, Op::apply(before, total), kPrefix);
  return before;
}

// Called by one warp with the tile's total in every lane; every lane receives the combined value of
// the tiles before it. `words` holds tiles + tiles / 32 + tiles / 1024 states: of single tiles, of
// complete groups of 32 and of complete groups of 1,024.
template <typename Op>
__device__ __forceinline__ typename Op::State tree(volatile StateWord *words, unsigned tile,
                                                   unsigned tiles, typename Op::State total) {
  using State = typename Op::State;
  constexpr int EACH = kStateWords<State>;
  const unsigned lane = threadIdx.x % 32, group = tile / 32, super = tile / 1024;
  volatile StateWord *groups = words + (long long)tiles * EACH;
  volatile StateWord *supers = groups + (long long)(tiles / 32) * EACH;
  if (lane == 0) publish_state(words + (long long)tile * EACH, total);
  State x = Op::identity(), g = Op::identity();
  bool has_tile = lane >= tile % 32, has_group = lane >= group % 32;  // or none is needed
  const auto of_tile = words + (long long)(group * 32 + lane) * EACH;
  const auto of_group = groups + (long long)(super * 32 + lane) * EACH;
  do {  // both reads are in flight at the same time
    if (!has_group) has_group = peek_state(of_group, g);
    if (!has_tile) has_tile = peek_state(of_tile, x);
  } while (!has_tile);
  const State in_group = shuffle(warp_scan<Op>(x), 31);
  // published before waiting: the total of a group does not depend on other groups
  if (lane == 0 && tile % 32 == 31)
    publish_state(groups + (long long)group * EACH, Op::apply(in_group, total));
  while (!has_group) has_group = peek_state(of_group, g);
  const State in_super = shuffle(warp_scan<Op>(g), 31);
  if (lane == 0 && tile % 1024 == 1023)
    publish_state(supers + (long long)super * EACH,
                  Op::apply(in_super, Op::apply(in_group, total)));
  State before = Op::identity();
  for (unsigned first = 0; first < super; first += 32) {
    State s = Op::identity();
    if (first + lane < super)
      while (!peek_state(supers + (long long)(first + lane) * EACH, s)) {
      }
    before = Op::apply(before, shuffle(warp_scan<Op>(s), 31));
  }
  return Op::apply(before, Op::apply(in_super, in_group));
}

}  // namespace kw

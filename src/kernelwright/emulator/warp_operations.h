// What a thread may wait for, one row each, and what the operations of a warp compute. The values
// of Wait, their names in messages, the functions that kernels call (include/emulator/warps.h) and
// their versions in loops over a block's threads (program/warp_sync.h) are made of these rows.
#pragma once
#include <cstdint>

// The value of Wait, its name in messages. From kSyncwarp on, threads wait for other lanes.
#define KW_WAITS(ROW)                           \
  ROW(kNothing, "nothing")                      \
  ROW(kBarrier, "__syncthreads")                \
  ROW(kBarrierCount, "__syncthreads_count")     \
  ROW(kBarrierAnd, "__syncthreads_and")         \
  ROW(kBarrierOr, "__syncthreads_or")           \
  ROW(kClusterBarrier, "the cluster's barrier") \
  ROW(kMbarrier, "mbarrier.try_wait")           \
  ROW(kSyncwarp, "__syncwarp")                  \
  ROW(kShuffle, "a shuffle")                    \
  ROW(kBallot, "__ballot_sync")                 \
  ROW(kAny, "__any_sync")                       \
  ROW(kAll, "__all_sync")                       \
  ROW(kUni, "__uni_sync")                       \
  ROW(kMatchAny, "__match_any_sync")            \
  ROW(kMatchAll, "__match_all_sync")            \
  ROW(kReduceAdd, "__reduce_add_sync")          \
  ROW(kReduceMin, "__reduce_min_sync")          \
  ROW(kReduceMinSigned, "__reduce_min_sync")    \
  ROW(kReduceMax, "__reduce_max_sync")          \
  ROW(kReduceMaxSigned, "__reduce_max_sync")    \
  ROW(kReduceAnd, "__reduce_and_sync")          \
  ROW(kReduceOr, "__reduce_or_sync")            \
  ROW(kReduceXor, "__reduce_xor_sync")          \
  ROW(kActivemask, "__activemask")              \
  ROW(kTogether, "a warp's instruction")        \
  ROW(kNamedBarrier, "bar.sync")                \
  ROW(kProducts, "wgmma.wait_group")

// Operations with one number and one result for each lane: the name of the function after its
// underscores, the types of the result and of the number, the value of Wait.
#define KW_WORD_OPERATIONS(ROW)                        \
  ROW(ballot_sync, unsigned, int, kBallot)             \
  ROW(any_sync, int, int, kAny)                        \
  ROW(all_sync, int, int, kAll)                        \
  ROW(uni_sync, int, int, kUni)                        \
  ROW(reduce_add_sync, unsigned, unsigned, kReduceAdd) \
  ROW(reduce_add_sync, int, int, kReduceAdd)           \
  ROW(reduce_min_sync, unsigned, unsigned, kReduceMin) \
  ROW(reduce_min_sync, int, int, kReduceMinSigned)     \
  ROW(reduce_max_sync, unsigned, unsigned, kReduceMax) \
  ROW(reduce_max_sync, int, int, kReduceMaxSigned)     \
  ROW(reduce_and_sync, unsigned, unsigned, kReduceAnd) \
  ROW(reduce_or_sync, unsigned, unsigned, kReduceOr)   \
  ROW(reduce_xor_sync, unsigned, unsigned, kReduceXor)

// Shuffles: the name of the function after its underscores, the type of what says which lane to
// read, the function below that computes it.
#define KW_SHUFFLES(ROW)                    \
  ROW(shfl_sync, int, lane_in_segment)      \
  ROW(shfl_up_sync, unsigned, lane_below)   \
  ROW(shfl_down_sync, unsigned, lane_above) \
  ROW(shfl_xor_sync, int, lane_across)

namespace kw::emulator {

// Warp operations are executed by lanes that wait in the same one with the same mask.
enum Wait : unsigned {
#define KW_ROW(what, name) what,
  KW_WAITS(KW_ROW)
#undef KW_ROW
};

// The lane that `lane` reads, within its segment of `width` lanes; past the segment's end, itself.
__attribute__((always_inline)) inline unsigned lane_in_segment(unsigned lane, int source,
                                                               unsigned width) {
  return ((lane & ~(width - 1)) | (unsigned(source) & (width - 1))) & 31;
}
__attribute__((always_inline)) inline unsigned lane_below(unsigned lane, unsigned delta,
                                                          unsigned width) {
  return (lane & (width - 1)) >= delta ? lane - delta : lane;
}
__attribute__((always_inline)) inline unsigned lane_above(unsigned lane, unsigned delta,
                                                          unsigned width) {
  return (lane & (width - 1)) + delta < width ? lane + delta : lane;
}
__attribute__((always_inline)) inline unsigned lane_across(unsigned lane, int other,
                                                           unsigned width) {
  const unsigned from = (lane ^ unsigned(other)) & 31;
  return from <= (lane | (width - 1)) ? from : lane;
}

// The results of an operation for the lanes that take part: in(lane) is what a lane provides, and
// out(lane, result) takes its result. Shuffles and instructions of a whole warp are not among them.
template <typename In, typename Out>
__attribute__((always_inline)) inline void warp_results(Wait what, unsigned lanes, In in, Out out) {
  const auto each = [lanes](auto visit) __attribute__((always_inline)) {
    for (unsigned left = lanes; left; left &= left - 1) visit(__builtin_ctz(left));
  };
  const auto all_get = [&](std::uint64_t value) { each([&](int i) { out(i, value); }); };
  const auto fold = [&](auto apply) {
    std::uint64_t total = in(__builtin_ctz(lanes));
    for (unsigned left = lanes & (lanes - 1); left; left &= left - 1)
      total = apply(total, in(__builtin_ctz(left)));
    all_get(total);
  };
  using Signed = std::int32_t;
  unsigned votes = 0;
  switch (what) {
    case kBallot:
    case kAny:
    case kAll:
    case kUni:
      each([&](int i) { votes |= in(i) ? 1u << i : 0; });
      all_get(what == kBallot ? votes
              : what == kAny  ? votes != 0
              : what == kAll  ? votes == lanes
                              : votes == 0 || votes == lanes);
      break;
    case kMatchAny: {
      std::uint64_t values[32];
      each([&](int i) { values[i] = in(i); });
      each([&](int i) {
        unsigned same = 0;
        each([&](int j) { same |= values[i] == values[j] ? 1u << j : 0; });
        out(i, same);
      });
      break;
    }
    case kMatchAll: {
      bool same = true;
      each([&](int i) { same &= in(i) == in(__builtin_ctz(lanes)); });
      all_get(same ? lanes : 0);
      break;
    }
    case kReduceAdd:
      fold([](auto x, auto y) { return std::uint32_t(x + y); });
      break;
    case kReduceMin:
      fold([](auto x, auto y) { return x < y ? x : y; });
      break;
    case kReduceMax:
      fold([](auto x, auto y) { return x > y ? x : y; });
      break;
    case kReduceMinSigned:
      fold([](auto x, auto y) { return Signed(x) < Signed(y) ? x : y; });
      break;
    case kReduceMaxSigned:
      fold([](auto x, auto y) { return Signed(x) > Signed(y) ? x : y; });
      break;
    case kReduceAnd:
      fold([](auto x, auto y) { return x & y; });
      break;
    case kReduceOr:
      fold([](auto x, auto y) { return x | y; });
      break;
    case kReduceXor:
      fold([](auto x, auto y) { return x ^ y; });
      break;
    case kActivemask:
      all_get(lanes);
      break;
    default:
      break;
  }
}

}  // namespace kw::emulator

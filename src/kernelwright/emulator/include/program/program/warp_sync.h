// Warp-wide operations in the loops over a block's threads, in three steps: each lane stores its
// operands (operands_NAME, for CUDA's function NAME), the operation is executed for the lanes that
// take part, and each lane loads its result (result).
#pragma once

namespace kw::loops {

// Lanes in the mask of an operation do not take part. With a stack for each thread, the operation
// would wait for them forever.
[[noreturn]] __attribute__((noinline)) inline void missing(unsigned lanes, unsigned mask) {
  kw_fail("an operation of a warp names the lanes 0x%08x, of which 0x%08x do not come", mask,
          lanes);
}
[[noreturn]] __attribute__((noinline)) inline void unnamed(unsigned lane, unsigned mask) {
  kw_fail("lane %u is not in its own mask 0x%08x", lane, mask);
}

// Calls act(set) for each set of lanes in `present` whose masks name each other. `alive`: lanes
// that have not ended. `last`: lanes not in `present` execute no further operation, so they count
// as ended.
template <typename B, typename Act>
KW_BUILT_IN void each_group(const B *lanes, unsigned present, unsigned alive, bool last, Act act) {
  for (unsigned left = present; left;) {
    const unsigned first = __builtin_ctz(left), mask = lanes[first].mask;
    if (!(mask >> first & 1)) unnamed(first, mask);
    unsigned same = 0;
    for (unsigned rest = left; rest; rest &= rest - 1)
      if (lanes[__builtin_ctz(rest)].mask == mask) same |= rest & -rest;
    same &= mask;
    const unsigned lost = mask & (last ? present : alive) & ~same;
    if (lost) missing(lost, mask);
    act(same);
    left &= ~same;
  }
}

template <typename T> struct Shuffle {
  T value;
  unsigned mask, from;
  T result() const { return value; }
  static void execute(Shuffle *lanes, unsigned present, unsigned alive, bool last) {
    T in[32];
    bool all = present == 0xffffffffu;
    for (unsigned i = 0; i < 32 && all; ++i) all = lanes[i].mask == 0xffffffffu;
    if (all) {
      for (unsigned i = 0; i < 32; ++i) in[i] = lanes[i].value;
      for (unsigned i = 0; i < 32; ++i) lanes[i].value = in[lanes[i].from];
      return;
    }
    for (unsigned left = present; left; left &= left - 1)
      in[__builtin_ctz(left)] = lanes[__builtin_ctz(left)].value;
    each_group(lanes, present, alive, last, [&](unsigned same) {
      for (unsigned left = same; left; left &= left - 1) {
        Shuffle &lane = lanes[__builtin_ctz(left)];
        if (same >> lane.from & 1)
          lane.value = in[lane.from];
        else  // undefined on a GPU; here NaN, or -1
          __builtin_memset(static_cast<void *>(&lane.value), 0xff, sizeof(T));
      }
    });
  }
};
#define KW_ROW(name, Operand, lane_of)                                                      \
  template <typename T>                                                                     \
  KW_BUILT_IN Shuffle<T> operands_##name(size_t t, unsigned mask, T value, Operand operand, \
                                         int width = 32) {                                  \
    return {value, mask, kw::emulator::lane_of(t % 32, operand, width)};                    \
  }
KW_SHUFFLES(KW_ROW)
#undef KW_ROW

// An operation with one operand and one result of a word for each lane.
template <kw::emulator::Wait WHAT, typename T> struct WordOperation {
  std::uint64_t value;
  unsigned mask;
  T result() const { return static_cast<T>(value); }
  static void execute(WordOperation *lanes, unsigned present, unsigned alive, bool last) {
    each_group(lanes, present, alive, last, [&](unsigned same) {
      kw::emulator::warp_results(
          WHAT, same, [&](int i) { return lanes[i].value; },
          [&](int i, std::uint64_t result) { lanes[i].value = result; });
    });
  }
};
#define KW_ROW(name, T, Operand, what)                                                    \
  KW_BUILT_IN WordOperation<kw::emulator::what, T> operands_##name(size_t, unsigned mask, \
                                                                   Operand value) {       \
    return {unsigned(value), mask};                                                       \
  }
KW_WORD_OPERATIONS(KW_ROW)
#undef KW_ROW
template <typename T>
KW_BUILT_IN WordOperation<kw::emulator::kMatchAny, unsigned> operands_match_any_sync(size_t,
                                                                                     unsigned mask,
                                                                                     T value) {
  return {kw::emulator::bits_as<std::uint64_t>(value), mask};
}
KW_BUILT_IN WordOperation<kw::emulator::kSyncwarp, unsigned> operands_syncwarp(
    size_t, unsigned mask = 0xffffffffu) {
  return {0, mask};
}

// The lanes that execute this statement (__activemask).
struct Active {
  unsigned lanes;
  unsigned result() const { return lanes; }
  static void execute(Active *all, unsigned present, unsigned, bool) {
    for (unsigned left = present; left; left &= left - 1) all[__builtin_ctz(left)].lanes = present;
  }
};
KW_BUILT_IN Active operands_activemask(size_t) { return {}; }

// ---- without masks: of the lanes that have not ended

#define KW_LEGACY(name)                                                              \
  template <typename T, typename... A>                                               \
  KW_BUILT_IN auto operands_##name(size_t t, T value, A... rest) {                   \
    return operands_##name##_sync(t, 0xffffffffu, value, static_cast<int>(rest)...); \
  }
KW_LEGACY(shfl)
KW_LEGACY(shfl_up)
KW_LEGACY(shfl_down)
KW_LEGACY(shfl_xor)
KW_LEGACY(any)
KW_LEGACY(all)
KW_LEGACY(ballot)
#undef KW_LEGACY

// ---- tiles of a warp

template <unsigned SIZE> KW_BUILT_IN unsigned tile_mask(size_t t) {
  static_assert(SIZE <= 32, "a tile of more than a warp");
  return (SIZE == 32 ? 0xffffffffu : (1u << SIZE % 32) - 1) << (t % 32 & ~(SIZE - 1));
}
template <unsigned SIZE> KW_BUILT_IN unsigned tile_rank(size_t t) { return t % SIZE; }
// A reduction by butterfly: every lane gets the same.
template <unsigned SIZE, typename T, typename Op> struct Reduced {
  T value;
  unsigned mask;
  Op op;
  T result() const { return value; }
  static void execute(Reduced *lanes, unsigned present, unsigned alive, bool last) {
    each_group(lanes, present, alive, last, [&](unsigned same) {
      T in[32];
      for (unsigned step = SIZE / 2; step > 0; step /= 2) {
        for (unsigned left = same; left; left &= left - 1)
          in[__builtin_ctz(left)] = lanes[__builtin_ctz(left)].value;
        for (unsigned left = same; left; left &= left - 1) {
          const unsigned i = __builtin_ctz(left), from = i ^ step;
          T other;
          if (same >> from & 1)
            other = in[from];
          else
            __builtin_memset(static_cast<void *>(&other), 0xff, sizeof(T));
          lanes[i].value = lanes[i].op(in[i], other);
        }
      }
    });
  }
};
template <unsigned SIZE, typename T, typename Op>
KW_BUILT_IN Reduced<SIZE, T, Op> operands_reduce(size_t t, T value, Op op) {
  return {value, tile_mask<SIZE>(t), op};
}

// ---- conditions over all warps of a block

struct All {
  KW_BUILT_IN unsigned of(size_t, unsigned lanes) {
    return lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
  }
};
// The threads for which a condition holds.
template <typename F> struct Where {
  F holds;
  __forceinline__ unsigned of(size_t first, unsigned lanes) const {
    unsigned bits = 0;
    for (unsigned i = 0; i < lanes; ++i) bits |= unsigned(holds(first + i)) << i;
    return bits;
  }
};
template <typename F> Where(F) -> Where<F>;

template <typename B, typename Present, typename Alive>
inline void warp_sync(const PerThread<B> &room, unsigned count, Present present, Alive alive,
                      bool last) {
  for (size_t first = 0; first < count; first += 32) {
    const unsigned lanes = count - first < 32 ? count - first : 32;
    const unsigned living = alive.of(first, lanes), there = living & present.of(first, lanes);
    if (there) B::execute(&room[first], there, living, last);
  }
}
// Whether there are such threads.
template <typename F> KW_BUILT_IN bool any(unsigned count, F holds) {
  for (size_t t = 0; t < count; ++t)
    if (holds(t)) return true;
  return false;
}

}  // namespace kw::loops

#define KwThread kw_t
#define KwCount kw_count

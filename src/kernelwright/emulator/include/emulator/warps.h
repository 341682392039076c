// Operations of the lanes of a warp that a mask selects; all of them that have not ended must take
// part.
#pragma once

namespace kw::emulator {

KW_BUILT_IN std::uint64_t together(Wait what, unsigned mask, std::uint64_t value = 0,
                                   unsigned source = 0) {
  KW_OTHERS_RAN;
  const std::uint64_t got = kw_warp_wait(what, mask, value, source);
  KW_OTHERS_RAN;
  return got;
}

KW_BUILT_IN unsigned lane() {
#ifdef KW_WATCHED
  return kw_lane();
#else
  return kw_current->number % 32;
#endif
}

template <typename T> KW_BUILT_IN T shuffle(unsigned mask, T value, unsigned from) {
  if constexpr (sizeof(T) <= 8) {
    return lower_bits_as<T>(together(kShuffle, mask, bits_as<std::uint64_t>(value), from));
  } else {  // a struct, in parts
    std::uint64_t pieces[(sizeof(T) + 7) / 8] = {};
    __builtin_memcpy(pieces, &value, sizeof(T));
    for (std::uint64_t &p : pieces) p = together(kShuffle, mask, p, from);
    T result;
    __builtin_memcpy(&result, pieces, sizeof(T));
    return result;
  }
}

}  // namespace kw::emulator

KW_BUILT_IN void __syncwarp(unsigned mask = 0xffffffffu) {
  kw::emulator::together(kw::emulator::kSyncwarp, mask);
}
KW_BUILT_IN unsigned __activemask() {
  return static_cast<unsigned>(kw::emulator::together(kw::emulator::kActivemask, 0));
}

// __shfl_sync, __shfl_up_sync, ...
#define KW_ROW(name, Operand, lane_of)                                                 \
  template <typename T>                                                                \
  KW_BUILT_IN T __##name(unsigned mask, T value, Operand operand, int width = 32) {    \
    const unsigned from = kw::emulator::lane_of(kw::emulator::lane(), operand, width); \
    return kw::emulator::shuffle(mask, value, from);                                   \
  }
KW_SHUFFLES(KW_ROW)
#undef KW_ROW

template <typename T> KW_BUILT_IN unsigned __match_any_sync(unsigned mask, T value) {
  const auto bits = kw::emulator::bits_as<std::uint64_t>(value);
  return unsigned(kw::emulator::together(kw::emulator::kMatchAny, mask, bits));
}
template <typename T> KW_BUILT_IN unsigned __match_all_sync(unsigned mask, T value, int *same) {
  const auto bits = kw::emulator::bits_as<std::uint64_t>(value);
  const unsigned lanes = unsigned(kw::emulator::together(kw::emulator::kMatchAll, mask, bits));
  *same = lanes != 0;
  return lanes;
}

// __ballot_sync, __any_sync, __reduce_add_sync, ...
#define KW_ROW(name, T, Operand, what)                                           \
  KW_BUILT_IN T __##name(unsigned mask, Operand value) {                         \
    return T(kw::emulator::together(kw::emulator::what, mask, unsigned(value))); \
  }
KW_WORD_OPERATIONS(KW_ROW)
#undef KW_ROW

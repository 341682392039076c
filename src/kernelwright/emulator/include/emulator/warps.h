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
    T made;
    __builtin_memcpy(&made, pieces, sizeof(T));
    return made;
  }
}

}  // namespace kw::emulator

KW_BUILT_IN void __syncwarp(unsigned mask = 0xffffffffu) {
  kw::emulator::together(kw::emulator::kSyncwarp, mask);
}
KW_BUILT_IN unsigned __activemask() {
  return static_cast<unsigned>(kw::emulator::together(kw::emulator::kActivemask, 0));
}

// A lane reads within its segment of `width` lanes; past the segment's end it reads itself.
template <typename T>
KW_BUILT_IN T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned segment = kw::emulator::lane() & ~(width - 1u);
  return kw::emulator::shuffle(mask, value, segment | (source & (width - 1u)));
}
template <typename T>
KW_BUILT_IN T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = kw::emulator::lane(), inside = lane & (width - 1u);
  return kw::emulator::shuffle(mask, value, inside >= delta ? lane - delta : lane);
}
template <typename T>
KW_BUILT_IN T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = kw::emulator::lane(), inside = lane & (width - 1u);
  return kw::emulator::shuffle(mask, value, inside + delta < unsigned(width) ? lane + delta : lane);
}
template <typename T>
KW_BUILT_IN T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32) {
  const unsigned lane = kw::emulator::lane(), from = (lane ^ other) & 31;
  return kw::emulator::shuffle(mask, value, from <= (lane | (width - 1u)) ? from : lane);
}

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

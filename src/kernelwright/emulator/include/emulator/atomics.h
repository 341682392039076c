// Atomic read-modify-write operations. The scopes `_block` and `_system` make no difference here.
#pragma once

namespace kw::emulator {

template <int BYTES> struct Word;
template <> struct Word<1> {
  using type = std::uint8_t;
};
template <> struct Word<2> {
  using type = std::uint16_t;
};
template <> struct Word<4> {
  using type = std::uint32_t;
};
template <> struct Word<8> {
  using type = std::uint64_t;
};

// Replaces *p by change(*p) and returns the old value.
template <typename T, typename Change> KW_BUILT_IN T atomically(T *p, Change change) {
  using Bits = typename Word<sizeof(T)>::type;
#ifdef KW_WATCHED
  std::uint64_t old = kw_atomic_load(p, sizeof(T));
  for (;;) {
    const T before = bits_as<T>(static_cast<Bits>(old));
    const Bits after = bits_as<Bits>(static_cast<T>(change(before)));
    if (kw_compare_exchange(p, sizeof(T), &old, after)) return before;
  }
#else
  auto *word = reinterpret_cast<Bits *>(p);
  Bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    const T before = bits_as<T>(old);
    const Bits after = bits_as<Bits>(static_cast<T>(change(before)));
    if (__atomic_compare_exchange_n(word, &old, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return before;
  }
#endif
}

// The second argument converts to the type of the first, as in CUDA's overloads.
template <typename T> struct Same {
  using type = T;
};
template <typename T> using same = typename Same<T>::type;

}  // namespace kw::emulator

#define KW_ATOMIC(name, ...)                                                    \
  template <typename T> KW_BUILT_IN T name(T *p, kw::emulator::same<T> value) { \
    return kw::emulator::atomically(p, [value](T old) { return __VA_ARGS__; }); \
  }
#define KW_ATOMICS(name, ...)          \
  KW_ATOMIC(name, __VA_ARGS__)         \
  KW_ATOMIC(name##_block, __VA_ARGS__) \
  KW_ATOMIC(name##_system, __VA_ARGS__)
KW_ATOMICS(atomicAdd, old + value)
KW_ATOMICS(atomicSub, old - value)
KW_ATOMICS(atomicExch, (static_cast<void>(old), value))
KW_ATOMICS(atomicMin, value < old ? value : old)
KW_ATOMICS(atomicMax, value > old ? value : old)
KW_ATOMICS(atomicInc, old >= value ? 0 : old + 1)
KW_ATOMICS(atomicDec, old == 0 || old > value ? value : old - 1)
KW_ATOMICS(atomicAnd, old &value)
KW_ATOMICS(atomicOr, old | value)
KW_ATOMICS(atomicXor, old ^ value)
#undef KW_ATOMICS
#undef KW_ATOMIC

#define KW_CAS(name)                                                                         \
  template <typename T>                                                                      \
  KW_BUILT_IN T name(T *p, kw::emulator::same<T> compare, kw::emulator::same<T> value) {     \
    return kw::emulator::atomically(p, [=](T old) { return old == compare ? value : old; }); \
  }
KW_CAS(atomicCAS)
KW_CAS(atomicCAS_block)
KW_CAS(atomicCAS_system)
#undef KW_CAS

// What translated asm statements call (hopper/instructions.py).
#pragma once

// The bits of an operand: of a pointer, an integer, a float or a register.
template <typename T> KW_BUILT_IN unsigned long long kw_u(const T &x) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<unsigned long long>(x);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return static_cast<unsigned long long>(x);
  } else {
    static_assert(sizeof(T) <= 8);
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &x, sizeof x);
    return bits;
  }
}
template <typename T> KW_BUILT_IN void kw_set(T &to, unsigned long long bits) {
  static_assert(sizeof(T) <= 8);
  __builtin_memcpy(&to, &bits, sizeof to);
}
// Where the thread keeps a register of a product's result.
template <typename T> KW_BUILT_IN void *kw_register(T &x) {
  static_assert(sizeof x == 4, "a register of D has 32 bits");
  return &x;
}
KW_BUILT_IN unsigned kw_load_shared(unsigned address) {
  unsigned bits;
  __builtin_memcpy(&bits, kw_current->block->shared + address, sizeof bits);
  return bits;
}

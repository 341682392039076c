// What builds whose every access is seen call for std::atomic and virtual functions; loads and
// stores are in tsan_hooks.cpp.
#include <cstring>

#include "host.h"

namespace {
inline void told(const volatile void *p, unsigned bytes, const void *where) {
  using namespace kw::emulator;
  if (kw_current) kw_access(const_cast<const void *>(p), bytes, kRead | kWrite | kAtomic, where);
}
}  // namespace

#pragma GCC visibility push(default)
extern "C" {
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (kw_current) kw_fence(kw::emulator::kDeviceScope);
}
void __tsan_atomic_signal_fence(int) {}

// -fsanitize=bounds: what libubsan is told.
struct KwPlace {
  const char *file;
  unsigned line, column;
};
struct KwType {
  unsigned short kind, info;
  char name[1];
};
struct KwOutside {
  KwPlace place;
  const KwType *array, *index;
};
// The type's name is that of the array: 'float [32]'.
void __ubsan_handle_out_of_bounds(const KwOutside *what, unsigned long index) {
  const char *size = strchr(what->array->name, '[');
  const bool is_signed = what->index->info & 1;
  const unsigned bits = 1u << (what->index->info >> 1);
  if (is_signed && bits < 64)
    index = static_cast<unsigned long>(static_cast<long>(index << (64 - bits)) >> (64 - bits));
  kw_index_outside(index, size ? strtoull(size + 1, nullptr, 10) : 0, HERE);
}
void __ubsan_handle_out_of_bounds_abort(const KwOutside *what, unsigned long index) {
  __ubsan_handle_out_of_bounds(what, index);
}

#define KW_FETCH(T, bits, name)                                   \
  T __tsan_atomic##bits##_fetch_##name(volatile T *p, T v, int) { \
    told(p, sizeof(T), HERE);                                     \
    return __atomic_fetch_##name(p, v, __ATOMIC_SEQ_CST);         \
  }
#define KW_ATOMIC(T, bits)                                                                         \
  T __tsan_atomic##bits##_load(const volatile T *p, int) {                                         \
    told(p, sizeof(T), HERE);                                                                      \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile T *p, T v, int) {                                      \
    told(p, sizeof(T), HERE);                                                                      \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  T __tsan_atomic##bits##_exchange(volatile T *p, T v, int) {                                      \
    told(p, sizeof(T), HERE);                                                                      \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *expected, T v, int, int) {   \
    told(p, sizeof(T), HERE);                                                                      \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T *p, T *expected, T v, int, int) {     \
    told(p, sizeof(T), HERE);                                                                      \
    return __atomic_compare_exchange_n(p, expected, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }                                                                                                \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T *p, T expected, T v, int, int) {         \
    told(p, sizeof(T), HERE);                                                                      \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    return expected;                                                                               \
  }                                                                                                \
  KW_FETCH(T, bits, add)                                                                           \
  KW_FETCH(T, bits, sub) KW_FETCH(T, bits, and) KW_FETCH(T, bits, or) KW_FETCH(T, bits, xor)
KW_ATOMIC(unsigned char, 8)
KW_ATOMIC(unsigned short, 16)
KW_ATOMIC(unsigned, 32)
KW_ATOMIC(unsigned long, 64)
}
#pragma GCC visibility pop

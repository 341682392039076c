// What builds whose every access is seen call for std::atomic and virtual functions; loads and
// stores are in watch.cpp.
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

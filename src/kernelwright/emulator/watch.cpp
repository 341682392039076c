// What builds whose every access is seen call: g++ -fsanitize=thread puts these before each access
// to memory. They tell the launch's observer.
#include "worker.h"

#include <atomic>
#include <cstring>
#include <initializer_list>

using namespace kw::emulator;

namespace {

inline void tell(const void *address, unsigned bytes, unsigned kind, const void *where) {
  Thread *t = kw_current;
  if (!t) return;
  const Observer *o = t->block->launch->observer;
  if (!o || !o->access) return;
  // the thread's own variables, and its indices
  const auto *a = static_cast<const char *>(address), *stack = static_cast<const char *>(t->stack);
  if (a >= stack && a < stack + kStack) return;
  for (const Index *i : {&kw_threadIdx, &kw_blockIdx, &kw_blockDim, &kw_gridDim})
    if (address >= i && address < i + 1) return;
  // what the emulator's own headers look up
  const bool looked_up = address == &kw_current || (address >= t && address < t + 1) ||
                         (address >= t->block && address < t->block + 1);
  if (looked_up) return;
  observed(*t, where, [&] { o->access(*t, address, bytes, kind, where); });
}

template <typename Word> Word word(const void *p) {
  return __atomic_load_n(static_cast<const Word *>(p), __ATOMIC_RELAXED);
}

template <typename Word> bool exchange(void *p, std::uint64_t *expected, std::uint64_t desired) {
  Word old = static_cast<Word>(*expected);
  const bool done =
      __atomic_compare_exchange_n(static_cast<Word *>(p), &old, static_cast<Word>(desired), false,
                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  *expected = old;
  return done;
}

}  // namespace

#define HERE __builtin_extract_return_addr(__builtin_return_address(0))

extern "C" {
#define KW_ACCESS(bytes)                                                                     \
  void __tsan_read##bytes(void *p) { tell(p, bytes, kRead, HERE); }                          \
  void __tsan_write##bytes(void *p) { tell(p, bytes, kWrite, HERE); }                        \
  void __tsan_volatile_read##bytes(void *p) { tell(p, bytes, kRead | kVolatile, HERE); }     \
  void __tsan_volatile_write##bytes(void *p) { tell(p, bytes, kWrite | kVolatile, HERE); }   \
  void __tsan_unaligned_read##bytes(void *p) { tell(p, bytes, kRead | kUnaligned, HERE); }   \
  void __tsan_unaligned_write##bytes(void *p) { tell(p, bytes, kWrite | kUnaligned, HERE); } \
  void __tsan_unaligned_volatile_read##bytes(void *p) {                                      \
    tell(p, bytes, kRead | kVolatile | kUnaligned, HERE);                                    \
  }                                                                                          \
  void __tsan_unaligned_volatile_write##bytes(void *p) {                                     \
    tell(p, bytes, kWrite | kVolatile | kUnaligned, HERE);                                   \
  }
KW_ACCESS(1)
KW_ACCESS(2)
KW_ACCESS(4)
KW_ACCESS(8)
KW_ACCESS(16)
void __tsan_read_range(void *p, unsigned long n) { tell(p, unsigned(n), kRead | kUnaligned, HERE); }
void __tsan_write_range(void *p, unsigned long n) {
  tell(p, unsigned(n), kWrite | kUnaligned, HERE);
}
// -fsanitize-coverage=trace-pc puts this at the start of each basic block.
void __sanitizer_cov_trace_pc() {
  Thread *t = kw_current;
  if (!t) return;
  const Observer *o = t->block->launch->observer;
  const void *where = HERE;
  if (o && o->path) observed(*t, where, [&] { o->path(*t, where); });
}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
}

Index kw_index(unsigned which) {
  const Thread *t = kw_current;
  const Block &b = *t->block;
  return which == 0 ? t->index : which == 1 ? b.index : which == 2 ? b.size : b.grid;
}

void kw_access(const void *address, unsigned bytes, unsigned kind, const void *where) {
  tell(address, bytes, kind, where);
}

unsigned kw_lane() { return kw_current->lane(); }

std::uint64_t kw_atomic_load(const void *p, unsigned bytes) {
  tell(p, bytes, kRead | kWrite | kAtomic, HERE);
  return bytes == 2   ? word<std::uint16_t>(p)
         : bytes == 4 ? word<std::uint32_t>(p)
                      : word<std::uint64_t>(p);
}

bool kw_compare_exchange(void *p, unsigned bytes, std::uint64_t *expected, std::uint64_t desired) {
  return bytes == 2   ? exchange<std::uint16_t>(p, expected, desired)
         : bytes == 4 ? exchange<std::uint32_t>(p, expected, desired)
                      : exchange<std::uint64_t>(p, expected, desired);
}

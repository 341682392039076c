// What builds whose every access is seen call: g++ -fsanitize=thread puts these before each access
// to memory. They tell the launch's observer.
#include "worker.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <vector>

using namespace kw::emulator;

namespace {

// ---- variables without a value

// What such a variable holds: as a number it is none, and each word has another one.
std::uint32_t pattern(const void *p) {
  return 0xffc00001u | (reinterpret_cast<std::uintptr_t>(p) / 4 * 0x9e3779b1u >> 11 & 0x3ffffe);
}

struct Unset {
  const char *at, *name;
  unsigned long long bytes;
};
constexpr unsigned kKept = 1 << 14;
// Of a read that found the pattern: a shuffle may be all that it is for, and its result unused.
struct Doubt {
  Thread *thread;
  std::uint32_t value;
  const char *name;
  unsigned bytes;
  const void *where;
};
struct Local {
  std::vector<Unset> unset = std::vector<Unset>(kKept);  // by address / 4
  std::vector<Doubt> doubts;
};
Local &local() {
  static thread_local Local mine;
  return mine;
}
std::mutex names_lock;
std::vector<const char *> names;

const char *name_at(const char *p) {
  const auto word = reinterpret_cast<std::uintptr_t>(p) / 4;
  for (unsigned back = 0; back < 4096; ++back) {
    const Unset &u = local().unset[(word - back) % kKept];
    if (u.name && p >= u.at && p < u.at + u.bytes) return u.name;
  }
  return nullptr;
}

void look_at_local(Thread &t, const char *p, unsigned bytes, unsigned kind, const void *where) {
  if (kind & kWrite || !kw_holds_pattern(p, bytes)) return;
  if (const char *name = name_at(p)) local().doubts.push_back({&t, pattern(p), name, bytes, where});
}

}  // namespace

// The reads in doubt were reads of a value, but for those that a shuffle passes on.
void kw::emulator::settle_doubts(std::uint64_t shuffled) {
  auto &doubts = local().doubts;
  if (doubts.empty()) return;
  const auto all = std::move(doubts);
  doubts.clear();
  for (const Doubt &d : all) {
    if (static_cast<std::uint32_t>(shuffled) == d.value || shuffled >> 32 == d.value) continue;
    const Observer *o = d.thread->block->launch->observer;
    o->unset(*d.thread, d.name, d.bytes, d.where);
    std::lock_guard<std::mutex> hold(names_lock);
    if (std::find(names.begin(), names.end(), d.name) == names.end()) names.push_back(d.name);
  }
}

namespace {

// ---- accesses

inline void tell(const void *address, unsigned bytes, unsigned kind, const void *where) {
  Thread *t = kw_current;
  if (!t) return;
  const Observer *o = t->block->launch->observer;
  if (!o || !o->access) return;
  // the thread's own variables, and its indices
  const auto *a = static_cast<const char *>(address), *stack = static_cast<const char *>(t->stack);
  if (a >= stack && a < stack + kStack) {
    if (o->own && t->async) o->own(*t, a, bytes, kind, where);
    if (o->unset) look_at_local(*t, a, bytes, kind, where);
    return;
  }
  settle_doubts();
  for (const Index *i : {&kw_threadIdx, &kw_blockIdx, &kw_blockDim, &kw_gridDim})
    if (address >= i && address < i + 1) return;
  // what the emulator's own headers look up
  const bool looked_up = address == &kw_current || (address >= t && address < t + 1) ||
                         (address >= t->block && address < t->block + 1);
  if (looked_up) return;
  observed(*t, where, [&] { o->access(*t, address, bytes, kind, where); });
}

// ---- atomic operations

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

#undef HERE
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

void kw_unset(void *p, unsigned long long bytes, const char *name) {
  Thread *t = kw_current;
  if (!t) return;
  const Observer *o = t->block->launch->observer;
  if (!o || !o->unset) return;
  kw_fill_pattern(p, bytes);
  local().unset[reinterpret_cast<std::uintptr_t>(p) / 4 % kKept] = {static_cast<char *>(p), name,
                                                                    bytes};
}
void kw_fill_pattern(void *p, unsigned long long bytes) {
  auto *at = static_cast<char *>(p);
  if (reinterpret_cast<std::uintptr_t>(p) % 4) return;
  for (unsigned long long i = 0; i + 4 <= bytes; i += 4) {
    const std::uint32_t word = pattern(at + i);
    std::memcpy(at + i, &word, 4);
  }
}
bool kw_holds_pattern(const void *p, unsigned bytes) {
  const auto *at = static_cast<const char *>(p);
  if (bytes < 4 || reinterpret_cast<std::uintptr_t>(p) % 4) return false;
  for (unsigned i = 0; i + 4 <= bytes; i += 4) {
    std::uint32_t word;
    std::memcpy(&word, at + i, 4);
    if (word != pattern(at + i)) return false;
  }
  return true;
}
const char *const *kw_unset_names(unsigned long long *count) {
  *count = names.size();
  return names.data();
}
void kw_index_outside(std::uint64_t index, unsigned long long size, const void *where) {
  Thread *t = kw_current;
  if (!t) return;
  const Observer *o = t->block->launch->observer;
  if (o && o->index) observed(*t, where, [&] { o->index(*t, index, size, where); });
}

void kw_reads(const void *p, unsigned bytes, bool at_once) {
  tell(p, bytes, kRead | (at_once ? 0u : unsigned(kUnaligned)), HERE);
}
void kw_writes(const void *p, unsigned bytes) { tell(p, bytes, kWrite | kVolatile, HERE); }

unsigned kw_lane() { return kw_current->lane(); }

std::uint64_t kw_atomic_load(const void *p, unsigned bytes) {
  tell(p, bytes, kRead | kWrite | kAtomic, HERE);
  return bytes == 1   ? word<std::uint8_t>(p)
         : bytes == 2 ? word<std::uint16_t>(p)
         : bytes == 4 ? word<std::uint32_t>(p)
                      : word<std::uint64_t>(p);
}

bool kw_compare_exchange(void *p, unsigned bytes, std::uint64_t *expected, std::uint64_t desired) {
  return bytes == 1   ? exchange<std::uint8_t>(p, expected, desired)
         : bytes == 2 ? exchange<std::uint16_t>(p, expected, desired)
         : bytes == 4 ? exchange<std::uint32_t>(p, expected, desired)
                      : exchange<std::uint64_t>(p, expected, desired);
}

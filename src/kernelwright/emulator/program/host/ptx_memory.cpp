// PTX memory instructions: loads, stores, atomics, asynchronous copies, fences.
#include <atomic>
#include <cstring>

#include "ptx.h"

namespace kw::ptx {
namespace {

constexpr unsigned kRankAt = 24;  // in an address of a cluster's shared memory, as in cluster.h

bool in_shared(const Instruction &i) {
  return i.has("shared") || i.has("shared::cta") || i.has("shared::cluster");
}

// The host pointer of an address.
char *place(const Frame &f, u64 address, bool shared) {
  if (!shared) return reinterpret_cast<char *>(address);
  const u32 at = kw_shared_of_low(static_cast<u32>(address)), rank = at >> kRankAt;
  const u32 offset = at & ((1u << kRankAt) - 1);
  const emulator::Block &b = *kw_current->block;
  if (offset >= b.shared_bytes + b.dynamic_bytes)
    kw_fail_at(f.where, "PTX names byte %u of shared memory, which has %llu bytes", offset,
               b.shared_bytes + b.dynamic_bytes);
  void *own = b.shared + offset;
  return static_cast<char *>(rank ? kw_map_shared(own, rank - 1) : own);
}

void aligned(const Frame &f, const char *p, unsigned bytes) {
  if (reinterpret_cast<u64>(p) % bytes)
    kw_fail_at(f.where, "PTX touches %u bytes at the misaligned address %p", bytes,
               static_cast<const void *>(p));
}

unsigned told(const Instruction &i) {
  const bool strong = i.has("volatile") || i.has("relaxed") || i.has("acquire") || i.has("release");
  return strong ? emulator::kVolatile : 0;
}

unsigned width(const Arg &a) { return a.kind == Arg::kVector ? a.parts.size() : 1; }

void ld(const Instruction &i, Frame &f) {
  const Type t = i.type();
  const unsigned each = t.bits / 8, bytes = each * width(i.args[0]);
  char *p = place(f, f.get(i.args[1]), in_shared(i));
  kw_access(p, bytes, emulator::kRead | told(i), f.where);
  aligned(f, p, bytes);
  const auto load = [&](const Arg &to, const char *from) {
    u64 value = 0;
    std::memcpy(&value, from, each);
    f.set(to, t.kind == 's' ? static_cast<u64>(extended(value, t.bits)) : value);
  };
  if (i.has("acquire")) kw_fence(emulator::kDeviceScope);
  if (i.args[0].kind != Arg::kVector) return load(i.args[0], p);
  for (std::size_t k = 0; k < i.args[0].parts.size(); ++k) load(i.args[0].parts[k], p + k * each);
  if (i.has("acquire")) kw_fence(emulator::kDeviceScope);
}
void st(const Instruction &i, Frame &f) {
  const Type t = i.type();
  const unsigned each = t.bits / 8, bytes = each * width(i.args[1]);
  char *p = place(f, f.get(i.args[0]), in_shared(i));
  if (i.has("release")) kw_fence(emulator::kDeviceScope);
  kw_access(p, bytes, emulator::kWrite | told(i), f.where);
  aligned(f, p, bytes);
  const auto store = [&](const Arg &from, char *to) {
    const u64 value = f.get(from);
    std::memcpy(to, &value, each);
  };
  if (i.args[1].kind != Arg::kVector) return store(i.args[1], p);
  for (std::size_t k = 0; k < i.args[1].parts.size(); ++k) store(i.args[1].parts[k], p + k * each);
}

u64 changed(const Instruction &i, Type t, u64 old, u64 b, u64 c) {
  const auto is = [&](const char *op) { return i.has(op); };
  if (is("exch")) return b;
  if (is("cas")) return old == masked(b, t.bits) ? c : old;
  if (t.floating()) {
    const auto one = [&](u64 x, u64 y) {
      const double u = number(t, x), v = number(t, y);
      return bits_of_number(t, is("min") ? std::min(u, v) : is("max") ? std::max(u, v) : u + v);
    };
    if (!t.pair) return one(old, b);
    return masked(one(masked(old, 16), masked(b, 16)), 16) | one(old >> 16, b >> 16) << 16;
  }
  const std::int64_t so = extended(old, t.bits), sb = extended(b, t.bits);
  const u64 ub = masked(b, t.bits);
  if (is("add")) return old + b;
  if (is("and")) return old & b;
  if (is("or")) return old | b;
  if (is("xor")) return old ^ b;
  if (is("inc")) return old >= ub ? 0 : old + 1;
  if (is("dec")) return old == 0 || old > ub ? ub : old - 1;
  if (is("min")) return t.kind == 's' ? (so < sb ? old : b) : std::min(old, ub);
  return t.kind == 's' ? (so > sb ? old : b) : std::max(old, ub);
}
void atom(const Instruction &i, Frame &f) {
  const bool returns = i.words[0] == "atom";
  const std::size_t first = returns ? 1 : 0;
  const Type t = i.type();
  char *p = place(f, f.get(i.args[first]), in_shared(i));
  const u64 c = i.args.size() > first + 2 ? f.get(i.args[first + 2]) : 0;
  const unsigned each = t.bytes();
  const Arg &value = i.args[first + 1];
  if (i.has("release") || i.has("acq_rel")) kw_fence(emulator::kDeviceScope);
  for (std::size_t k = 0; k < width(value); ++k, p += each) {
    aligned(f, p, each);
    const u64 b = f.get(value.kind == Arg::kVector ? value.parts[k] : value);
    kw_access(p, each, emulator::kRead | emulator::kWrite | emulator::kAtomic, f.where);
    u64 old = 0;
    const auto word = [&](auto zero) {
      using W = decltype(zero);
      W *at = reinterpret_cast<W *>(p), seen = __atomic_load_n(at, __ATOMIC_RELAXED);
      while (!__atomic_compare_exchange_n(at, &seen, static_cast<W>(changed(i, t, seen, b, c)),
                                          true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      }
      old = seen;
    };
    if (each == 2) word(std::uint16_t());
    if (each == 4) word(u32());
    if (each == 8) word(u64());
    if (returns) f.set(value.kind == Arg::kVector ? i.args[0].parts[k] : i.args[0], old);
  }
  if (i.has("acquire") || i.has("acq_rel")) kw_fence(emulator::kDeviceScope);
}

void nothing(const Instruction &, Frame &) {}
void fence(const Instruction &i, Frame &) {
  kw_fence(i.has("cta")   ? emulator::kBlockScope
           : i.has("sys") ? emulator::kSystemScope
                          : emulator::kDeviceScope);
}

void cvta(const Instruction &i, Frame &f) {
  const u64 a = f.get(i.args[1]);
  if (!in_shared(i)) return f.set(i.args[0], a);
  const auto *shared = kw_current->block->shared;
  f.set(i.args[0], i.has("to") ? kw_shared_address(reinterpret_cast<const void *>(a))
                               : reinterpret_cast<u64>(shared) + kw_shared_of_low(u32(a)));
}
void isspacep(const Instruction &i, Frame &f) {
  const auto *p = reinterpret_cast<const unsigned char *>(f.get(i.args[1]));
  const emulator::Block &b = *kw_current->block;
  const bool shared = p >= b.shared && p < b.shared + b.shared_bytes + b.dynamic_bytes;
  const auto *own = static_cast<const unsigned char *>(kw_current->stack);
  const bool local = p >= own && p < own + emulator::kStack;
  f.set(i.args[0], in_shared(i) ? shared : !shared && !local);
}
void mapa(const Instruction &i, Frame &f) {
  f.set(i.args[0], kw_mapa(static_cast<u32>(f.get(i.args[1])), static_cast<u32>(f.get(i.args[2]))));
}

// ---- asynchronous copies

void cp_async(const Instruction &i, Frame &f) {
  const u32 bytes = static_cast<u32>(f.get(i.args[2]));
  u32 read = bytes;
  if (i.args.size() > 3 && !i.has("L2::cache_hint")) read = static_cast<u32>(f.get(i.args[3]));
  if (i.args.size() > 4) read = static_cast<u32>(f.get(i.args[3]));
  if ((bytes != 4 && bytes != 8 && bytes != 16) || (i.has("cg") && bytes != 16) || read > bytes)
    kw_fail_at(f.where, "PTX `%s` copies %u bytes, of which it reads %u", i.text.c_str(), bytes,
               read);
  char *to = place(f, f.get(i.args[0]), true);
  const char *from = place(f, f.get(i.args[1]), false);
  aligned(f, to, bytes);
  if (read) aligned(f, from, bytes);
  kw_async_copy(to, from, bytes, read, f.where);
}
void commit(const Instruction &, Frame &) { kw_async_commit(); }
void wait_group(const Instruction &i, Frame &f) {
  kw_async_wait(static_cast<u32>(f.get(i.args[0])));
}
void wait_all(const Instruction &, Frame &) {
  kw_async_commit();
  kw_async_wait(0);
}

}  // namespace

Act memory(Instruction &i) {
  const std::string &op = i.words[0];
  const std::size_t n = i.args.size();
  if (op == "ld" || op == "ldu") return n >= 2 && !i.types.empty() ? ld : nullptr;
  if (op == "st") return n >= 2 && !i.types.empty() && !i.has("async") ? st : nullptr;
  if (op == "atom") return n >= 3 && !i.types.empty() ? atom : nullptr;
  if (op == "red") return n >= 2 && !i.types.empty() && !i.has("async") ? atom : nullptr;
  if (op == "prefetch" || op == "prefetchu" || op == "discard" || op == "applypriority" ||
      op == "createpolicy")
    return nothing;
  if (op == "membar" || op == "fence") return fence;
  if (op == "cvta") return n == 2 ? cvta : nullptr;
  if (op == "isspacep") return n == 2 ? isspacep : nullptr;
  if (op == "mapa") return n == 3 ? mapa : nullptr;
  if (i.begins("cp.async.commit_group")) return commit;
  if (i.begins("cp.async.wait_group")) return n == 1 ? wait_group : nullptr;
  if (i.begins("cp.async.wait_all")) return wait_all;
  if (i.begins("cp.async.ca") || i.begins("cp.async.cg")) return n >= 3 ? cp_async : nullptr;
  return nullptr;
}

}  // namespace kw::ptx

// PTX of Hopper: warp group products, bulk copies, tensor maps, mbarriers, and the fences of these.
#include <set>

#include "ptx.h"

namespace kw::ptx {
namespace {

using emulator::Format;
using emulator::Product;
using emulator::Reduction;

// Whether the words of a name, but for the first `known`, are among those.
bool only(const Instruction &i, std::size_t known, const std::set<std::string> &words) {
  for (std::size_t k = known; k < i.words.size(); ++k)
    if (!words.count(i.words[k])) return false;
  return true;
}
unsigned small(const Frame &f, const Arg &a) { return static_cast<unsigned>(f.get(a)); }
const void *pointer(const Frame &f, const Arg &a) {
  return reinterpret_cast<const void *>(f.get(a));
}
// An address in shared memory: generic addresses are those of the thread's own block.
unsigned shared(const Frame &f, const Arg &a, bool generic = false) {
  return generic ? kw_shared_address(pointer(f, a)) : small(f, a);
}

// ---- products

bool format_of(const std::string &word, Format *format) {
  static const std::pair<const char *, Format> known[] = {
      {"f16", emulator::kHalf},  {"bf16", emulator::kBfloat}, {"tf32", emulator::kTf32},
      {"e4m3", emulator::kE4m3}, {"e5m2", emulator::kE5m2},   {"s8", emulator::kInt8},
      {"u8", emulator::kUint8},  {"f32", emulator::kFloat},   {"s32", emulator::kInt32},
  };
  for (const auto &[name, f] : known)
    if (word == name) return *format = f, true;
  return false;
}

// The shape and formats of wgmma.mma_async.sync.aligned.m64nNkK[.satfinite].d.a.b; false if there
// is no such product.
bool shape(const Instruction &i, Product *p) {
  std::size_t at = 5;
  if (i.words.size() < 8 || i.words[1] != "mma_async" || i.words[2] != "sync" ||
      i.words[3] != "aligned" || sscanf(i.words[4].c_str(), "m64n%uk%u", &p->n, &p->k) != 2)
    return false;
  p->saturates = i.words[at] == "satfinite";
  at += p->saturates;
  if (i.words.size() != at + 3 || !format_of(i.words[at], &p->d) ||
      !format_of(i.words[at + 1], &p->a) || !format_of(i.words[at + 2], &p->b))
    return false;
  const auto bits = [](Format f) {
    return f == emulator::kTf32 ? 32u : f == emulator::kHalf || f == emulator::kBfloat ? 16u : 8u;
  };
  const bool whole = p->d == emulator::kInt32;
  const auto of_integers = [](Format f) { return f == emulator::kInt8 || f == emulator::kUint8; };
  return bits(p->a) == bits(p->b) && p->k * bits(p->a) == 256 && p->n % 8 == 0 && p->n >= 8 &&
         p->n <= 256 && whole == of_integers(p->a) && whole == of_integers(p->b) &&
         (!p->saturates || whole) && p->a != emulator::kFloat && p->b != emulator::kFloat &&
         p->a != emulator::kInt32;
}
unsigned registers_of(const Product &p) { return p.d == emulator::kHalf ? p.n / 4 : p.n / 2; }

void product(const Instruction &i, Frame &f) {
  Product p = {};
  shape(i, &p);
  const Arg &d = i.args[0], &a = i.args[1];
  p.from_registers = a.kind == Arg::kVector;
  if (p.from_registers)
    for (unsigned k = 0; k < 4; ++k) p.registers[k] = small(f, a.parts[k]);
  else
    p.at_a = f.get(a);
  p.at_b = f.get(i.args[2]);
  p.adds = f.get(i.args[3]) & 1;
  std::size_t at = 4;
  if (p.d != emulator::kInt32) {
    p.negates_a = static_cast<int>(f.get(i.args[at++])) < 0;
    p.negates_b = static_cast<int>(f.get(i.args[at++])) < 0;
  }
  p.a_k_major = p.b_k_major = true;
  if (p.k == 16) {
    if (!p.from_registers) p.a_k_major = !f.get(i.args[at++]);
    p.b_k_major = !f.get(i.args[at]);
  }
  // the product changes the variables later: they are not written when the statement ends
  void *registers[128];
  for (unsigned k = 0; k < registers_of(p); ++k) {
    Operand &o = f.operands[d.parts[k].slot];
    if (d.parts[k].slot < kOperands && o.to) f.held[d.parts[k].slot] = o.to, o.to = nullptr;
    registers[k] = d.parts[k].slot < kOperands ? f.held[d.parts[k].slot] : nullptr;
    if (!registers[k])
      kw_fail_at(f.where, "PTX `%.60s...` has a register of D that is no operand of its statement",
                 i.text.c_str());
  }
  kw_product(&p, registers);
}
bool right_product(const Instruction &i) {
  Product p = {};
  if (!shape(i, &p) || i.args.size() < 4 || i.args[0].kind != Arg::kVector ||
      i.args[0].parts.size() != registers_of(p))
    return false;
  const bool held = i.args[1].kind == Arg::kVector;
  if (held && i.args[1].parts.size() != 4) return false;
  const std::size_t majors = p.k == 16 ? (held ? 1 : 2) : 0;
  return i.args.size() == 4 + (p.d == emulator::kInt32 ? 0 : 2) + majors;
}
void products_fence(const Instruction &, Frame &) { kw_product_fence(); }
void products_commit(const Instruction &, Frame &) { kw_product_commit(); }
void products_wait(const Instruction &i, Frame &f) { kw_product_wait(small(f, i.args[0])); }

Act products(const Instruction &i) {
  if (i.name == "wgmma.fence.sync.aligned") return products_fence;
  if (i.name == "wgmma.commit_group.sync.aligned") return products_commit;
  if (i.name == "wgmma.wait_group.sync.aligned")
    return i.args.size() == 1 ? products_wait : nullptr;
  return right_product(i) ? product : nullptr;
}

// ---- bulk copies

Reduction reduction(const Instruction &i) {
  static const std::pair<const char *, Reduction> known[] = {
      {"add", emulator::kAdd}, {"min", emulator::kMin}, {"max", emulator::kMax},
      {"inc", emulator::kInc}, {"dec", emulator::kDec}, {"and", emulator::kAnd},
      {"or", emulator::kOr},   {"xor", emulator::kXor},
  };
  for (const auto &[name, op] : known)
    if (i.has(name)) return op;
  return emulator::kReplace;
}
unsigned dimensions(const Instruction &i) {
  for (const std::string &w : i.words)
    if (w.size() == 2 && w[1] == 'd') return w[0] - '0';
  return 0;
}
struct Corner {
  int at[5] = {};
  Corner(const Frame &f, const Arg &box) {
    for (std::size_t k = 0; k < box.box.size() && k < 5; ++k)
      at[k] = static_cast<int>(f.get(box.box[k]));
  }
};
// The operand without its brackets.
Arg base(const Arg &box) {
  Arg a = box;
  a.box.clear();
  return a;
}
void box_load(const Instruction &i, Frame &f) {
  const Arg &box = i.args[1];
  const bool many = i.has("multicast::cluster");
  kw_box_load(small(f, i.args[0]), pointer(f, base(box)), Corner(f, box).at, dimensions(i),
              small(f, i.args[2]), many ? small(f, i.args[3]) & 0xffff : 0);
}
void box_store(const Instruction &i, Frame &f) {
  const Arg &box = i.args[0];
  kw_box_store(pointer(f, base(box)), small(f, i.args[1]), Corner(f, box).at, dimensions(i),
               reduction(i));
}
void bulk_load(const Instruction &i, Frame &f) {
  kw_bulk_load(small(f, i.args[0]), pointer(f, i.args[1]), small(f, i.args[2]),
               small(f, i.args[3]));
}
void bulk_send(const Instruction &i, Frame &f) {
  kw_bulk_send(small(f, i.args[0]), small(f, i.args[1]), small(f, i.args[2]), small(f, i.args[3]));
}
void bulk_store(const Instruction &i, Frame &f) {
  const Type t = i.type();
  const unsigned type = t.kind == 'f'   ? (t.bits == 16   ? 6
                                           : t.bits == 32 ? 7
                                                          : 8)
                        : t.kind == 'h' ? 9
                        : t.bits == 64  ? (t.kind == 's' ? 5 : 4)
                        : t.kind == 's' ? 3
                                        : 2;
  kw_bulk_store(const_cast<void *>(pointer(f, i.args[0])), small(f, i.args[1]), small(f, i.args[2]),
                reduction(i), type);
}
void bulk_commit(const Instruction &, Frame &) { kw_bulk_commit(); }
void bulk_wait(const Instruction &i, Frame &f) { kw_bulk_wait(small(f, i.args[0]), i.has("read")); }
void nothing(const Instruction &, Frame &) {}

const std::set<std::string> kBulk = {"async",
                                     "bulk",
                                     "tensor",
                                     "1d",
                                     "2d",
                                     "3d",
                                     "4d",
                                     "5d",
                                     "shared::cluster",
                                     "shared::cta",
                                     "global",
                                     "tile",
                                     "mbarrier::complete_tx::bytes",
                                     "bulk_group",
                                     "multicast::cluster",
                                     "L2::cache_hint",
                                     "prefetch",
                                     "L2"};
const std::set<std::string> kCombining = {"reduce", "add", "min",   "max",  "inc", "dec", "and",
                                          "or",     "xor", "noftz", "u32",  "s32", "u64", "s64",
                                          "b32",    "b64", "f16",   "bf16", "f32", "f64"};

Act copies(const Instruction &i) {
  if (i.begins("cp.async.bulk.commit_group")) return bulk_commit;
  if (i.begins("cp.async.bulk.wait_group")) return i.args.size() == 1 ? bulk_wait : nullptr;
  const bool combines = i.has("reduce");
  std::set<std::string> words = kBulk;
  if (combines) words.insert(kCombining.begin(), kCombining.end());
  if (!only(i, 1, words)) return nullptr;
  if (i.has("prefetch")) return combines ? nullptr : nothing;
  const bool out = i.has("bulk_group"), counted = i.has("mbarrier::complete_tx::bytes");
  const std::size_t hint = i.has("L2::cache_hint"), n = i.args.size();
  if (out == counted) return nullptr;
  const unsigned dims = dimensions(i);
  if (i.has("tensor")) {
    const std::size_t where = out ? 0 : 1;
    if (!dims || n <= where || i.args[where].box.size() != dims) return nullptr;
    if (out) return n == 2 + hint ? box_store : nullptr;
    return !combines && n == 3 + hint + i.has("multicast::cluster") ? box_load : nullptr;
  }
  if (out) return n == 3 + hint ? bulk_store : nullptr;
  if (combines || n != 4 + hint) return nullptr;
  return i.has("global") ? bulk_load : bulk_send;
}

// ---- mbarriers

void mbarrier_init(const Instruction &i, Frame &f) {
  kw_mbarrier_init(shared(f, i.args[0], i.plan[0]), small(f, i.args[1]));
}
void mbarrier_end(const Instruction &i, Frame &f) {
  kw_mbarrier_end(shared(f, i.args[0], i.plan[0]));
}
void mbarrier_bytes(const Instruction &i, Frame &f) {
  const long long bytes = small(f, i.args[1]);
  kw_mbarrier_bytes(shared(f, i.args[0], i.plan[0]), i.has("complete_tx") ? -bytes : bytes);
}
void mbarrier_arrive(const Instruction &i, Frame &f) {
  const std::size_t first = i.args[0].address ? 0 : 1;
  const unsigned at = shared(f, i.args[first], i.plan[0]);
  const unsigned more = i.args.size() > first + 1 ? small(f, i.args[first + 1]) : 1;
  kw_fence(emulator::kBlockScope);
  const u64 state = i.has("expect_tx")     ? kw_mbarrier_expect(at, more)
                    : i.has("arrive_drop") ? kw_mbarrier_drop(at)
                                           : kw_mbarrier_arrive(at, more);
  if (first) f.set(i.args[0], state);
}
void mbarrier_wait(const Instruction &i, Frame &f) {
  const unsigned at = shared(f, i.args[1], i.plan[0]);
  const unsigned parity = f.get(i.args[2]) & 1;
  bool done = true;
  if (i.has("try_wait"))
    kw_mbarrier_wait(at, parity);
  else
    done = kw_mbarrier_test(at, parity);
  if (done) kw_fence(emulator::kBlockScope);
  f.set(i.args[0], done);
}
void pending_count(const Instruction &i, Frame &f) { f.set(i.args[0], f.get(i.args[1]) >> 32); }
// Earlier copies of the thread arrive when they end; here they end immediately.
void copies_arrive(const Instruction &i, Frame &f) {
  kw_async_commit();
  kw_async_wait(0);
  if (i.has("noinc")) kw_mbarrier_arrive(shared(f, i.args[0], i.plan[0]), 1);
}

Act mbarriers(Instruction &i) {
  const std::string op = i.words.size() > 1 ? i.words[1] : "";
  i.plan[0] = !i.has("shared") && !i.has("shared::cta") && !i.has("shared::cluster");
  const std::size_t n = i.args.size();
  if (op == "init") return n == 2 ? mbarrier_init : nullptr;
  if (op == "inval") return n == 1 ? mbarrier_end : nullptr;
  if (op == "expect_tx" || op == "complete_tx") return n == 2 ? mbarrier_bytes : nullptr;
  if (op == "arrive" || op == "arrive_drop") {
    if (op == "arrive_drop" && i.has("expect_tx")) return nullptr;
    return i.has("noComplete") || !n ? nullptr : mbarrier_arrive;
  }
  if (op == "test_wait" || op == "try_wait") return n >= 3 ? mbarrier_wait : nullptr;
  return op == "pending_count" && n == 2 ? pending_count : nullptr;
}

// ---- fences, and stores to another block

void proxy_fence(const Instruction &, Frame &) { kw_fence_proxy_async(); }
void init_fence(const Instruction &, Frame &) { kw_mbarrier_init_fence(); }
void send(const Instruction &i, Frame &f) {
  const Arg &value = i.args[1];
  const unsigned each = i.type().bits / 8, to = small(f, i.args[0]);
  const std::size_t n = value.kind == Arg::kVector ? value.parts.size() : 1;
  for (std::size_t k = 0; k < n; ++k)
    kw_send(to + k * each, f.get(n > 1 ? value.parts[k] : value), each, small(f, i.args[2]));
}

}  // namespace

Act hopper(Instruction &i) {
  const std::string &op = i.words[0];
  if (op == "wgmma") return products(i);
  if (i.begins("cp.async.bulk") || i.begins("cp.reduce.async.bulk")) return copies(i);
  if (i.begins("cp.async.mbarrier.arrive")) {
    i.plan[0] = !i.has("shared") && !i.has("shared::cta");
    return i.args.size() == 1 ? copies_arrive : nullptr;
  }
  if (op == "mbarrier") return mbarriers(i);
  if (i.begins("fence.proxy.async")) return proxy_fence;
  if (i.begins("fence.mbarrier_init")) return init_fence;
  if (i.begins("fence.proxy.tensormap") || i.begins("prefetch.tensormap")) return nothing;
  const bool bytes = i.has("mbarrier::complete_tx::bytes");
  if (i.begins("st.async") && bytes && i.args.size() == 3 && !i.types.empty()) return send;
  return nullptr;
}

}  // namespace kw::ptx

// PTX that a warp or a block executes together: shuffles, votes, barriers, matrices.
#include <cstring>
#include <set>

#include "matrices.h"
#include "ptx.h"

#include "emulator/barriers.h"

namespace kw::ptx {
namespace {

using emulator::Wait;

u64 warp_wait(Wait what, u32 mask, u64 value, u32 source = 0) {
  return kw_warp_wait(what, mask, value, source);
}
u32 mask_of(const Instruction &i, const Frame &f) {
  return i.has("sync") && i.args.back().kind != Arg::kNone ? static_cast<u32>(f.get(i.args.back()))
                                                           : 0xffffffffu;
}

// shfl.sync.mode.b32 d|p, a, b, c, mask
void shfl(const Instruction &i, Frame &f) {
  const bool two = i.text.find('|') != std::string::npos;
  const std::size_t first = two ? 2 : 1;
  const u32 lane = kw_current->number % 32;
  const u32 b = f.get(i.args[first + 1]) & 31, c = static_cast<u32>(f.get(i.args[first + 2]));
  const u32 segment = c >> 8 & 31, clamp = c & 31;
  const u32 least = lane & segment, most = least | (clamp & ~segment);
  int from = 0;
  bool inside = false;
  if (i.has("up")) from = int(lane) - int(b), inside = from >= int(most);
  if (i.has("down")) from = lane + b, inside = from <= int(most);
  if (i.has("bfly")) from = lane ^ b, inside = from <= int(most);
  if (i.has("idx")) from = least | (b & ~segment), inside = from <= int(most);
  if (!inside) from = lane;
  f.set(i.args[0],
        masked(warp_wait(emulator::kShuffle, mask_of(i, f), f.get(i.args[first]), from), 32));
  if (two) f.set(i.args[1], inside);
}
void vote(const Instruction &i, Frame &f) {
  const Wait what = i.has("ballot") ? emulator::kBallot
                    : i.has("any")  ? emulator::kAny
                    : i.has("all")  ? emulator::kAll
                                    : emulator::kUni;
  f.set(i.args[0], warp_wait(what, mask_of(i, f), f.get(i.args[1]) & 1));
}
void match(const Instruction &i, Frame &f) {
  const bool two = i.text.find('|') != std::string::npos;
  const u64 a = f.get(i.args[two ? 2 : 1]);
  const u64 lanes =
      warp_wait(i.has("any") ? emulator::kMatchAny : emulator::kMatchAll, mask_of(i, f), a);
  f.set(i.args[0], lanes);
  if (two) f.set(i.args[1], lanes != 0);
}
void redux(const Instruction &i, Frame &f) {
  const bool s = i.type().kind == 's';
  const Wait what = i.has("add")   ? emulator::kReduceAdd
                    : i.has("min") ? (s ? emulator::kReduceMinSigned : emulator::kReduceMin)
                    : i.has("max") ? (s ? emulator::kReduceMaxSigned : emulator::kReduceMax)
                    : i.has("and") ? emulator::kReduceAnd
                    : i.has("or")  ? emulator::kReduceOr
                                   : emulator::kReduceXor;
  f.set(i.args[0], masked(warp_wait(what, mask_of(i, f), masked(f.get(i.args[1]), 32)), 32));
}
void elect(const Instruction &i, Frame &f) {
  const u32 mask = mask_of(i, f);
  const u32 leader = __builtin_ctz(static_cast<u32>(warp_wait(emulator::kBallot, mask, 1)));
  f.set(i.args[0], leader);
  f.set(i.args[1], kw_current->number % 32 == leader);
}
void activemask(const Instruction &i, Frame &f) {
  f.set(i.args[0], warp_wait(emulator::kActivemask, 0, 0));
}
void barrier(const Instruction &i, Frame &f) {
  if (i.words[0] == "bar" && i.has("warp")) {
    warp_wait(emulator::kSyncwarp, static_cast<u32>(f.get(i.args[0])), 0);
    return;
  }
  if (i.has("cluster")) {
    if (i.has("arrive")) kw_cluster_arrive(i.has("relaxed"));
    if (i.has("wait")) kw_cluster_wait();
    return;
  }
  if (i.has("red")) {
    const bool counted = i.args.size() > 3;
    if (i.args.size() < 3 || f.get(i.args[1]) != 0 ||
        (counted && f.get(i.args[2]) != kw_current->block->count))
      kw_fail_at(f.where, "PTX `%s` is not emulated: a reduction of a part of the block",
                 i.text.c_str());
    const Wait what = i.has("popc")  ? emulator::kBarrierCount
                      : i.has("and") ? emulator::kBarrierAnd
                                     : emulator::kBarrierOr;
    f.set(i.args[0], kw_block_wait(what, f.get(i.args.back()), f.where));
    return;
  }
  const emulator::Block &b = *kw_current->block;
  const u64 count = i.args.size() > 1 ? f.get(i.args[1]) : b.count;
  const u64 which = i.args.empty() ? 0 : f.get(i.args[0]);
  if (which == 0 && count == b.count && !i.has("arrive"))
    kw_block_wait(emulator::kBarrier, 0, f.where);
  else
    kw_named_barrier(static_cast<u32>(which), static_cast<u32>(count), !i.has("arrive"));
}

// ---- matrices: each lane provides its registers

struct Part {
  const Instruction *instruction;
  const void *where;
  char *row;       // the row that the lane selects
  u32 a[8], b[8];  // registers
  u64 wide[4];     // of f64
  u32 c[8];
};

}  // namespace

// The lanes of a warp, one after the other: each is executed until the instruction for which lanes
// meet and stores its part; then each is executed again, with the result.
struct Gathering {
  Part parts[32];
  void (*act)(void *const *) = nullptr;
  bool again = false;
};

namespace {

void exchange(Frame &f, Part &p, void (*act)(void *const *)) {
  if (!f.gathering) {
    kw_together(&p, act, f.where);
    return;
  }
  Part &mine = f.gathering->parts[kw_current->number % 32];
  if (f.gathering->again)
    p = mine;
  else
    mine = p, f.gathering->act = act;
}

char *row_of(const Frame &f, u64 address) {
  const u32 at = static_cast<u32>(address);
  const emulator::Block &b = *kw_current->block;
  if (at % 16)
    kw_fail_at(f.where,
               "PTX reads or writes a row of a matrix at byte %u of shared memory, no "
               "multiple of 16: the address is misaligned",
               at);
  if (at + 16 > b.shared_bytes + b.dynamic_bytes)
    kw_fail_at(f.where, "PTX names byte %u of shared memory, which has %llu bytes", at,
               b.shared_bytes + b.dynamic_bytes);
  return reinterpret_cast<char *>(b.shared) + at;
}
unsigned matrices(const Instruction &i) { return i.has("x4") ? 4 : i.has("x2") ? 2 : 1; }

void act_ldmatrix(void *const *data) {
  auto *const *p = reinterpret_cast<Part *const *>(data);
  const Instruction &i = *p[0]->instruction;
  const bool trans = i.has("trans");
  for (unsigned m = 0; m < matrices(i); ++m)
    for (unsigned lane = 0; lane < 32; ++lane) {
      unsigned short two[2];
      for (unsigned e = 0; e < 2; ++e) {
        const unsigned r = trans ? lane % 4 * 2 + e : lane / 4,
                       c = trans ? lane / 4 : lane % 4 * 2 + e;
        std::memcpy(&two[e], p[m * 8 + r]->row + c * 2, 2);
      }
      p[lane]->c[m] = two[0] | static_cast<u32>(two[1]) << 16;
    }
}
void act_stmatrix(void *const *data) {
  auto *const *p = reinterpret_cast<Part *const *>(data);
  const Instruction &i = *p[0]->instruction;
  const bool trans = i.has("trans");
  for (unsigned m = 0; m < matrices(i); ++m)
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned e = 0; e < 2; ++e) {
        const unsigned r = trans ? lane % 4 * 2 + e : lane / 4,
                       c = trans ? lane / 4 : lane % 4 * 2 + e;
        const auto half = static_cast<unsigned short>(p[lane]->a[m] >> 16 * e);
        std::memcpy(p[m * 8 + r]->row + c * 2, &half, 2);
      }
}
void all_lanes(const Frame &f, const Instruction &i) {
  const emulator::Thread &t = *kw_current;
  if (t.number / 32 * 32 + 32 > t.block->count)
    kw_fail_at(f.where, "PTX `%s` in a warp of fewer than 32 threads", i.text.c_str());
}
void ldmatrix(const Instruction &i, Frame &f) {
  all_lanes(f, i);
  Part p = {&i, f.where, nullptr, {}, {}, {}, {}};
  const unsigned lane = kw_current->number % 32;
  if (lane < matrices(i) * 8) {
    p.row = row_of(f, f.get(i.args[1]));
    kw_access(p.row, 16, emulator::kRead, f.where);
  }
  exchange(f, p, act_ldmatrix);
  const Arg &to = i.args[0];
  for (unsigned m = 0; m < matrices(i); ++m)
    f.set(to.kind == Arg::kVector ? to.parts[m] : to, p.c[m]);
}
void stmatrix(const Instruction &i, Frame &f) {
  all_lanes(f, i);
  Part p = {&i, f.where, nullptr, {}, {}, {}, {}};
  const unsigned lane = kw_current->number % 32;
  if (lane < matrices(i) * 8) {
    p.row = row_of(f, f.get(i.args[0]));
    kw_access(p.row, 16, emulator::kWrite, f.where);
  }
  const Arg &from = i.args[1];
  for (unsigned m = 0; m < matrices(i); ++m)
    p.a[m] = static_cast<u32>(f.get(from.kind == Arg::kVector ? from.parts[m] : from));
  exchange(f, p, act_stmatrix);
}
void act_movmatrix(void *const *data) {
  auto *const *p = reinterpret_cast<Part *const *>(data);
  for (unsigned lane = 0; lane < 32; ++lane) {
    u32 packed = 0;
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned r = lane % 4 * 2 + e, c = lane / 4;
      packed |= (p[r * 4 + c / 2]->a[0] >> 16 * (c % 2) & 0xffff) << 16 * e;
    }
    p[lane]->c[0] = packed;
  }
}
void movmatrix(const Instruction &i, Frame &f) {
  Part p = {&i, f.where, nullptr, {static_cast<u32>(f.get(i.args[1]))}, {}, {}, {}};
  exchange(f, p, act_movmatrix);
  f.set(i.args[0], p.c[0]);
}

// plan: k, bits of an element, registers of A, B and C
enum { kK, kBits, kA, kB, kC, kM };
void act_mma(void *const *data) {
  auto *const *p = reinterpret_cast<Part *const *>(data);
  const Instruction &i = *p[0]->instruction;
  const int k = i.plan[kK], bits = i.plan[kBits], each = 32 / bits;
  const Type d = i.types[0], a = i.types[1], b = i.types[2], c = i.types[3];
  static thread_local Tile tile;
  tile.k = k;
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < i.plan[kA]; ++r)
      for (int e = 0; e < each; ++e)
        tile.a[g + 8 * (r & 1)][(r >> 1) * 4 * each + t * each + e] =
            masked(p[lane]->a[r] >> e * bits, bits);
    for (int r = 0; r < i.plan[kB]; ++r)
      for (int e = 0; e < each; ++e)
        tile.b[r * 4 * each + t * each + e][g] = masked(p[lane]->b[r] >> e * bits, bits);
    for (int e = 0; e < 4; ++e)
      tile.c[g + 8 * (e / 2)][t * 2 + e % 2] =
          c.bits == 16 ? p[lane]->c[e / 2] >> 16 * (e % 2) & 0xffff : p[lane]->c[e];
  }
  multiply(tile, a, b, c, d, i.has("satfinite"));
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    u32 registers[4] = {};
    for (int e = 0; e < 4; ++e) {
      const u32 x = static_cast<u32>(tile.c[g + 8 * (e / 2)][t * 2 + e % 2]);
      if (d.bits == 16)
        registers[e / 2] |= x << 16 * (e % 2);
      else
        registers[e] = x;
    }
    std::memcpy(p[lane]->c, registers, sizeof registers);
  }
}
void mma(const Instruction &i, Frame &f) {
  all_lanes(f, i);
  Part p = {&i, f.where, nullptr, {}, {}, {}, {}};
  const auto take = [&](const Arg &from, u32 *to) {
    if (from.kind != Arg::kVector) {
      to[0] = static_cast<u32>(f.get(from));
      return;
    }
    for (std::size_t r = 0; r < from.parts.size(); ++r)
      to[r] = static_cast<u32>(f.get(from.parts[r]));
  };
  take(i.args[1], p.a), take(i.args[2], p.b), take(i.args[3], p.c);
  exchange(f, p, act_mma);
  for (std::size_t r = 0; r < i.args[0].parts.size(); ++r) f.set(i.args[0].parts[r], p.c[r]);
}
// m8n8k4 of f64: a register of A, one of B, two of C
void act_mma_f64(void *const *data) {
  auto *const *p = reinterpret_cast<Part *const *>(data);
  double product[32][2];
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 2; ++e) {
      double sum = from_bits<double>(p[lane]->wide[2 + e]);
      for (int k = 0; k < 4; ++k)
        sum = std::fma(from_bits<double>(p[lane / 4 * 4 + k]->wide[0]),
                       from_bits<double>(p[(lane % 4 * 2 + e) * 4 + k]->wide[1]), sum);
      product[lane][e] = sum;
    }
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 2; ++e) p[lane]->wide[2 + e] = to_bits(product[lane][e]);
}
void mma_f64(const Instruction &i, Frame &f) {
  Part p = {&i, f.where, nullptr, {}, {}, {}, {}};
  const auto first = [&](const Arg &a) { return f.get(a.kind == Arg::kVector ? a.parts[0] : a); };
  p.wide[0] = first(i.args[1]), p.wide[1] = first(i.args[2]);
  for (int e = 0; e < 2; ++e) p.wide[2 + e] = f.get(i.args[3].parts[e]);
  exchange(f, p, act_mma_f64);
  for (int e = 0; e < 2; ++e) f.set(i.args[0].parts[e], p.wide[2 + e]);
}

Act plan_mma(Instruction &i) {
  static const std::set<std::string> words = {"mma", "sync", "aligned", "row", "col", "satfinite"};
  for (const std::string &w : i.words) {
    Type t;
    if (!words.count(w) && !type_of(w, &t) && w != "m8n8k4" && w.rfind("m16n8k", 0)) return nullptr;
  }
  if (i.args.size() != 4 || i.types.size() != 4 || !i.has("row") || !i.has("col")) return nullptr;
  if (i.has("m8n8k4") && i.types[0].bits == 64 && i.args[0].parts.size() == 2) return mma_f64;
  if (i.words.size() > 1 && i.words[1] == "sp") return nullptr;
  int k = 0;
  for (const std::string &w : i.words)
    if (w.rfind("m16n8k", 0) == 0) k = std::stoi(w.substr(6));
  const int bits = i.types[1].bits;
  if (!k || (bits != 8 && bits != 16 && bits != 32)) return nullptr;
  i.plan[kK] = k, i.plan[kBits] = bits;
  i.plan[kA] = 16 * k * bits / 32 / 32, i.plan[kB] = 8 * k * bits / 32 / 32;
  i.plan[kC] = i.types[3].bits == 16 ? 2 : 4;
  const auto count = [](const Arg &a) {
    return a.kind == Arg::kVector ? static_cast<int>(a.parts.size()) : 1;
  };
  const bool fits = k <= 64 && count(i.args[1]) == i.plan[kA] && count(i.args[2]) == i.plan[kB] &&
                    count(i.args[3]) == i.plan[kC];
  return fits ? mma : nullptr;
}

}  // namespace

void execute_together(const Code *code, const Lane *lanes, u32 present, unsigned count) {
  const void *where = HERE;
  if (present != 0xffffffffu)
    kw_fail_at(where, "PTX `%s` is executed by the lanes 0x%08x, not by all of their warp",
               code->instructions.empty() ? "" : code->instructions.back().text.c_str(), present);
  emulator::Thread *const before = kw_current;
  Gathering gathering;
  for (unsigned lane = 0; lane < 32; ++lane) {
    std::vector<Operand> own(lanes[lane].operands, lanes[lane].operands + count);
    kw_current = lanes[lane].thread;
    execute(code, own.data(), count, where, &gathering);
  }
  void *data[32];
  for (unsigned lane = 0; lane < 32; ++lane) data[lane] = &gathering.parts[lane];
  gathering.act(data);
  gathering.again = true;
  for (unsigned lane = 0; lane < 32; ++lane) {
    kw_current = lanes[lane].thread;
    execute(code, lanes[lane].operands, count, where, &gathering);
  }
  kw_current = before;
}

Act together(Instruction &i) {
  const std::string &op = i.words[0];
  const std::size_t n = i.args.size();
  if (op == "shfl") return n >= 5 ? shfl : nullptr;
  if (op == "vote") return n >= 2 ? vote : nullptr;
  if (op == "match") return n >= 3 ? match : nullptr;
  if (op == "redux") return n >= 3 && !i.types.empty() && !i.type().floating() ? redux : nullptr;
  if (op == "elect") return n >= 3 ? elect : nullptr;
  if (op == "activemask") return n == 1 ? activemask : nullptr;
  if (op == "bar" || op == "barrier") return barrier;
  const bool b16 = i.has("b16") && i.has("m8n8");
  if (op == "ldmatrix" || op == "stmatrix") {
    const Arg &data = i.args[op == "stmatrix" ? 1 : 0];
    if (n == 2 && (data.kind == Arg::kVector ? data.parts.size() : 1) != matrices(i))
      return nullptr;
  }
  if (op == "ldmatrix") return n == 2 && b16 ? ldmatrix : nullptr;
  if (op == "stmatrix") return n == 2 && b16 ? stmatrix : nullptr;
  if (op == "movmatrix") return n == 2 && b16 ? movmatrix : nullptr;
  if (op == "mma") return plan_mma(i);
  return nullptr;
}

}  // namespace kw::ptx

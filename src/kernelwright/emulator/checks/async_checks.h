// Checks of the asynchronous instructions of Hopper: copies by the tensor memory accelerator,
// products of warp groups, and the fences between them and the threads. Included only by
// checks.cpp, whose checks of accesses it uses.
#pragma once
#include <array>

#include "descriptor.h"

namespace kw::emulator {
namespace {

// Registers of D of products that a thread has issued.
struct Flight {
  std::vector<void *> registers;
  unsigned last;  // the latest product of them
  const void *where;
};
// What a thread has begun.
struct Begun {
  std::uint32_t reads = 0, writes = 0;  // numbers of its bulk stores' accesses; 0 for none
  const void *store = nullptr;          // that is not committed
  const void *last = nullptr;           // bulk store
  unsigned stored = 0, waited = 0;      // groups of bulk stores: begun, and waited for
  unsigned fences = 0;                  // wgmma.fence
  std::vector<Flight> flights;
  std::unordered_map<std::uintptr_t, const void *> touched;  // own variables since that fence
};
// The box that has written 16 bytes of shared memory.
struct Boxed {
  std::uint16_t swizzle;
  bool set;
  std::uint32_t place;
  std::uint16_t thread;
  std::uint32_t block;
};

class Engines {
 public:
  void block(const Block &b) {
    for (std::uint32_t &n : groups_[b.rank]) n = 0;
    boxed_[b.rank].clear();
    fences_.erase(b.rank);
  }
  void begin(const Thread &t) {
    auto &all = begun_[t.block->rank];
    if (t.number < all.size()) all[t.number] = {};
  }
  Begun &of(const Thread &t) {
    auto &all = begun_[t.block->rank];
    if (all.size() < t.block->count) all.resize(t.block->count);
    return all[t.number];
  }
  // wgmma.fence: the lanes of a warp execute it together, and what they have read is in registers.
  void fence(const Thread &t) {
    Begun &own = of(t);
    Fence &all = fence_of(t, own.fences);
    if (all.number != own.fences) all = {own.fences, nullptr};
    all.known = both(all.known, order.release(t));
    ++own.fences;
    own.touched.clear();
  }
  // A thread has waited for products: those of all lanes have begun after their fences.
  void learn(const Thread &t) {
    const unsigned fences = of(t).fences;
    if (!fences) return;
    const Fence &last = fence_of(t, fences - 1);
    if (last.number == fences - 1) order.learn(t, last.known);
  }
  // The number of the products of a thread's warp group.
  std::uint32_t products(const Thread &t) {
    std::uint32_t &n = groups_[t.block->rank][t.number / kWarpGroup];
    return n ? n : n = mbarriers.fresh();
  }
  void launch() { stored_.clear(); }
  // Bytes that a bulk store writes. False if another one has written others there.
  bool store(const unsigned char *to, const unsigned char *from, unsigned bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, from, bytes);
    const auto [at, fresh] = stored_.try_emplace(to, value);
    const bool same = at->second == value;
    at->second = value;
    return same;
  }
  std::vector<Boxed> &boxed(const Block &b) { return boxed_[b.rank]; }

 private:
  struct Fence {
    unsigned number = ~0u;
    Known known;
  };
  Fence &fence_of(const Thread &t, unsigned number) {
    return fences_[t.block->rank][t.warp()][number % 4];
  }

  std::vector<Begun> begun_[kMostBlocks];
  std::uint32_t groups_[kMostBlocks][8] = {};
  std::map<unsigned, std::array<std::array<Fence, 4>, 32>> fences_;  // by block of the cluster
  std::vector<Boxed> boxed_[kMostBlocks];
  std::unordered_map<const void *, std::uint64_t> stored_;  // elements
} engines;

Known up_to(std::uint32_t with, std::uint32_t turn) {
  auto merged = std::make_shared<Knowledge>();
  merged->add({with, turn, {}});
  return merged;
}

// An asynchronous access to the shared memory of `owner`, as `event`.
void in_shared_at(Thread &t, const Engine &e, const Block &owner, unsigned at, unsigned bytes,
                  const Event &event) {
  const unsigned kind = (event.kind & kWrite) | kSent | kEngine;
  Seen s = {t, shared_start + at, e.where, bytes, kind, kShared, 0, &owner};
  in_shared(s, event.code, at, &event);
}
void in_global_at(Thread &t, const Engine &e, const Event &event) {
  const Bulk &c = *e.copy;
  const auto look = [&](const void *at, unsigned bytes) {
    const unsigned kind = (event.kind & (kWrite | kAtomic | kSent)) | kEngine;
    Seen s = {t, at, e.where, bytes, kind, kNowhere, 0, t.block};
    in_global(s, event.code, &event);
  };
  if (c.kind == Bulk::kBoxLoad || c.kind == Bulk::kBoxStore)
    each_run(c.map, c.first, look);
  else if (c.kind != Bulk::kSend)
    look(c.global, c.bytes);
}

// ---- copies

void remember_box(const Thread &t, const Bulk &c, std::uint32_t place) {
  auto &all = engines.boxed(*c.block);
  const bool box = c.kind == Bulk::kBoxLoad;
  if (all.empty()) {
    if (!box) return;
    all.resize((shared_end - shared_start) / 16 + 1);
  }
  for (unsigned i = c.at / 16; i < (c.at + c.bytes) / 16 && i < all.size(); ++i)
    all[i] = {c.map.swizzle, box, place, static_cast<std::uint16_t>(t.number), number_of(*t.block)};
}

void load_begins(Thread &t, const Engine &e) {
  const Bulk &c = *e.copy;
  const Across a = {kSend, e.where, c.block, c.mbarrier, c.at, c.bytes, c.phase, false};
  const std::uint32_t place = place_of(e.where);
  if (wanted & kBounds && !order_starts(order, t, *c.block, number_of(*c.block)))
    findings.add(finding_of(t, a, kNotStarted, c.at, c.bytes, kWrite | kSent | kEngine));
  in_global_at(t, e, order.event(t, kRead, place));
  Mailbox *box = mbarriers.find(*c.block, c.mbarrier);
  if (!box) return;
  const bool ready = box->ready(order, t);
  if (wanted & kRaces && !(ready && box->seen(order, t))) {
    Finding f = finding_of(t, a, ready ? kBarrierUnseen : kNotReady, c.mbarrier, 8,
                           kWrite | kSent | kEngine);
    f.b = side_of(box->init(), *t.block);
    findings.add(f);
  }
  if (wanted & kBounds)
    box->sent(c.phase, finding_of(t, a, kMayHaveEnded, c.at, c.bytes, kWrite | kSent | kEngine));
  Event event = box->send(t, c.phase, number_of(*t.block), place);
  event.kind |= kVolatile;
  in_shared_at(t, e, *c.block, c.at, c.bytes, event);
  remember_box(t, c, place);
  if (c.kind == Bulk::kSend) {
    event.kind &= ~unsigned(kWrite);
    in_shared_at(t, e, *t.block, c.from, c.bytes, event);
  }
}

bool stores_what_is_there(const Bulk &c) {
  bool same = true;
  if (c.kind == Bulk::kBoxStore) {
    each_element(c.map, c.first, [&](const unsigned char *to, unsigned at) {
      const unsigned char *from = shared_start + swizzled(c.at + at, c.map.swizzle);
      if (to) same &= engines.store(to, from, c.map.bytes);
    });
  } else {
    const auto *to = static_cast<const unsigned char *>(c.global);
    for (unsigned i = 0; i < c.bytes; i += 8)
      same &= engines.store(to + i, shared_start + c.at + i, 8);
  }
  return same;
}

void store_begins(Thread &t, const Engine &e) {
  const Bulk &c = *e.copy;
  Begun &own = engines.of(t);
  if (!own.reads) own.reads = mbarriers.fresh(), own.writes = mbarriers.fresh();
  own.store = own.last = e.where, own.stored = c.group + 1;
  const std::uint32_t place = place_of(e.where), block = number_of(*t.block);
  const unsigned bytes = c.kind == Bulk::kBoxStore ? box_bytes(c.map) : c.bytes;
  in_shared_at(t, e, *c.block, c.at, bytes,
               sent_by(own.reads, c.group, t, block, kVolatile, place));
  const unsigned combines = c.reduction == kReplace ? 0u : unsigned(kAtomic);
  stores_same = !combines && stores_what_is_there(c);
  in_global_at(t, e, sent_by(own.writes, c.group, t, block, kWrite | kVolatile | combines, place));
}

void copy_ends(Thread &t, const Engine &e) {
  const Bulk &c = *e.copy;
  if (wanted & kRaces && e.number != c.phase) {
    const Across a = {kSend, e.where, c.block, c.mbarrier, c.at, c.bytes, c.phase, false};
    Finding f = finding_of(t, a, kLatePhase, c.at, c.bytes, kWrite | kSent | kEngine);
    f.lane = c.phase;
    findings.add(f);
  }
  if (Mailbox *box = mbarriers.find(*c.block, c.mbarrier)) box->bring(nullptr, e.number, e.ends);
}

void stores_ended(Thread &t, const Engine &e) {
  Begun &own = engines.of(t);
  own.waited = std::max(own.waited, e.number);
  if (!own.reads) return;
  order.learn(t, up_to(own.reads, e.number));
  if (!e.reads) order.learn(t, up_to(own.writes, e.number));
}

// ---- products

// An operand that lies in shared memory, as box and descriptor describe it.
void look_at_swizzle(Thread &t, const Engine &e, unsigned at, const Descriptor &d) {
  const auto &boxed = engines.boxed(*t.block);
  if (!(wanted & kBounds) || at / 16 >= boxed.size()) return;
  const Boxed &b = boxed[at / 16];
  if (!b.set || b.swizzle == d.swizzle) return;
  Finding f = about(kWrongSwizzle, side_of(t, e.where, kRead | kSent | kEngine));
  f.b = {reinterpret_cast<std::uint64_t>(places[b.place].where), unfold(b.thread, t.block->size),
         unfold(b.block, t.block->grid), kWrite | kSent | kEngine};
  f.lane = b.swizzle, f.bytes = d.swizzle;
  findings.add(f);
}

void look_at_operand(Thread &t, const Engine &e, std::uint64_t bits, unsigned rows, Format f,
                     bool k_major, const Event &event) {
  const Descriptor d(bits);
  const auto size = static_cast<unsigned>(shared_end - shared_start);
  each_unit(d, rows, e.product->k, f, k_major, [&](unsigned at) {
    if (at + 16 > size) return;  // the product fails
    look_at_swizzle(t, e, at, d);
    in_shared_at(t, e, *t.block, at, 16, event);
  });
}

void look_at_registers(Thread &t, const Engine &e) {
  const Product &p = *e.product;
  Begun &own = engines.of(t);
  const unsigned count = p.d == kHalf ? p.n / 4 : p.n / 2;
  const void *touched = nullptr;
  if (!own.touched.empty())
    for (unsigned i = 0; i < count && !touched; ++i) {
      const auto at = own.touched.find(reinterpret_cast<std::uintptr_t>(e.registers[i]));
      if (at != own.touched.end()) touched = at->second;
    }
  if (wanted & kRaces && (touched || !own.fences)) {
    Finding f = about(kNoProductFence, side_of(t, e.where, kRead | kSent | kEngine));
    f.b = side_of(t, touched, kRead);
    findings.add(f);
  }
  for (Flight &f : own.flights)
    if (f.registers.size() == count &&
        !std::memcmp(f.registers.data(), e.registers, count * sizeof *e.registers)) {
      f.last = e.number, f.where = e.where;
      return;
    }
  own.flights.push_back({{e.registers, e.registers + count}, e.number, e.where});
}

void product_issued(Thread &t, const Engine &e) {
  const Product &p = *e.product;
  look_at_registers(t, e);
  if (t.lane() != 31) return;  // a warp issues it together; one lane's knowledge is its
  const Event event =
      sent_by(engines.products(t), e.number, t, number_of(*t.block), kVolatile, place_of(e.where));
  if (!p.from_registers) look_at_operand(t, e, p.at_a, 64, p.a, p.a_k_major, event);
  look_at_operand(t, e, p.at_b, p.n, p.b, p.b_k_major, event);
}

void products_ended(Thread &t, const Engine &e) {
  auto &flights = engines.of(t).flights;
  const auto ended = [&](const Flight &f) { return f.last < e.number; };
  flights.erase(std::remove_if(flights.begin(), flights.end(), ended), flights.end());
  order.learn(t, up_to(engines.products(t), e.number));
  engines.learn(t);
}

void engine(Thread &t, const Engine &e) {
  unsettled.settle(findings);
  switch (e.what) {
    case Engine::kProxyFence:
      order.fence_proxy(t);
      note_sync_point(e.where);
      break;
    case Engine::kCopyBegins:
      e.copy->stores() ? store_begins(t, e) : load_begins(t, e);
      break;
    case Engine::kCopyEnds:
      copy_ends(t, e);
      break;
    case Engine::kStoresCommitted:
      engines.of(t).store = nullptr;
      break;
    case Engine::kStoresEnded:
      stores_ended(t, e);
      break;
    case Engine::kProductFence:
      engines.fence(t);
      note_sync_point(e.where);
      break;
    case Engine::kProductIssued:
      product_issued(t, e);
      break;
    case Engine::kProductsEnded:
      products_ended(t, e);
      break;
  }
}

// An access to a thread's own variables.
void own(Thread &t, const void *address, unsigned bytes, unsigned kind, const void *where) {
  if (!(wanted & kRaces)) return;
  Begun &mine = engines.of(t);
  const auto from = reinterpret_cast<std::uintptr_t>(address);
  for (std::uintptr_t at = from & ~std::uintptr_t(3); at < from + bytes; at += 4) {
    mine.touched.try_emplace(at, where);
    for (const Flight &f : mine.flights) {
      if (std::find(f.registers.begin(), f.registers.end(), reinterpret_cast<void *>(at)) ==
          f.registers.end())
        continue;
      Finding finding = about(kInFlight, side_of(t, where, kind & kWrite));
      finding.b = side_of(t, f.where, kRead | kSent | kEngine);
      findings.add(finding);
    }
  }
}

void exit_engines(Thread &t) {
  const Begun &own = engines.of(t);
  if (!(wanted & kRaces)) return;
  if (own.store)
    findings.add(about(kNotCommitted, side_of(t, own.store, kWrite | kSent | kEngine)));
  else if (own.waited < own.stored)
    findings.add(about(kStillReading, side_of(t, own.last, kWrite | kSent | kEngine)));
}

}  // namespace
}  // namespace kw::emulator

// What the threads of a cluster may know of each other through mbarriers: which are initialized,
// what has arrived, and whether a block waits for the data that is sent to it.
#pragma once
#include <map>

#include "findings.h"

namespace kw::emulator {

// An asynchronous access.
inline Event sent_by(std::uint32_t with, std::uint32_t turn, const Thread &t, std::uint32_t block,
                     unsigned kind, unsigned code) {
  Event e = {with, turn, block, {}, {}, {}, {}};
  e.thread = t.number, e.kind = kind | kSent, e.set = 1, e.code = code;
  return e;
}

// Whether a thread can know that a block has started: the thread has passed the cluster's barrier,
// at which all threads of all blocks arrive, or has synchronized with the block in another way.
inline bool order_starts(const Order &order, const Thread &t, const Block &b,
                         std::uint32_t number) {
  if (t.phase || t.block == &b) return true;
  const Known &known = order.known(t);
  if (!known) return false;
  const auto cut = known->find(number);
  return cut != known->cuts.end() && cut->block == number;
}

// An mbarrier of one block.
class Mailbox {
 public:
  Mailbox(std::uint32_t number, Event init) : number_(number), init_(init) {}

  const Event &init() const { return init_; }
  void fence(const Thread &t) { fenced_ |= init_.thread == t.number; }
  // The thread that initialized and fenced it arrives at the cluster's barrier.
  void arrive(const Thread &t) {
    if (fenced_ && !published_ && init_.thread == t.number) published_ = t.phase + 1;
  }
  // Whether asynchronous hardware sees it when a thread begins a copy.
  bool seen(const Order &order, const Thread &t) const { return fenced_ || order.fenced(init_, t); }
  // Whether a thread may use it.
  bool ready(const Order &order, const Thread &t) const {
    return (published_ && t.phase >= published_) || order.before(init_, t);
  }

  // A write that completes when the phase ends.
  Event send(const Thread &t, std::uint32_t phase, std::uint32_t from, std::uint32_t code) const {
    return sent_by(number_, phase, t, from, kWrite, code);
  }
  // An arrival, or bytes: threads that wait for the phase learn all that the sender knew.
  void bring(const Known &known, std::uint32_t phase, bool ends) {
    coming_ = both(coming_, known);
    if (!ends) return;
    auto all = coming_ ? std::make_shared<Knowledge>(*coming_) : std::make_shared<Knowledge>();
    all->add({number_, phase + 1, {}});
    come_ = all, coming_ = nullptr;
  }
  const Known &come() const { return come_; }

  // One of the sends of a phase, for the message if no thread waits for the phase.
  void sent(std::uint32_t phase, const Finding &f) {
    if (sends_.empty() || sends_.back().first != phase) sends_.push_back({phase, f});
  }
  // A thread of its block ends; it has waited for the phases before a given one.
  void exit(const Known &known) {
    const auto cut = known->find(number_);
    if (cut != known->cuts.end() && cut->block == number_) heard_ = std::max(heard_, cut->epoch);
  }
  template <typename Visit> void each_unheard(Visit visit) const {
    for (const auto &[phase, f] : sends_)
      if (phase >= heard_) visit(f);
  }

 private:
  std::uint32_t number_;
  Event init_;
  bool fenced_ = false;
  std::uint32_t published_ = 0;  // phases of the cluster's barrier after which others know of it
  Known coming_, come_;          // by the present phase; by those that ended
  std::uint32_t heard_ = 0;      // phases that threads waited for that then ended
  std::vector<std::pair<std::uint32_t, Finding>> sends_;
};

// The position at which the first thread of a warp arrived at, or passed, the cluster's barrier.
struct Alike {
  const void *where;
  unsigned thread;
  std::uint32_t turn;
};

class MbarrierOrder {
 public:
  void block(const Block &b) {
    boxes_[b.rank].clear();
    if (!b.rank) looks_.clear();
    for (Alike &a : alike_[b.rank]) a = {};
  }
  void init(const Across &a, const Event &by) {
    boxes_[a.block->rank].insert_or_assign(a.mbarrier, Mailbox(fresh(), by));
  }
  // A number for what asynchronous accesses complete with.
  std::uint32_t fresh() { return kMailbox | count_++; }
  Mailbox *find(const Block &b, unsigned at) {
    const auto entry = boxes_[b.rank].find(at);
    return entry == boxes_[b.rank].end() ? nullptr : &entry->second;
  }
  void fence(const Thread &t) {
    for (auto &[at, box] : boxes_[t.block->rank]) box.fence(t);
  }
  void arrive(const Thread &t) {
    for (auto &[at, box] : boxes_[t.block->rank]) box.arrive(t);
  }
  void exit(const Thread &t, const Known &known) {
    if (known)
      for (auto &[at, box] : boxes_[t.block->rank]) box.exit(known);
  }
  template <typename Visit> void each_unheard(const Block &b, Visit visit) const {
    for (const auto &[at, box] : boxes_[b.rank]) box.each_unheard(visit);
  }
  // An access to another block's shared memory. That block must not end before the access.
  // `arrives`: at one of its mbarriers, which any later barrier of the cluster orders.
  void look(const Thread &t, const Finding &f, const Event &e, bool arrives = false) {
    const Look latest = {f, e, arrives ? t.arrivals + 1 : 0};
    for (Look &l : looks_)
      if (l.finding.a.where == f.a.where && l.finding.owner == f.owner &&
          l.event.thread == e.thread) {
        l = latest;
        return;
      }
    if (looks_.size() < kMostLooks) looks_.push_back(latest);
  }
  // The accesses that are not ordered before the end of the block by any of its threads.
  template <typename Visit> void each_unknown(const Block &b, const Order &order, Visit visit) {
    const std::uint32_t number = b.index.x + b.grid.x * (b.index.y + b.grid.y * b.index.z);
    for (const Look &l : looks_) {
      bool known = l.finding.owner != number;
      for (unsigned i = 0; i < b.count && !known; ++i) {
        const Thread &t = b.threads[i];
        known = order.before(l.event, t) || (l.cluster_barrier && t.phase >= l.cluster_barrier);
      }
      if (!known) visit(l.finding);
    }
  }
  // The same step of the first thread of t's warp that reached it.
  Alike alike(const Thread &t, const Across &a) {
    const bool passes = a.what == kPass;
    Alike &first = alike_[t.block->rank][t.warp() * 2 + passes];
    const std::uint32_t turn = passes ? t.phase : t.phase + 1;
    if (first.turn != turn) first = {a.where, t.number, turn};
    return first;
  }

 private:
  std::map<unsigned, Mailbox> boxes_[kMostBlocks];  // by their places in shared memory
  Alike alike_[kMostBlocks][64];
  std::uint32_t count_ = 0;
  static constexpr std::size_t kMostLooks = 4096;
  struct Look {
    Finding finding;
    Event event;
    std::uint32_t cluster_barrier;  // the cluster's barrier, counted from 1, that orders it; or 0
  };
  std::vector<Look> looks_;
};

}  // namespace kw::emulator

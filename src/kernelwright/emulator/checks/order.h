// The happens-before order of accesses, by CUDA's memory model.
//
// A thread's accesses are numbered by the barriers that it has passed (its epoch) and, between two
// barriers, by a clock that advances at each __syncwarp and fence. A barrier orders all threads of
// the block. __syncwarp orders the lanes of its mask: each lane has a vector of the clocks of other
// lanes that it knows. Between blocks, and between warps without a barrier, a fence followed by an
// atomic or volatile write releases what a thread knows; a read of that value followed by a fence
// acquires it. In a cluster its barrier does this too; mbarrier_order.h handles its mbarriers.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime.h"

namespace kw::emulator {

// An access recorded in a cell of memory. An asynchronous one (`kSent`) is not ordered with its
// thread's later accesses. Its `block` identifies what it completes with, and `epoch` its turn
// there: an mbarrier and the phase, a thread's bulk stores and the group, a warp group's products
// and the number. `clock` is the block of its thread; kVolatile says that hardware other than the
// threads accesses memory: the tensor memory accelerator or the tensor cores.
struct Event {
  std::uint32_t block, epoch, clock;
  std::uint32_t thread : 10, kind : 4, set : 1, code : 17;  // code: number of its instruction
};
constexpr unsigned kSent = 8;                   // in an Event's kind, beside those of Access
constexpr std::uint32_t kMailbox = 0x80000000;  // in an Event's block: the number of an mbarrier

struct Clocks {
  std::uint32_t of[32];

  void merge(const Clocks &other) {
    for (int i = 0; i < 32; ++i) of[i] = std::max(of[i], other.of[i]);
  }
};

// What a thread knows of a block: everything before an epoch, and in that epoch what the clocks of
// some warps cover.
struct Cut {
  std::uint32_t block, epoch;
  std::vector<std::pair<std::uint32_t, Clocks>> warps;

  bool covers(const Event &e) const {
    if (e.epoch < epoch) return true;
    if (e.epoch > epoch) return false;
    for (const auto &[warp, clocks] : warps)
      if (warp == e.thread / 32) return e.clock <= clocks.of[e.thread % 32];
    return false;
  }
  void merge(const Cut &other) {
    if (other.epoch < epoch) return;
    if (other.epoch > epoch) {
      *this = other;
      return;
    }
    for (const auto &theirs : other.warps) {
      const auto same = [&](const auto &w) { return w.first == theirs.first; };
      const auto mine = std::find_if(warps.begin(), warps.end(), same);
      if (mine == warps.end())
        warps.push_back(theirs);
      else
        mine->second.merge(theirs.second);
    }
  }
};

// Cuts of several blocks, by block. Immutable once it may be shared. `fenced`: what a
// fence.proxy.async has covered, so that asynchronous hardware sees it.
struct Knowledge {
  std::vector<Cut> cuts;
  std::shared_ptr<const Knowledge> fenced;

  bool covers(const Event &e) const {
    const auto at = find(e.block);
    return at != cuts.end() && at->block == e.block && at->covers(e);
  }
  void add(const Cut &cut) {
    const auto at = cuts.begin() + (find(cut.block) - cuts.cbegin());
    if (at != cuts.end() && at->block == cut.block)
      at->merge(cut);
    else
      cuts.insert(at, cut);
  }
  std::vector<Cut>::const_iterator find(std::uint32_t block) const {
    const auto before = [](const Cut &c, std::uint32_t b) { return c.block < b; };
    return std::lower_bound(cuts.begin(), cuts.end(), block, before);
  }
};
using Known = std::shared_ptr<const Knowledge>;

inline Known both(const Known &a, const Known &b) {
  if (!a || a == b) return b;
  if (!b) return a;
  auto sum = std::make_shared<Knowledge>(*a);
  for (const Cut &cut : b->cuts) sum->add(cut);
  sum->fenced = both(a->fenced, b->fenced);
  return sum;
}

// What one word releases. A fence of block scope affects its own block only.
struct Handover {
  Known all, in_block;
  std::uint32_t block;  // whose `in_block` is
};

// Which side of two accesses in different blocks does not do its part.
enum Missing : std::uint32_t {
  kNothingKnown,
  kReleases,  // the first has no fence followed by an atomic or volatile write
  kReads,     // the second has not read what that wrote
  kAcquires,  // the second thread has read the flag, but executes no fence
  kNoLater    // the second thread's fences all precede its read of the flag
};

// A thread's view.
struct View {
  Clocks clocks;
  Known known;                 // of others, beyond its barriers and its warp
  Known released, narrow;      // at its last fence of the device's scope; of any scope
  std::vector<Handover> read;  // by atomics and volatile reads since it began

  void begin(unsigned lane) {
    std::memset(&clocks, 0, sizeof clocks);
    clocks.of[lane] = 1;
    known = released = narrow = nullptr;
    read.clear();
  }
};

// Fences around barriers. After a barrier, an atomic of any thread releases what a fence of any of
// them covered before it, and a fence of any thread acquires what any of them had read.
struct Handing {
  Known released, narrow, read, read_in_block;

  void add(const View &view, std::uint32_t block) {
    released = both(released, view.released);
    narrow = both(narrow, view.narrow);
    for (const Handover &h : view.read) {
      read = both(read, h.all);
      if (h.block == block) read_in_block = both(read_in_block, h.in_block);
    }
  }
  void give(View &view, std::uint32_t block) const {
    view.released = released, view.narrow = narrow;
    view.read.clear();
    if (read || read_in_block) view.read.push_back({read, read_in_block, block});
  }
};

class Order {
 public:
  void launch() { words_.clear(); }
  void block(const Block &b, std::uint32_t number) {
    InBlock &own = blocks_[b.rank];
    if (!own.views) own.views = std::make_unique<View[]>(1024);
    own.number = number;
    own.news = own.handed = false;
    for (Known &known : own.named) known = nullptr;
    cluster_phases_[0] = cluster_phases_[1] = {};
  }
  void begin(const Thread &t) { view_of(t).begin(t.lane()); }

  Event event(const Thread &t, unsigned kind, unsigned code) const {
    Event e = {of(t).number, t.epoch, view_of(t).clocks.of[t.lane()], {}, {}, {}, {}};
    e.thread = t.number, e.kind = kind, e.set = 1, e.code = code;
    return e;
  }

  bool before(const Event &e, const Thread &t) const {
    const View &view = view_of(t);
    if (e.block == of(t).number) {
      if (e.epoch < t.epoch || e.thread == t.number) return true;
      if (e.thread / 32 == t.warp() && e.clock <= view.clocks.of[e.thread % 32]) return true;
    }
    return view.known && view.known->covers(e);
  }

  // Whether a fence.proxy.async lies between an access and what a thread does now.
  bool fenced(const Event &e, const Thread &t) const {
    const Known &known = view_of(t).known;
    return known && known->fenced && known->fenced->covers(e);
  }
  void fence_proxy(const Thread &t) {
    auto covered = std::make_shared<Knowledge>(*release(t));
    auto all = std::make_shared<Knowledge>(*covered);
    covered->fenced = nullptr;
    all->fenced = both(all->fenced, covered);
    learn(t, all);
  }

  // Of an access `e` in another block that is not ordered before what a thread does now.
  Missing missing(const Event &e, const Thread &t) const {
    if (e.kind & kSent || e.block == of(t).number) return kNothingKnown;
    const auto covers = [&](const Handover &h) { return h.all && h.all->covers(e); };
    for (const Handover &h : view_of(t).read)
      if (covers(h)) return view_of(t).narrow ? kNoLater : kAcquires;
    for (const auto &word : words_)
      if (covers(word.second)) return kReads;
    return kReleases;
  }

  void barrier(const Block &b) {
    InBlock &own = blocks_[b.rank];
    if (own.handed) {
      Handing all;
      for (unsigned i = 0; i < b.count; ++i)
        if (b.threads[i].wait != kNothing) all.add(own.views[i], own.number);
      for (unsigned i = 0; i < b.count; ++i)
        if (b.threads[i].wait != kNothing) all.give(own.views[i], own.number);
      own.handed = false;
    }
    if (!own.news) return;
    Known all;
    for (unsigned i = 0; i < b.count; ++i)
      if (b.threads[i].wait != kNothing) all = both(all, own.views[i].known);
    for (unsigned i = 0; i < b.count; ++i)
      if (b.threads[i].wait != kNothing) own.views[i].known = all;
    own.news = false;
  }

  // bar.sync and bar.arrive on a numbered barrier. Once all have arrived, `complete` is called for
  // each thread that waits.
  void arrive_at(const Thread &t, unsigned which) {
    of(t).named[which] = both(of(t).named[which], release(t));
  }
  void pass(const Thread &t, unsigned which) { learn(t, of(t).named[which]); }
  void complete(const Thread &t, unsigned which) { of(t).named[which] = nullptr; }

  // What a thread has done and knows so far; later accesses are not included.
  Known release(const Thread &t) {
    View &view = view_of(t);
    auto now =
        view.known ? std::make_shared<Knowledge>(*view.known) : std::make_shared<Knowledge>();
    now->add({of(t).number, t.epoch, {{t.warp(), view.clocks}}});
    ++view.clocks.of[t.lane()];
    return now;
  }
  void learn(const Thread &t, const Known &news) {
    if (!news) return;
    View &view = view_of(t);
    view.known = both(view.known, news);
    of(t).news = true;
  }
  const Known &known(const Thread &t) const { return view_of(t).known; }

  // The cluster's barrier. A relaxed arrival releases what the thread has fenced.
  void arrive(const Thread &t, bool relaxed) {
    ClusterPhase &phase = cluster_phases_[t.phase % 2];
    if (phase.phase != t.phase) phase = {t.phase, nullptr};
    phase.known = both(phase.known, relaxed ? view_of(t).released : release(t));
  }
  void pass(const Thread &t) { learn(t, cluster_phases_[(t.phase - 1) % 2].known); }

  // Shuffles, votes and matches order nothing: "these intrinsics do not imply a memory barrier".
  void syncwarp(const Thread &first, unsigned lanes) {
    const bool news = of(first).news, handed = of(first).handed;
    View *const warp = &view_of(first) - first.lane();
    Clocks all = {};
    Known known;
    Handing hands;
    for (unsigned left = lanes; left; left &= left - 1) {
      all.merge(warp[__builtin_ctz(left)].clocks);
      if (news) known = both(known, warp[__builtin_ctz(left)].known);
      if (handed) hands.add(warp[__builtin_ctz(left)], of(first).number);
    }
    for (unsigned left = lanes; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      warp[lane].clocks = all;
      ++warp[lane].clocks.of[lane];
      if (news) warp[lane].known = known;
      if (handed) hands.give(warp[lane], of(first).number);
    }
  }

  void fence(const Thread &t, unsigned scope) {
    View &view = view_of(t);
    for (const Handover &h : view.read) {
      if (scope != kBlockScope) view.known = both(view.known, h.all);
      if (h.block == of(t).number) view.known = both(view.known, h.in_block);
    }
    if (scope != kBlockScope) view.read.clear();
    if (view.known) of(t).news = true;
    view.narrow = release(t);
    if (scope != kBlockScope) view.released = view.narrow;
    of(t).handed = true;
  }

  // A thread's later accesses have another clock than those before.
  void advance(const Thread &t) { ++view_of(t).clocks.of[t.lane()]; }

  // An atomic or volatile access: a read acquires what the word releases, a plain write replaces
  // it, an atomic operation adds to it.
  void word(const Thread &t, const void *address, unsigned kind) {
    View &view = view_of(t);
    const bool reads = kind & kAtomic || !(kind & kWrite);
    if (words_.empty() && !view.narrow) return;
    const auto entry = words_.find(address);
    if (reads && entry != words_.end()) {
      const Handover &h = entry->second;
      const bool again = !view.read.empty() && view.read.back().all == h.all &&
                         view.read.back().in_block == h.in_block;
      if (!again) view.read.push_back(h);  // a poll reads the same again and again
      of(t).handed = true;
    }
    if (!(kind & kWrite)) return;
    if (!(kind & kAtomic)) {
      if (view.narrow)
        words_[address] = {view.released, view.narrow, of(t).number};
      else if (entry != words_.end())
        words_.erase(entry);
    } else if (view.narrow) {
      Handover &h = words_[address];
      h.all = both(h.all, view.released);
      h.in_block = h.block == of(t).number ? both(h.in_block, view.narrow) : view.narrow;
      h.block = of(t).number;
    }
  }

 private:
  struct InBlock {
    std::unique_ptr<View[]> views;
    std::uint32_t number = 0;
    bool news = false;    // since the last barrier, a thread synchronized by other means
    bool handed = false;  // since the last barrier, a thread executed a fence or read a flag
    Known named[16];      // released at the numbered barriers
  };
  // The threads that have arrived at a phase of the cluster's barrier.
  struct ClusterPhase {
    std::uint32_t phase;
    Known known;
  };

  InBlock &of(const Thread &t) { return blocks_[t.block->rank]; }
  const InBlock &of(const Thread &t) const { return blocks_[t.block->rank]; }
  View &view_of(const Thread &t) { return of(t).views[t.number]; }
  const View &view_of(const Thread &t) const { return of(t).views[t.number]; }

  InBlock blocks_[kMostBlocks];
  ClusterPhase cluster_phases_[2] = {};
  std::unordered_map<const void *, Handover> words_;
};

}  // namespace kw::emulator

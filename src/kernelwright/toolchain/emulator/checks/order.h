// What happened before what, by CUDA's rules.
//
// A thread's accesses are numbered by the barriers that it has passed (its epoch) and, between two
// barriers, by a clock that goes on at each __syncwarp and fence. A barrier orders all threads of
// the block. __syncwarp orders the lanes of its mask: each lane has a vector of the clocks that it
// has heard of. Between blocks, and between warps without a barrier, a fence and then an atomic or
// volatile write hand over what a thread knows, to whoever reads that and then fences.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime.h"

namespace kw::emulator {

// An access that a cell of memory remembers.
struct Event {
  std::uint32_t block, epoch, clock;
  std::uint32_t thread : 10, kind : 3, set : 1, code : 18;  // code: number of its instruction
};

struct Clocks {
  std::uint32_t of[32];

  void merge(const Clocks &other) {
    for (int i = 0; i < 32; ++i) of[i] = std::max(of[i], other.of[i]);
  }
};

// What is known of a block: everything before an epoch, and of that epoch what some warps' clocks
// cover.
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

// Cuts of several blocks, by block. Never changed once others may hold it.
struct Knowledge {
  std::vector<Cut> cuts;

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
  return sum;
}

// What one word hands over. A fence of the block's scope serves its own block only.
struct Handover {
  Known all, in_block;
  std::uint32_t block;  // whose `in_block` is
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

class Order {
 public:
  void launch() { words_.clear(); }
  void block(std::uint32_t number) {
    block_ = number;
    news_ = false;
  }
  void begin(const Thread &t) { views_[t.number].begin(t.lane()); }

  Event event(const Thread &t, unsigned kind, unsigned code) const {
    Event e = {block_, t.epoch, views_[t.number].clocks.of[t.lane()], {}, {}, {}, {}};
    e.thread = t.number, e.kind = kind, e.set = 1, e.code = code;
    return e;
  }

  bool before(const Event &e, const Thread &t) const {
    const View &view = views_[t.number];
    if (e.block == block_) {
      if (e.epoch < t.epoch || e.thread == t.number) return true;
      if (e.thread / 32 == t.warp() && e.clock <= view.clocks.of[e.thread % 32]) return true;
    }
    return view.known && view.known->covers(e);
  }

  void barrier(const Block &b) {
    if (!news_) return;
    Known all;
    for (unsigned i = 0; i < b.count; ++i)
      if (b.threads[i].wait != kNothing) all = both(all, views_[i].known);
    for (unsigned i = 0; i < b.count; ++i)
      if (b.threads[i].wait != kNothing) views_[i].known = all;
    news_ = false;
  }

  // Shuffles, votes and matches order nothing: "these intrinsics do not imply a memory barrier".
  void syncwarp(const Thread &first, unsigned lanes) {
    View *const warp = views_ + first.number / 32 * 32;
    Clocks all = {};
    Known known;
    for (unsigned left = lanes; left; left &= left - 1) {
      all.merge(warp[__builtin_ctz(left)].clocks);
      if (news_) known = both(known, warp[__builtin_ctz(left)].known);
    }
    for (unsigned left = lanes; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      warp[lane].clocks = all;
      ++warp[lane].clocks.of[lane];
      if (news_) warp[lane].known = known;
    }
  }

  void fence(const Thread &t, unsigned scope) {
    View &view = views_[t.number];
    for (const Handover &h : view.read) {
      if (scope != kBlockScope) view.known = both(view.known, h.all);
      if (h.block == block_) view.known = both(view.known, h.in_block);
    }
    if (view.known) news_ = true;
    auto now =
        view.known ? std::make_shared<Knowledge>(*view.known) : std::make_shared<Knowledge>();
    now->add({block_, t.epoch, {{t.warp(), view.clocks}}});
    view.narrow = now;
    if (scope != kBlockScope) view.released = now;
    ++view.clocks.of[t.lane()];
  }

  // An atomic or volatile access: a read takes what the word hands over, a plain write replaces
  // it, an atomic operation adds to it.
  void word(const Thread &t, const void *address, unsigned kind) {
    View &view = views_[t.number];
    const bool reads = kind & kAtomic || !(kind & kWrite);
    if (words_.empty() && !view.narrow) return;
    const auto found = words_.find(address);
    if (reads && found != words_.end()) {
      const Handover &h = found->second;
      const bool again = !view.read.empty() && view.read.back().all == h.all &&
                         view.read.back().in_block == h.in_block;
      if (!again) view.read.push_back(h);  // a poll reads the same again and again
    }
    if (!(kind & kWrite)) return;
    if (!(kind & kAtomic)) {
      if (view.narrow)
        words_[address] = {view.released, view.narrow, block_};
      else if (found != words_.end())
        words_.erase(found);
    } else if (view.narrow) {
      Handover &h = words_[address];
      h.all = both(h.all, view.released);
      h.in_block = h.block == block_ ? both(h.in_block, view.narrow) : view.narrow;
      h.block = block_;
    }
  }

 private:
  View views_[1024];
  std::unordered_map<const void *, Handover> words_;
  std::uint32_t block_ = 0;
  bool news_ = false;  // since the last barrier a thread heard of others by a word
};

}  // namespace kw::emulator

// Volatile data without fences. Volatile accesses of two blocks do not race with each other, but
// without fences nothing orders a block's volatile writes: a thread that has seen the later one of
// two may still read the old value of the other.
#pragma once
#include <unordered_map>
#include <vector>

#include "order.h"

namespace kw::emulator {

class VolatileOrder {
 public:
  void launch() { words_.clear(), starts_ = false; }
  void block(const Block &b) { seen_[b.rank].clear(); }

  // A volatile or atomic write. False if there has been no volatile data so far.
  bool write(const void *address, const Event &e) {
    starts_ |= !(e.kind & kAtomic);
    if (!starts_) return false;
    std::vector<Last> &by = words_[address];
    const auto of_block = [&](const Last &l) { return l.event.block == e.block; };
    const auto at = std::find_if(by.begin(), by.end(), of_block);
    if (at == by.end())
      by.push_back({e, ++turn_});
    else
      *at = {e, ++turn_};
    return true;
  }
  // A volatile or atomic read.
  void read(const Thread &t, const void *address, bool atomically) {
    if (words_.empty() || !words_.count(address)) return;
    std::vector<Observation> &seen = seen_[t.block->rank];
    const auto again = [&](const Observation &s) {
      return s.word == address && s.thread == t.number;
    };
    const auto from = seen.end() - std::min<std::ptrdiff_t>(8, seen.end() - seen.begin());
    const auto at = std::find_if(from, seen.end(), again);  // a poll reads the same again and again
    const Observation now = {address, turn_, t.epoch, t.number, !atomically};
    if (at == seen.end())
      seen.push_back(now);
    else
      *at = now;
  }
  // How a thread has seen, at another address, a write that its block made after `e`: kPolled by a
  // volatile read since the last barrier, kSeen otherwise.
  enum How { kNotSeen, kSeen, kPolled };
  How later(const Event &e, const Thread &t, const void *address) const {
    How how = kNotSeen;
    for (const Observation &s : seen_[t.block->rank]) {
      if (s.word == address || (s.epoch >= t.epoch && s.thread != t.number)) continue;
      for (const Last &l : words_.at(s.word))
        if (l.turn <= s.turn && l.event.block == e.block && follows(l.event, e))
          how = std::max(how, s.polled && s.epoch == t.epoch ? kPolled : kSeen);
    }
    return how;
  }

 private:
  struct Last {  // the last write of a block
    Event event;
    std::uint64_t turn;
  };
  struct Observation {
    const void *word;
    std::uint64_t turn;
    unsigned epoch, thread;
    bool polled;  // by a volatile read
  };
  static bool follows(const Event &later, const Event &e) {
    return e.epoch < later.epoch ||
           (e.epoch == later.epoch && e.thread == later.thread && e.clock < later.clock);
  }

  std::unordered_map<const void *, std::vector<Last>> words_;
  std::vector<Observation> seen_[kMostBlocks];
  std::uint64_t turn_ = 0;
  bool starts_ = false;
};

}  // namespace kw::emulator

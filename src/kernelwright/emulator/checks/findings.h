// What the checks found: at most one finding of each kind for two places in the code.
#pragma once
#include <unordered_map>
#include <vector>

#include "order.h"

namespace kw::emulator {

enum Kind : std::uint32_t {
  kRace,        // b, then a, and nothing orders them
  kOutside,     // a touches what no argument and no shared variable holds
  kMisaligned,  // a's address is no multiple of its size
  kNeverWritten,
  kTwoBarriers,    // a and b wait, each in another line's barrier
  kAbsentLane,     // a reads by a shuffle from a lane that does not take part
  kNotReady,       // a uses an mbarrier that b initializes, and nothing orders them
  kNotStarted,     // a sends to a block that may not have started
  kMayHaveEnded,   // a sends to a block that may have ended
  kNotWaited,      // a touches what an asynchronous copy of b may still write
  kAfterExit,      // a waits at a barrier, and other threads of its block ended without it
  kNoValue,        // a reads its own uninitialized variable; `address` is its name
  kIndex,          // a's index is out of range; `offset` is the index, `address` the size
  kLanesEnded,     // lanes in a's mask, such as b, ended before the operation
  kMayComeFirst,   // a reads a flag that is uninitialized until another thread writes it
  kNoProxyFence,   // a, asynchronous, touches what b wrote, with no fence.proxy.async in between
  kBarrierUnseen,  // a copy of a counts at an mbarrier that b initializes, with no fence in between
  kLatePhase,      // a copy of a counts bytes of a phase that ended without them
  kNotCommitted,   // a bulk store of a is in no group
  kInFlight,       // a touches a register of D while a product of b may still change it
  kNoProductFence,  // a issues a product after b touched its registers, with no wgmma.fence
  kStillReading,    // a ends while its bulk store may still read shared memory
  kTwoGroups,  // a arrives at barrier `lane`, where b has with other warps, and nothing orders them
  kWrongSwizzle  // a multiplies what a box of b wrote with another swizzle (`lane`, `bytes`)
};

// Memory that a finding speaks of: the number of an argument, or one of these.
constexpr std::uint32_t kShared = ~0u, kNowhere = ~0u - 1;

// Whether both sides of a race wrote the same.
enum Values : std::uint32_t { kUnknown, kSame, kDiffer };

struct Side {
  std::uint64_t where;
  Index thread, block;
  std::uint32_t kind;  // bits of Access
};

struct Finding {
  std::uint32_t kind, region, bytes;
  std::uint32_t lane;    // that a shuffle wanted; of two writes, kSame or kDiffer
  std::uint32_t launch;  // from 1
  std::uint32_t owner;   // number of the block whose shared memory it is
  std::uint64_t address;
  std::int64_t offset;  // in the region; of two barriers, whether they are two calls; of an absent
                        // lane, whether the value is one of those that a tree does not use
  Side a, b;
  std::uint64_t count;
  std::uint32_t missing;  // of a race between blocks: a Missing
};

class Findings {
 public:
  static constexpr std::size_t kMost = 256;

  void clear() {
    all_.clear();
    seen_.clear();
  }
  // Of the finding that `key` names: each time it occurred, both wrote the same.
  void settle(std::uint64_t key, bool same) {
    const auto at = seen_.find(key);
    if (at == seen_.end() || at->second >= all_.size()) return;
    std::uint32_t &values = all_[at->second].lane;
    values = same && values != kDiffer ? kSame : kDiffer;
  }
  std::uint64_t add(const Finding &f) {
    const std::uint64_t key = (f.a.where * 0x9e3779b97f4a7c15u ^ f.b.where) * 32 + f.kind;
    const auto [at, fresh] = seen_.try_emplace(key, all_.size());
    if (!fresh) {
      if (at->second < all_.size()) ++all_[at->second].count;
      return key;
    }
    if (all_.size() == kMost) return key;
    all_.push_back(f);
    all_.back().count = 1;
    return key;
  }
  const std::vector<Finding> &all() const { return all_; }

 private:
  std::vector<Finding> all_;
  std::unordered_map<std::uint64_t, std::size_t> seen_;
};

}  // namespace kw::emulator

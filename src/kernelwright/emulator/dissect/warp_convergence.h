// Groups the executions of a warp's lanes: the emulator runs lanes as fibers, one after another,
// whereas a GPU runs them together.
//
// Lanes execute together if they execute the same instruction in the same iteration of the same
//     loops, counted from the last point at which all live lanes of the warp met (a barrier, or a
//     warp operation with a full mask). A loop is detected when a lane returns to a basic block;
//     its blocks are learned from the iterations of all lanes. Hence the first lane that takes a
//     side of a branch only in a later iteration is counted as if it were outside the loop.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace kw::emulator {

inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  a = (a ^ b) * 0x9e3779b97f4a7c15u;
  return a ^ a >> 29;
}

// The blocks of each loop, by the number of the block that it returns to.
class Loops {
 public:
  void add(std::uint32_t head, std::uint32_t block) {
    if (head >= blocks_.size()) blocks_.resize(head + 1);
    if (block >= blocks_[head].size()) blocks_[head].resize(block + 1);
    blocks_[head][block] = true;
  }
  bool holds(std::uint32_t head, std::uint32_t block) const {
    return head < blocks_.size() && block < blocks_[head].size() && blocks_[head][block];
  }

 private:
  std::vector<std::vector<bool>> blocks_;
};

// The position of a lane: its iteration in each of the loops around it.
class Lane {
 public:
  std::uint64_t turns = 0;      // iterations of all loops that contain its block, as one number
  std::uintptr_t block = 0;     // the current basic block
  std::uint32_t execution = 0;  // the warp's execution of that block

  void converge() { path_.clear(), loops_.clear(), turns = 0; }

  // Enters the block `next`, whose number is `number`.
  void enter(std::uintptr_t next, std::uint32_t number, Loops &loops) {
    block = next;
    if (number >= at_.size()) at_.resize(number + 1);
    const std::uint32_t at = at_[number];
    if (at < path_.size() && path_[at].block == number) {
      for (std::size_t i = at; i < path_.size(); ++i) loops.add(number, path_[i].block);
      path_.resize(at + 1);
      while (!loops_.empty() && loops_.back() > at) loops_.pop_back();
      if (!path_[at].turn++) loops_.push_back(at);
    } else {
      at_[number] = static_cast<std::uint32_t>(path_.size());
      path_.push_back({number, 0});
    }
    turns = 0;
    for (const std::uint32_t i : loops_) {
      const Passed &head = path_[i];
      if (loops.holds(head.block, number)) turns = mixed(mixed(turns, head.block + 1), head.turn);
    }
  }

 private:
  struct Passed {
    std::uint32_t block, turn;
  };
  std::vector<Passed> path_;          // the blocks that it passed through, each once
  std::vector<std::uint32_t> loops_;  // positions on the path to which it returned
  std::vector<std::uint32_t> at_;     // the position of each block on the path, if any
};

// A map from keys to numbers that can be cleared in constant time.
class Table {
 public:
  Table() : slots_(256) {}
  // The number of a key; `fresh` if the key is new.
  std::uint32_t &at(std::uint64_t key, std::uint32_t fresh) {
    if (used_ * 2 > slots_.size()) grow();
    Slot &s = find(key);
    if (s.age != age_) s = {key, age_, fresh}, ++used_;
    return s.number;
  }
  void clear() { ++age_, used_ = 0; }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t age = 0, number = 0;
  };
  Slot &find(std::uint64_t key) {
    std::size_t i = mixed(key, 0) & (slots_.size() - 1);
    while (slots_[i].age == age_ && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    return slots_[i];
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 4);
    old.swap(slots_);
    for (const Slot &s : old)
      if (s.age == age_) find(s.key) = s;
  }
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::uint32_t age_ = 1;
};

}  // namespace kw::emulator

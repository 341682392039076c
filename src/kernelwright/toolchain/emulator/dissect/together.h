// Which executions of the lanes of a warp are one: lanes run as fibers, one after the other, and a
// GPU runs them together.
//
// Lanes are together where they execute the same instruction in the same turn of the same loops,
// counted from the last point where all live lanes of the warp have met (a barrier, a warp
// operation under a full mask). Loops are seen as jumps back in the code.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace kw::emulator {

inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  a = (a ^ b) * 0x9e3779b97f4a7c15u;
  return a ^ a >> 29;
}

// Where a lane is: in which turn of which loops.
struct Lane {
  struct Loop {
    std::uintptr_t head, last;  // its first block and the last that jumped back
    std::uint64_t turn;
  };
  std::array<Loop, 16> loops;
  unsigned depth = 0;
  std::uint64_t turns = 0;      // of all loops, as one number
  std::uintptr_t block = 0;     // the basic block that it is in
  std::uint32_t execution = 0;  // its warp's, of that block

  void meet() { depth = 0, turns = 0; }

  void enter(std::uintptr_t next) {
    const unsigned before = depth;
    bool changed = false;
    if (block && next <= block) {
      while (depth && loops[depth - 1].head > next) --depth;
      if (depth && loops[depth - 1].head == next) {
        Loop &l = loops[depth - 1];
        ++l.turn;
        if (block > l.last) l.last = block;
      } else if (depth < loops.size()) {
        loops[depth++] = {next, block, 1};
      }
      changed = true;
    } else {
      while (depth && next > loops[depth - 1].last) --depth;
    }
    block = next;
    if (!changed && depth == before) return;
    turns = 0;
    for (unsigned i = 0; i < depth; ++i) turns = mixed(mixed(turns, loops[i].head), loops[i].turn);
  }
};

// Numbers by key; forgets all of them at once.
class Table {
 public:
  Table() : slots_(256) {}
  // The number under a key; `fresh` where there is none.
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

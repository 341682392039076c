// Shadow memory of each 4 bytes: the last writer, two readers since then, the bytes ever written.
#pragma once
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <deque>

#include "order.h"

namespace kw::emulator {

// In Cell::written: one bit for each byte that has been written, and one for each byte that was
// first written by a volatile write of the current launch.
constexpr unsigned kEver = 15, kFirst = 4;

// Four bytes, or one byte of four that were accessed in smaller pieces.
struct Cell {
  std::uint32_t turn;   // the launch, or the block for shared memory, that the events are of
  std::uint32_t split;  // 0, or the number of its four bytes' cells
  std::uint32_t written;
  Event write, reads[2];
};

// The cells of a range of memory; zero where it has not been accessed.
class Shadow {
 public:
  Shadow(std::uintptr_t start, std::uintptr_t end) : first_(start / 4) {
    bytes_ = (end / 4 + 1 - first_) * sizeof(Cell);
    void *memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cells_ = memory == MAP_FAILED ? nullptr : static_cast<Cell *>(memory);
  }
  ~Shadow() {
    if (cells_) munmap(cells_, bytes_);
  }
  Shadow(const Shadow &) = delete;

  // visit(cell, bytes of it as bits) for each cell of an access.
  template <typename Visit> void each(std::uintptr_t at, unsigned bytes, const Visit &visit) {
    if (!cells_) return;
    const std::uintptr_t end = at + bytes;
    while (at < end) {
      Cell &cell = cells_[at / 4 - first_];
      const unsigned from = at % 4,
                     to = static_cast<unsigned>(std::min<std::uintptr_t>(4, from + end - at));
      if (!cell.split && to - from < 4) divide(cell);
      if (!cell.split)
        visit(cell, 15u);
      else
        for (unsigned i = from; i < to; ++i) visit(parts_[cell.split - 1][i], 1u);
      at += to - from;
    }
  }

 private:
  void divide(Cell &cell) {
    std::array<Cell, 4> bytes;
    bytes.fill(cell);
    for (unsigned i = 0; i < 4; ++i)
      bytes[i].written = cell.written >> i & 1 | (cell.written >> kFirst >> i & 1) << kFirst;
    parts_.push_back(bytes);
    cell.split = static_cast<std::uint32_t>(parts_.size());
  }

  std::uintptr_t first_;
  std::size_t bytes_;
  Cell *cells_;
  std::deque<std::array<Cell, 4>> parts_;
};

}  // namespace kw::emulator

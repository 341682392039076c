// The memory that a launch may access, and the lookup of an address in it.
#pragma once
#include <link.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "shadow.h"

namespace kw::emulator {

// An argument's memory, or a variable in shared memory (where `start` is an offset).
struct Region {
  std::uintptr_t start, end;
  std::uint32_t number;
  bool written;               // by the caller
  const unsigned char *part;  // 0 for each byte between the tensor's elements; or null
  Shadow *cells;
};

inline const Region *find(std::vector<Region> &all, std::uintptr_t at) {
  const auto after = std::upper_bound(
      all.begin(), all.end(), at, [](std::uintptr_t x, const Region &r) { return x < r.start; });
  if (after == all.begin()) return nullptr;
  const Region &r = *(after - 1);
  return at < r.end ? &r : nullptr;
}

// Constants of the library that holds the code: tables, strings.
inline bool in_library(const void *address, const void *where) {
  struct Asked {
    std::uintptr_t address, where;
    bool yes;
  } asked = {reinterpret_cast<std::uintptr_t>(address), reinterpret_cast<std::uintptr_t>(where),
             false};
  dl_iterate_phdr(
      [](dl_phdr_info *info, std::size_t, void *data) {
        auto &a = *static_cast<Asked *>(data);
        bool code = false, memory = false;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto &p = info->dlpi_phdr[i];
          const std::uintptr_t at = info->dlpi_addr + p.p_vaddr;
          if (p.p_type != PT_LOAD) continue;
          code |= a.where >= at && a.where < at + p.p_memsz;
          memory |= a.address >= at && a.address < at + p.p_memsz;
        }
        a.yes |= code && memory;
        return code ? 1 : 0;
      },
      &asked);
  return asked.yes;
}

// Whether an address belongs to memory that a kernel has allocated. The C library allocates for
// threads other than the first in pieces that begin at multiples of 64 MiB.
inline bool in_device_heap(std::uintptr_t at) {
  constexpr std::uintptr_t kPiece = std::uintptr_t(64) << 20;
  static std::vector<std::uintptr_t> known;
  const std::uintptr_t piece = at / kPiece * kPiece;
  if (std::find(known.begin(), known.end(), piece) != known.end()) return true;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t start = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx rw", &start, &end) != 2 || start != piece) continue;
    if (at >= end || line.find('/') != std::string::npos) return false;
    known.push_back(piece);
    return true;
  }
  return false;
}

inline bool between_elements(const Region &r, std::uintptr_t at, unsigned bytes) {
  for (unsigned i = 0; r.part && i < bytes; ++i)
    if (!r.part[at + i - r.start]) return true;
  return false;
}

}  // namespace kw::emulator

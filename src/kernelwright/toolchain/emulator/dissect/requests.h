// What one warp-wide access costs: 32-byte sectors of global memory, passes through the banks of
// shared memory.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace kw::emulator {

constexpr unsigned kSector = 32, kBanks = 32, kBankBytes = 4;

// The access of one instruction by the lanes of a warp that execute it together.
struct Request {
  std::uint32_t lanes = 0;  // a bit each
  std::uint32_t bytes = 0;  // of each lane
  std::array<std::uintptr_t, 32> address;

  template <typename Visit> void each(std::uint32_t among, Visit visit) const {
    for (std::uint32_t left = lanes & among; left; left &= left - 1)
      visit(address[static_cast<unsigned>(__builtin_ctz(left))]);
  }
};

// Visits the distinct sectors that a request touches.
template <typename Visit> void each_sector(const Request &r, Visit visit) {
  std::array<std::uintptr_t, 256> sectors;
  unsigned count = 0;
  bool sorted = true;
  r.each(~0u, [&](std::uintptr_t at) {
    for (std::uintptr_t s = at / kSector; s <= (at + r.bytes - 1) / kSector; ++s) {
      if (count && s == sectors[count - 1]) continue;
      if (count == sectors.size()) return;
      sorted &= !count || s > sectors[count - 1];
      sectors[count++] = s;
    }
  });
  if (!sorted) std::sort(sectors.begin(), sectors.begin() + count);
  const auto end =
      sorted ? sectors.begin() + count : std::unique(sectors.begin(), sectors.begin() + count);
  std::for_each(sectors.begin(), end, visit);
}

// How often shared memory must be asked: each bank gives one 4-byte word a pass, to all lanes that
// want it. Accesses of 8 bytes go by half warps and those of 16 by quarters: 128 bytes a pass.
struct Passes {
  unsigned taken, least;
};

inline unsigned passes_of(const Request &r, std::uint32_t among) {
  std::array<std::array<std::uintptr_t, 128>, kBanks> words;
  std::array<unsigned, kBanks> count{};
  unsigned most = 0;
  r.each(among, [&](std::uintptr_t at) {
    for (std::uintptr_t w = at / kBankBytes; w <= (at + r.bytes - 1) / kBankBytes; ++w) {
      auto &bank = words[w % kBanks];
      unsigned &n = count[w % kBanks];
      if (std::find(bank.begin(), bank.begin() + n, w) != bank.begin() + n) continue;
      if (n < bank.size()) bank[n++] = w;
      most = std::max(most, n);
    }
  });
  return most;
}

inline Passes passes_of(const Request &r) {
  const unsigned lanes = r.bytes > 8 ? 8 : r.bytes > 4 ? 16 : 32;
  Passes sum = {0, 0};
  for (unsigned first = 0; first < 32; first += lanes) {
    const std::uint32_t among = (lanes == 32 ? ~0u : (1u << lanes) - 1) << first;
    if (!(r.lanes & among)) continue;
    sum.taken += passes_of(r, among);
    sum.least += 1;
  }
  return sum;
}

}  // namespace kw::emulator

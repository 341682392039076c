// The cost of one access of a warp: 32-byte sectors of global memory, or passes through the banks
// of shared memory.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace kw::emulator {

constexpr unsigned kSector = 32, kBanks = 32, kBankBytes = 4;

// The access of one instruction by the lanes of a warp that execute it together.
struct Request {
  std::uint32_t lanes = 0;  // one bit per lane
  std::uint32_t bytes = 0;  // per lane
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

// Passes through shared memory: in a pass, each bank delivers one 4-byte word to all lanes that
// request it. Accesses of 8 bytes are done by half warps and of 16 bytes by quarter warps, 128
// bytes per pass, unless lanes request the same bytes. `bytes`: distinct bytes.
struct Passes {
  unsigned taken, least, bytes;
};

// Whether each lane's neighbor (whose number differs in one bit) requests the same bytes or is
// idle.
inline bool shared_with(const Request &r, unsigned bit) {
  for (unsigned i = 0; i < 32; ++i) {
    const bool both = r.lanes >> i & 1 && r.lanes >> (i ^ bit) & 1;
    if (both && r.address[i] != r.address[i ^ bit]) return false;
  }
  return true;
}

// The number of passes for some of the lanes, which are served together.
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

inline unsigned distinct_bytes(const Request &r) {
  std::array<std::uintptr_t, 32> starts;
  unsigned count = 0;
  r.each(~0u, [&](std::uintptr_t at) { starts[count++] = at; });
  std::sort(starts.begin(), starts.begin() + count);
  return static_cast<unsigned>(std::unique(starts.begin(), starts.begin() + count) -
                               starts.begin()) *
         r.bytes;
}

inline Passes passes_of(const Request &r) {
  unsigned lanes = r.bytes > 8 ? 8 : r.bytes > 4 ? 16 : 32;
  if (lanes < 32 && (shared_with(r, 1) || shared_with(r, 2))) lanes *= 2;
  Passes sum = {0, 0, distinct_bytes(r)};
  for (unsigned first = 0; first < 32; first += lanes) {
    const std::uint32_t among = (lanes == 32 ? ~0u : (1u << lanes) - 1) << first;
    if (!(r.lanes & among)) continue;
    sum.taken += passes_of(r, among);
    sum.least += 1;
  }
  return sum;
}

}  // namespace kw::emulator

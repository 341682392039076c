// What is known only after an access: whether a racing write changes the value, and which
// asynchronous copies have been waited for.
#pragma once
#include <cstring>
#include <vector>

#include "findings.h"

namespace kw::emulator {

// An asynchronous copy that has not been waited for.
struct Pending {
  const unsigned char *to;
  unsigned bytes;
  Side by;
  const Thread *thread;
};
using Copies = std::vector<Pending>;

// A write that races with another one; whether it changes the value is known only later.
struct Unsettled {
  std::uint64_t key;
  const void *address;
  unsigned bytes;
  unsigned char before[16];

  void settle(Findings &findings) {
    if (!bytes) return;
    findings.settle(key, !std::memcmp(before, address, bytes));
    bytes = 0;
  }
};

// A pending copy that may still write to any of the `bytes` bytes at `at`; null if there is none.
inline const Pending *find(const Copies &copies, const Block *block, const void *at,
                           unsigned bytes) {
  const auto *from = static_cast<const unsigned char *>(at);
  for (const Pending &p : copies)
    if (p.thread->block == block && from < p.to + p.bytes && from + bytes > p.to) return &p;
  return nullptr;
}

inline void end(Copies &copies, const Thread &t, const void *to, unsigned bytes) {
  for (auto p = copies.begin(); p != copies.end(); ++p)
    if (p->thread == &t && p->to == to && p->bytes == bytes) {
      copies.erase(p);
      return;
    }
}

}  // namespace kw::emulator

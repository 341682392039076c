// The observer for the pictures of data movement: every access of the first warp of the first
// block, in the order in which the lanes make them. It observes launches with one worker.
#include "runtime.h"

#include <cstdint>
#include <vector>

namespace kw::emulator {
namespace {

constexpr std::size_t kMost = 1u << 20;

// An access. `address`: for shared memory, the offset from the start of the block's; `shared`: 1
// for shared memory, else 0.
struct Event {
  std::uint64_t where, address;
  std::uint32_t lane, bytes, kind, shared;
};

std::vector<Event> events;

void access(Thread &t, const void *address, unsigned bytes, unsigned kind, const void *where) {
  const Block &b = *t.block;
  if (b.index.x || b.index.y || b.index.z || t.warp() || events.size() == kMost) return;
  auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto start = reinterpret_cast<std::uintptr_t>(b.shared);
  const bool shared = b.shared && at >= start && at < start + b.shared_bytes + b.dynamic_bytes;
  if (shared) at -= start;
  events.push_back({reinterpret_cast<std::uintptr_t>(where), at, t.lane(), bytes, kind, shared});
}

const Observer observer = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                           nullptr, nullptr, access,  nullptr, nullptr, nullptr};

}  // namespace
}  // namespace kw::emulator

using namespace kw::emulator;

#pragma GCC visibility push(default)
extern "C" {
const Observer *kw_trace_observer() { return &observer; }
void kw_trace_begin() { events.clear(); }
const Event *kw_trace_events(std::size_t *count) {
  *count = events.size();
  return events.data();
}
}
#pragma GCC visibility pop

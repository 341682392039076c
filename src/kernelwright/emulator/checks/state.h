// What the checks store about a call: its memory and the threads that accessed it, instructions by
// number, and the names of threads, blocks and events. Included only by checks.cpp.
#pragma once
#include <map>

#include "findings.h"
#include "deferred_checks.h"
#include "mbarrier_order.h"
#include "regions.h"
#include "volatile_order.h"

namespace kw::emulator {
namespace {

enum Check : unsigned { kRaces = 1, kBounds = 2, kInit = 4, kDivergence = 8, kExits = 16 };

struct Place {
  const void *where;
  const Region *region;  // the region of the last access
};

unsigned wanted;
unsigned char fill;  // of uninitialized shared memory
Findings findings;
Order order;
VolatileOrder volatile_order;
MbarrierOrder mbarriers;
std::map<std::pair<std::uintptr_t, std::uintptr_t>, std::unique_ptr<Shadow>> shadows;
std::vector<Region> regions;    // of this launch, by address
std::vector<Region> variables;  // static __shared__ ones
const unsigned char *shared_start, *shared_end;
std::uint32_t launch_turn;
// The shared memory of each block of a cluster.
struct Memory {
  std::unique_ptr<Shadow> cells;
  std::uint32_t turn;
} memories[kMostBlocks];
std::uint32_t turns;
std::vector<Place> places;  // instructions, by number
std::vector<std::uint32_t> place_table;
Copies pending;
Unsettled unsettled;
// The warps that have arrived at a numbered barrier since it was last complete, and those before.
struct Arrivals {
  std::map<unsigned, Event> now, before;
};
std::map<std::pair<unsigned, unsigned>, Arrivals> arrivals;  // by block of the cluster and barrier
bool stores_same;  // the bulk store that begins writes what others have stored there
std::vector<std::uint64_t> sync_points;  // instructions of barriers and fences that had an effect

std::uint32_t place_of(const void *where) {
  if (places.size() * 2 >= place_table.size()) {
    place_table.assign(place_table.empty() ? 4096 : place_table.size() * 4, 0);
    if (places.empty()) places.push_back({});
    const auto known = places;
    places.resize(1);
    for (std::size_t i = 1; i < known.size(); ++i) place_of(known[i].where);
  }
  const std::size_t mask = place_table.size() - 1;
  std::size_t i = reinterpret_cast<std::uintptr_t>(where) * 0x9e3779b97f4a7c15u >> 20 & mask;
  for (;; i = (i + 1) & mask) {
    if (!place_table[i]) {
      place_table[i] = static_cast<std::uint32_t>(places.size());
      places.push_back({where, nullptr});
    }
    if (places[place_table[i]].where == where) return place_table[i];
  }
}

void note_sync_point(const void *where) {
  const auto at = reinterpret_cast<std::uint64_t>(where);
  if (std::find(sync_points.begin(), sync_points.end(), at) == sync_points.end())
    sync_points.push_back(at);
}

Index unfold(std::uint64_t i, const Index &size) {
  return {unsigned(i % size.x), unsigned(i / size.x % size.y), unsigned(i / size.x / size.y)};
}
// In the kind of an access that is being checked, and of a side: asynchronous hardware does it.
constexpr unsigned kEngine = 16;

Side side_of(const Thread &t, const void *where, unsigned kind) {
  return {reinterpret_cast<std::uint64_t>(where), t.index, t.block->index, kind};
}
Side side_of(const Event &e, const Block &b) {
  const bool engine = e.kind & kSent && e.kind & kVolatile;
  return {reinterpret_cast<std::uint64_t>(places[e.code].where), unfold(e.thread, b.size),
          unfold(e.kind & kSent ? e.clock : e.block, b.grid),
          engine ? (e.kind & ~unsigned(kVolatile)) | kEngine : unsigned(e.kind)};
}
std::uint32_t number_of(const Block &b) {
  return b.index.x + b.grid.x * (b.index.y + b.grid.y * b.index.z);
}

// An access that is being checked.
struct Seen {
  Thread &t;
  const void *address, *where;
  unsigned bytes, kind;
  std::uint32_t region;
  std::uintptr_t start;  // of the region's memory
  const Block *owner;    // the block whose shared memory it is

  Finding finding(std::uint32_t what) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return {what,
            region,
            bytes,
            0,
            launch_turn,
            number_of(*owner),
            at,
            static_cast<std::int64_t>(at - start),
            side_of(t, where, kind),
            {},
            0};
  }
};

}  // namespace
}  // namespace kw::emulator

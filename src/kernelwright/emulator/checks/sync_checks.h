// Checks of barriers, warp-wide operations and fences, and of what involves no memory:
// uninitialized variables and indices. Included only by checks.cpp.
#pragma once
#include "state.h"

namespace kw::emulator {
namespace {

// A finding that involves no memory.
Finding about(std::uint32_t what, const Side &a, const Side &b = {}) {
  Finding f = {};
  f.kind = what, f.region = kNowhere, f.launch = launch_turn;
  f.a = a, f.b = b;
  return f;
}

// Finds threads of the block that ended before this barrier.
void look_at_exits(const Block &b, const Thread &first) {
  unsigned ended = 0, which = 0;
  for (unsigned i = 0; i < b.count; ++i)
    if (b.threads[i].wait == kNothing) ++ended, which = i;
  if (!ended) return;
  Finding f =
      about(kAfterExit, side_of(first, first.where, 0), side_of(b.threads[which], nullptr, 0));
  f.lane = ended;
  findings.add(f);
}

void barrier(Block &b) {
  unsettled.settle(findings);
  order.barrier(b);
  const Thread *first = nullptr;
  for (unsigned i = 0; i < b.count; ++i) {
    const Thread &t = b.threads[i];
    if (t.wait == kNothing) continue;
    if (!first) {
      note_sync_point((first = &t)->where);
      if (wanted & kExits) look_at_exits(b, t);
    }
    if ((t.where == first->where && t.call == first->call) || !(wanted & kDivergence)) continue;
    Finding f = about(kTwoBarriers, side_of(*first, first->where, 0), side_of(t, t.where, 0));
    f.offset = t.call != first->call;
    findings.add(f);
  }
}

// Finds lanes in the mask that ended before this operation.
void look_at_mask(const Thread &first, unsigned lanes, const Thread *warp) {
  const unsigned of_block = std::min(32u, first.block->count - first.number / 32 * 32);
  const unsigned all = of_block == 32 ? ~0u : (1u << of_block) - 1;
  const unsigned ended = first.mask & all & ~lanes;
  if (!ended) return;
  Finding f = about(kLanesEnded, side_of(first, first.where, 0),
                    side_of(warp[__builtin_ctz(ended)], nullptr, 0));
  f.lane = static_cast<std::uint32_t>(__builtin_popcount(ended));
  findings.add(f);
}

// Whether each lane reads the one a fixed distance above it, and the lowest lane's is there: with a
// mask that leaves out the lanes that take no part, only sums that are not used contain theirs.
bool is_tree(const Thread *warp, unsigned lanes) {
  const unsigned low = __builtin_ctz(lanes), distance = warp[low].source - low;
  if (!distance || distance > 31 || !(lanes >> warp[low].source & 1)) return false;
  for (unsigned left = lanes; left; left &= left - 1) {
    const unsigned lane = __builtin_ctz(left), from = warp[lane].source;
    if (from != lane && from - lane != distance) return false;
  }
  return true;
}

void warp(Thread &first, unsigned lanes) {
  if (first.wait == kSyncwarp) {
    order.syncwarp(first, lanes);
    note_sync_point(first.where);
  }
  if (!(wanted & kDivergence)) return;
  const Thread *const warp = first.block->threads + first.number / 32 * 32;
  if (wanted & kExits && first.wait != kActivemask && first.wait != kTogether)
    look_at_mask(first, lanes, warp);
  if (first.wait != kShuffle) return;
  for (unsigned left = lanes; left; left &= left - 1) {
    const Thread &t = warp[__builtin_ctz(left)];
    if (lanes >> t.source & 1) continue;
    Finding f = about(kAbsentLane, side_of(t, t.where, 0));
    f.lane = t.source;
    f.offset = !(t.mask >> t.source & 1) && is_tree(warp, lanes);
    findings.add(f);
  }
}

void fence(Thread &t, unsigned scope, const void *where) {
  order.fence(t, scope);
  note_sync_point(where);
}

// Finds warps that arrive at a numbered barrier while others may still be arriving at it.
void look_at_arrivals(const Thread &t, unsigned which, const void *where) {
  if (!(wanted & kDivergence)) return;
  Arrivals &all = arrivals[{t.block->rank, which}];
  if (!all.before.count(t.warp()))
    for (const auto &[warp, event] : all.before) {
      if (order.before(event, t)) continue;
      Finding f = about(kTwoGroups, side_of(t, where, 0), side_of(event, *t.block));
      f.lane = which;
      findings.add(f);
      break;
    }
  all.now[t.warp()] = order.event(t, kRead, place_of(where));
}

void named(Thread &t, unsigned which, Named what, const void *where) {
  if (what == kArrives) {
    look_at_arrivals(t, which, where);
    order.arrive_at(t, which);
    note_sync_point(where);
  } else if (what == kPasses) {
    order.pass(t, which);
  } else {
    order.complete(t, which);
    Arrivals &all = arrivals[{t.block->rank, which}];
    all.before = std::move(all.now);
    all.now.clear();
  }
}

void unset(Thread &t, const char *name, unsigned bytes, const void *where) {
  if (!(wanted & kInit)) return;
  Finding f = about(kNoValue, side_of(t, where, kRead));
  f.bytes = bytes, f.address = reinterpret_cast<std::uint64_t>(name);
  findings.add(f);
}

void index(Thread &t, std::uint64_t i, std::uint64_t size, const void *where) {
  if (!(wanted & kBounds)) return;
  Finding f = about(kIndex, side_of(t, where, 0));
  f.offset = static_cast<std::int64_t>(i), f.address = size;
  findings.add(f);
}

}  // namespace
}  // namespace kw::emulator

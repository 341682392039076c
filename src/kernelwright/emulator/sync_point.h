// Synchronization of threads: barriers of a block, operations of a warp.
#pragma once
#include <algorithm>

#include "fibers.h"

namespace kw::emulator {
namespace {

// ---- barriers of the block

// All live threads are at the barrier: releases them. Each reports this itself when it runs.
void release(Running &b) {
  if (b.mixed)
    fail(*b.by, "block " + place(b.index) + " has threads at different barriers:" + waiting(*b.by));
  if (b.launch->observer && b.launch->observer->barrier) b.launch->observer->barrier(b);
  b.result = b.kind == kBarrierCount ? b.sum
             : b.kind == kBarrierAnd ? b.conjunction
                                     : b.disjunction;
  b.arrived = 0;
  b.sum = b.disjunction = 0, b.conjunction = 1;
  b.kind = kNothing;
  for (unsigned i = 0; i < (b.count + 31) / 32; ++i)
    b.ready[i / 2] |= std::uint64_t(b.warps[i].live) << i % 2 * 32;
}

// ---- operations of a warp

// `lanes` have arrived at one operation: computes the result of each and lets them continue.
void complete(Running &b, unsigned number, unsigned lanes, Wait kind) {
  Thread *const t = b.threads + number * 32;
  if (b.launch->observer && b.launch->observer->warp)
    b.launch->observer->warp(t[__builtin_ctz(lanes)], lanes);
  const auto each = [lanes](auto visit) {
    for (unsigned left = lanes; left; left &= left - 1) visit(__builtin_ctz(left));
  };
  switch (kind) {
    case kShuffle:
      // the value that a lane reads from one that does not take part is undefined: here NaN, or -1
      each([&](int i) {
        t[i].out = lanes >> t[i].source & 1 ? t[t[i].source].in : ~std::uint64_t(0);
      });
      break;
    case kTogether: {
      if (t[__builtin_ctz(lanes)].mask != lanes)
        fail(*b.by, "block " + place(b.index) +
                        say(": the lanes 0x%08x execute an instruction of their whole warp, which "
                            "the others ended without, at @%p@",
                            lanes, t[__builtin_ctz(lanes)].call));
      void *data[32] = {};
      each([&](int i) { data[i] = reinterpret_cast<void *>(t[i].in); });
      t[__builtin_ctz(lanes)].act(data);
      break;
    }
    default:
      warp_results(
          kind, lanes, [&](int i) { return t[i].in; },
          [&](int i, std::uint64_t result) { t[i].out = result; });
  }
  each([&](int i) {
    t[i].wait = kNothing;
    ++t[i].warp_epoch;
  });
  b.warps[number].waiting &= ~lanes;
  b.ready[number / 2] |= std::uint64_t(lanes) << number % 2 * 32;
}

// Lets the lanes of `mask` continue if all live ones of them wait in this operation.
bool try_complete(Running &b, unsigned number, unsigned mask, Wait kind) {
  const Warp &warp = b.warps[number];
  const unsigned needed = mask & warp.live;
  if ((warp.waiting & needed) != needed) return false;
  for (unsigned left = needed; left; left &= left - 1) {
    const Thread &t = b.threads[number * 32 + __builtin_ctz(left)];
    if (t.wait != kind || t.mask != mask) return false;
  }
  complete(b, number, needed, kind);
  return true;
}

// The first line at which lanes of a warp wait to access volatile memory; or 0.
unsigned earliest(const Running &b, unsigned number) {
  unsigned line = 0;
  for (unsigned left = b.warps[number].waiting; left; left &= left - 1) {
    const Thread &t = b.threads[number * 32 + __builtin_ctz(left)];
    if (t.wait == kActivemask && t.source && (!line || t.source < line)) line = t.source;
  }
  return line;
}

// No thread can run: lanes that wait in __activemask at the same place get each other's bits, warp
// by warp and place by place. No GPU's scheduler could bring more of them together.
// Lanes that access volatile memory say their line as `source`: those of earlier lines continue
// first, so that the lanes of a branch reach its end before the others leave it behind. As they may
// wait for the others, all continue once in a while.
bool settle_activemasks(Running &b) {
  bool any = false;
  constexpr unsigned kTurns = 4096;
  for (unsigned number = 0; number < (b.count + 31) / 32; ++number) {
    Warp &warp = b.warps[number];
    const unsigned line = warp.waiting ? earliest(b, number) : 0;
    const bool all = line && ++warp.turns % kTurns == 0;
    for (unsigned left = warp.waiting; left;) {
      const unsigned first = __builtin_ctz(left);
      const Thread *t = b.threads + number * 32;
      unsigned same = 0;
      for (unsigned rest = left; rest; rest &= rest - 1) {
        const unsigned i = __builtin_ctz(rest);
        if (t[i].wait == t[first].wait && t[i].where == t[first].where) same |= 1u << i;
      }
      left &= ~same;
      const bool late = t[first].source > line && !all;
      if (t[first].wait == kActivemask && !late) complete(b, number, same, kActivemask), any = true;
    }
  }
  return any;
}
bool settle_activemasks(Worker &w) {
  bool any = false;
  for (unsigned i = 0; i < w.cluster; ++i) any |= settle_activemasks(w.blocks[i]);
  return any;
}

}  // namespace
}  // namespace kw::emulator

// What blocks of a cluster do with each other: their barrier, mbarriers, sends to each other's
// shared memory. Bytes that are sent are there at once.
#pragma once
#include "fibers.h"

namespace kw::emulator {
namespace {

constexpr unsigned kRankAt = 24;  // in an address, above the place in shared memory
constexpr std::int64_t kMostBytes = (1 << 20) - 1;  // that an mbarrier counts

void tell(Thread &t, const Across &step) {
  const Observer *o = t.block->launch->observer;
  if (o && o->across) o->across(t, step);
}

[[noreturn]] void fail_at(Thread &t, const void *where, const std::string &what) {
  fail(worker_of(&t), name_of(t) + " " + what + say(" at @%p@", where));
}

// ---- the cluster's barrier

// Every thread that has not ended has arrived: those that wait go on.
void release_cluster(Worker &w) {
  ++w.phase;
  w.missing = 0;
  for (unsigned r = 0; r < w.cluster; ++r) {
    Running &b = w.blocks[r];
    w.missing += b.alive;
    for (unsigned i = 0; i < b.count; ++i)
      if (b.threads[i].wait == kClusterBarrier) {
        b.threads[i].wait = kNothing;
        set(b.ready, i);
      }
  }
}

// A thread is not waited for any more: it has arrived, or ended.
void not_missing(Worker &w) {
  if (--w.missing == 0) release_cluster(w);
}

// ---- addresses

struct Place {
  Running *block;
  unsigned at;  // in its shared memory
};

// The `bytes` bytes at an address that an instruction names.
Place find(Thread &t, unsigned address, unsigned bytes, const char *what, const void *where) {
  const unsigned rank = address >> kRankAt, at = address & ((1u << kRankAt) - 1);
  Running &b = rank ? worker_of(&t).blocks[rank - 1] : running(t);
  if (!b.alive) fail_at(t, where, say("%s block ", what) + place(b.index) + ", which has ended,");
  if (at + bytes > bytes_of(b))
    fail_at(t, where,
            say("%s byte %u of the shared memory of block ", what, at) + place(b.index) +
                say(", which has %llu,", bytes_of(b)));
  if (at % bytes)
    fail_at(t, where, say("%s byte %u of shared memory, no multiple of %u,", what, at, bytes));
  return {&b, at};
}

// ---- mbarriers

// What an mbarrier's own 8 bytes hold: whoever writes there by other means destroys it.
std::uint64_t mark_of(unsigned at) { return 0x6d626172'00000000u + at; }

Mbarrier &mbarrier_of(Thread &t, Place p, const void *where) {
  const auto found = p.block->mbarriers.find(p.at);
  std::uint64_t held = 0;
  std::memcpy(&held, memory_of(worker_of(&t), *p.block) + p.at, sizeof held);
  if (found == p.block->mbarriers.end() || held != mark_of(p.at))
    fail_at(t, where,
            say("needs the mbarrier at byte %u of the shared memory of block ", p.at) +
                place(p.block->index) +
                (held == mark_of(p.at) || found == p.block->mbarriers.end()
                     ? ", which nobody has initialised,"
                     : ", which was written over,"));
  return found->second;
}

// End an mbarrier's phase if nothing is missing.
bool ends(const Mbarrier &m) { return m.pending == 0 && m.missing == 0; }
void settle(Place p, Mbarrier &m) {
  if (!ends(m)) return;
  ++m.phase;
  m.pending = m.count;
  for (unsigned i = 0; i < p.block->count; ++i) {
    Thread &t = p.block->threads[i];
    if (t.wait != kMbarrier || t.in != p.at || (m.phase & 1) == t.source) continue;
    t.wait = kNothing;
    set(p.block->ready, i);
  }
}

// Bytes that are expected, or have come (negative).
void count(Thread &t, Mbarrier &m, std::int64_t bytes, const void *where) {
  m.missing += bytes;
  if (m.missing > kMostBytes || m.missing < -kMostBytes)
    fail_at(t, where, "has an mbarrier count more than 1048575 bytes");
}

}  // namespace
}  // namespace kw::emulator

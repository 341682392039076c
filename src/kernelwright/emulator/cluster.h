// Cooperation of the blocks of a cluster: its barrier, mbarriers and stores to the shared memory of
// other blocks, and the functions that kernels call for them. Stored bytes arrive immediately.
#pragma once
#include "fibers.h"

namespace kw::emulator {
namespace {

constexpr unsigned kRankAt = 24;  // the block's rank, above the offset in shared memory
constexpr std::int64_t kMostBytes = (1 << 20) - 1;  // the maximum that an mbarrier counts

void tell(Thread &t, const Across &step) {
  const Observer *o = t.block->launch->observer;
  if (o && o->across) observed(t, step.where, [&] { o->across(t, step); });
}

[[noreturn]] void fail_at(Thread &t, const void *where, const std::string &what) {
  fail(worker_of(&t), name_of(t) + " " + what + say(" at @%p@", where));
}

// ---- the cluster's barrier

// All threads that have not ended have arrived: releases the waiting ones.
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

// A thread has arrived or ended, so the barrier no longer waits for it.
void not_missing(Worker &w) {
  if (--w.missing == 0) release_cluster(w);
}

// ---- addresses

struct Place {
  Running *block;
  unsigned at;  // offset in its shared memory
};

// The `bytes` bytes at the address operand of an instruction.
Place find(Thread &t, unsigned address, unsigned bytes, const char *what, const void *where) {
  address = kw_shared_of_low(address);
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

// The contents of an mbarrier's 8 bytes; any other write to them destroys the mbarrier.
std::uint64_t mark_of(unsigned at) { return 0x6d626172'00000000u + at; }

Mbarrier &mbarrier_of(Thread &t, Place p, const void *where) {
  const auto entry = p.block->mbarriers.find(p.at);
  std::uint64_t held = 0;
  std::memcpy(&held, memory_of(worker_of(&t), *p.block) + p.at, sizeof held);
  if (entry == p.block->mbarriers.end() || held != mark_of(p.at))
    fail_at(t, where,
            say("needs the mbarrier at byte %u of the shared memory of block ", p.at) +
                place(p.block->index) +
                (held == mark_of(p.at) || entry == p.block->mbarriers.end()
                     ? ", which is not initialized,"
                     : ", which was written over,"));
  return entry->second;
}

// Ends an mbarrier's phase if no arrivals and no bytes are pending.
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

// Bytes that are expected (positive) or have arrived (negative).
void count(Thread &t, Mbarrier &m, std::int64_t bytes, const void *where) {
  m.missing += bytes;
  if (m.missing > kMostBytes || m.missing < -kMostBytes)
    fail_at(t, where, "has an mbarrier count more than 1048575 bytes");
}

}  // namespace
}  // namespace kw::emulator

using namespace kw::emulator;

unsigned kw_cluster_rank() { return kw_current->block->rank; }

unsigned kw_shared_of_low(unsigned low) {
  const Block &b = *kw_current->block;
  const auto base = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(b.shared));
  const bool own = low - base < b.shared_bytes + b.dynamic_bytes;
  return own && low >= b.shared_bytes + b.dynamic_bytes ? low - base : low;
}

unsigned kw_shared_address(const void *p) {
  Thread *t = kw_current;
  // a number made a pointer: no generic address is so small
  if (const auto low = reinterpret_cast<std::uintptr_t>(p); low < bytes_of(*t->block)) return low;
  const auto at = static_cast<const unsigned char *>(p) - t->block->shared;
  if (at < 0 || at >= static_cast<long long>(bytes_of(*t->block)))
    fail_at(*t, HERE,
            say("takes the address of byte %lld of shared memory, of which it has %llu,",
                static_cast<long long>(at), bytes_of(*t->block)));
  return static_cast<unsigned>(at);
}

unsigned kw_mapa(unsigned address, unsigned rank) {
  Thread *t = kw_current;
  if (rank >= t->block->cluster)
    fail_at(*t, HERE, say("asks for block %u of a cluster that has %u", rank, t->block->cluster));
  return (address & ((1u << kRankAt) - 1)) | (rank + 1) << kRankAt;
}

void kw_cluster_arrive(bool relaxed) {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  w.busy = true;
  if (t->arrivals != t->phase)
    fail_at(*t, HERE, "arrives at the cluster's barrier again before it has waited there");
  tell(*t, {relaxed ? kArriveRelaxed : kArrive, HERE, t->block, 0, 0, 0, 0, false});
  ++w.progress;
  ++t->arrivals;
  not_missing(w);
  w.busy = false;
}

void kw_cluster_wait() {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  w.busy = true;
  if (t->arrivals == t->phase)
    fail_at(*t, HERE, "waits at the cluster's barrier, where it has not arrived,");
  ++w.progress;
  if (w.phase == t->phase) {
    t->wait = kClusterBarrier;
    t->where = HERE;
    wait(w, t);
  }
  ++t->phase;
  tell(*t, {kPass, HERE, t->block, 0, 0, 0, 0, false});
  w.busy = false;
}

void kw_mbarrier_init(unsigned address, unsigned count) {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  w.busy = true;
  const Place p = find(*t, address, 8, "initializes an mbarrier at", HERE);
  tell(*t, {kInitialise, HERE, p.block, p.at, 0, 0, 0, false});
  p.block->mbarriers[p.at] = {count, count, 0, 0};
  const std::uint64_t mark = mark_of(p.at);
  std::memcpy(memory_of(w, *p.block) + p.at, &mark, sizeof mark);
  w.busy = false;
}

void kw_mbarrier_init_fence() {
  Thread *t = kw_current;
  tell(*t, {kPublish, HERE, t->block, 0, 0, 0, 0, false});
}

namespace kw::emulator {
namespace {
constexpr unsigned kPendingAt = 32;
std::uint64_t arrive(Thread &t, unsigned address, unsigned arrivals, unsigned bytes, bool drops,
                     const void *where) {
  Worker &w = worker_of(&t);
  w.busy = true;
  const Place p = find(t, address, 8, "arrives at", where);
  Mbarrier &m = mbarrier_of(t, p, where);
  if (m.pending < arrivals)
    fail_at(t, where,
            say("arrives at an mbarrier that has all %u of phase %u and waits for "
                "%lld bytes,",
                m.count, m.phase, static_cast<long long>(m.missing)));
  const std::uint64_t state = m.phase | std::uint64_t(m.pending) << kPendingAt;
  count(t, m, bytes, where);
  m.pending -= arrivals;
  if (drops) --m.count;
  tell(t, {kExpect, where, p.block, p.at, 0, bytes, m.phase, ends(m)});
  settle(p, m);
  w.busy = false;
  return state;
}
}  // namespace
}  // namespace kw::emulator

unsigned long long kw_mbarrier_expect(unsigned address, unsigned bytes) {
  return arrive(*kw_current, address, 1, bytes, false, HERE);
}
unsigned long long kw_mbarrier_arrive(unsigned address, unsigned arrivals) {
  return arrive(*kw_current, address, arrivals, 0, false, HERE);
}
unsigned long long kw_mbarrier_drop(unsigned address) {
  return arrive(*kw_current, address, 1, 0, true, HERE);
}
void kw_mbarrier_bytes(unsigned address, long long bytes) {
  Thread &t = *kw_current;
  Worker &w = worker_of(&t);
  w.busy = true;
  const Place p = find(t, address, 8, "counts bytes at", HERE);
  Mbarrier &m = mbarrier_of(t, p, HERE);
  count(t, m, bytes, HERE);
  tell(t, {kExpect, HERE, p.block, p.at, 0, 0, m.phase, ends(m)});
  settle(p, m);
  w.busy = false;
}
void kw_mbarrier_end(unsigned address) {
  const Place p = find(*kw_current, address, 8, "ends", HERE);
  mbarrier_of(*kw_current, p, HERE);
  p.block->mbarriers.erase(p.at);
}

void kw_mbarrier_wait(unsigned address, unsigned parity) {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  w.busy = true;
  const Place p = find(*t, address, 8, "waits for", HERE);
  if (p.block != t->block) fail_at(*t, HERE, "waits for another block's mbarrier");
  Mbarrier &m = mbarrier_of(*t, p, HERE);
  ++w.progress;
  if ((m.phase & 1) == parity) {
    t->wait = kMbarrier;
    t->where = HERE;
    t->in = p.at;
    t->source = parity;
    wait(w, t);
  }
  tell(*t, {kReceive, HERE, p.block, p.at, 0, 0, m.phase - 1, false});
  w.busy = false;
}

bool kw_mbarrier_test(unsigned address, unsigned parity) {
  Thread &t = *kw_current;
  Worker &w = worker_of(&t);
  w.busy = true;
  const Place p = find(t, address, 8, "looks at", HERE);
  const auto done = [&] { return (mbarrier_of(t, p, HERE).phase & 1) != (parity & 1); };
  if (!done()) {  // it looks again and again: others go on, or what is under way arrives
    if (pick(w, t))
      kw_yield();
    else
      complete_one(w);
    w.busy = true;
  }
  const bool now = done();
  if (now) {
    const unsigned phase = mbarrier_of(t, p, HERE).phase;
    tell(t, {kReceive, HERE, p.block, p.at, 0, 0, phase - 1, false});
  }
  w.busy = false;
  return now;
}

void kw_send(unsigned to, std::uint64_t value, unsigned bytes, unsigned mbarrier) {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  w.busy = true;
  if (t->block->cluster == 1)
    fail_at(*t, HERE, "sends in a launch without clusters, an illegal instruction on a GPU,");
  const Place slot = find(*t, to, bytes, "sends to", HERE);
  const Place p = find(*t, mbarrier, 8, "sends to", HERE);
  if (slot.block != p.block)
    fail_at(*t, HERE, "sends to one block and counts the bytes at another's mbarrier");
  if (!p.block->mbarriers.count(p.at))
    tell(*t, {kSend, HERE, p.block, p.at, slot.at, bytes, 0, false});
  Mbarrier &m = mbarrier_of(*t, p, HERE);
  count(*t, m, -static_cast<std::int64_t>(bytes), HERE);
  tell(*t, {kSend, HERE, p.block, p.at, slot.at, bytes, m.phase, ends(m)});
  std::memcpy(memory_of(w, *slot.block) + slot.at, &value, bytes);
  settle(p, m);
  w.busy = false;
}

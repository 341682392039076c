// Fibers: their stacks, the order in which they run, how one switches to the next or fails.
#pragma once
#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "context_switch.h"
#include "worker.h"

namespace kw::emulator {
namespace {

// ---- stacks

void *take_stack(Worker &w) {
  if (!w.free_stacks.empty()) {
    void *stack = w.free_stacks.back();
    w.free_stacks.pop_back();
    return stack;
  }
  void *stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) kw_fail("no memory for the stack of one more thread");
  // a grid that runs together has more threads than a process may have mappings
  if (w.stacks.size() < kGuarded) mprotect(stack, kGuard, PROT_NONE);
  w.stacks.push_back(stack);
  return stack;
}

// Stacks start at different offsets in their pages; otherwise all of them would use the same sets
// of the caches.
void *top_of(void *stack) {
  const std::size_t shift = (reinterpret_cast<std::uintptr_t>(stack) / kStack) % 61 * 64;
  return static_cast<char *>(stack) + kStack - shift - 64;
}

// ---- the order in which threads run

Thread *first_ready(const Running &b, unsigned from) {
  const unsigned words = (b.count + 63) / 64;
  if (from >= words * 64) from = 0;
  unsigned i = from / 64;
  std::uint64_t bits = b.ready[i] >> from % 64 << from % 64;
  for (unsigned n = 0; n <= words; ++n) {
    if (bits) return b.threads + i * 64 + __builtin_ctzll(bits);
    i = i + 1 == words ? 0 : i + 1;
    bits = b.ready[i];
  }
  return nullptr;
}

// The next thread: in the order of their numbers, each block as far as possible before the next one
// of its cluster; or a random one.
Thread *pick(Worker &w, const Thread &after) {
  const Running &b = running(after);
  const unsigned next = after.number + 1;  // usually
  if (!w.launch->seed && next < b.count && b.ready[next / 64] >> next % 64 & 1)
    return b.threads + next;
  unsigned rank = after.block->rank, from = after.number + 1;
  if (w.launch->seed) {
    const auto any = static_cast<unsigned>(draw(w.random) % (w.cluster * w.blocks[0].count));
    rank = any / w.blocks[0].count, from = any % w.blocks[0].count;
  }
  for (unsigned n = 0; n < w.cluster; ++n, from = 0) {
    if (Thread *library = first_ready(w.blocks[rank], from)) return library;
    rank = rank + 1 == w.cluster ? 0 : rank + 1;
  }
  return nullptr;
}

void set(std::uint64_t *bits, unsigned i) { bits[i / 64] |= std::uint64_t(1) << i % 64; }
void clear(std::uint64_t *bits, unsigned i) { bits[i / 64] &= ~(std::uint64_t(1) << i % 64); }
bool has(const std::uint64_t *bits, unsigned i) { return bits[i / 64] >> i % 64 & 1; }

// Copies a block's shared memory to where its threads access it.
void bring(Worker &w, Running &b) {
  if (w.resident == &b) return;
  if (const std::size_t bytes = bytes_of(b)) {
    std::memcpy(w.resident->memory.data(), b.shared, bytes);
    std::memcpy(b.shared, b.memory.data(), bytes);
  }
  w.resident = &b;
}
unsigned char *memory_of(Worker &w, Running &b) {
  return w.resident == &b ? b.shared : b.memory.data();
}

void carry();

// Makes a ready thread the current one.
void enter(Worker &w, Thread &t) {
  Running &b = running(t);
  clear(b.ready, t.number);
  bring(w, b);
  kw_current = &t;
  kw_threadIdx = t.index, kw_blockIdx = b.index;
}

// Switches to a ready thread; returns when the current one is selected again.
void go(Worker &w, Thread &t, void **save) {
  enter(w, t);
  if (has(running(t).started, t.number)) {
    if (save != &t.stack_pointer) kw_switch(save, t.stack_pointer);
    return;
  }
  t.stack = take_stack(w);
  kw_switch(save, fresh_stack(top_of(t.stack), carry));
}

[[noreturn]] void leave(Worker &w) {
  void *forgotten;
  kw_current = nullptr;
  kw_switch(&forgotten, w.home);
  __builtin_unreachable();
}

[[noreturn]] void fail(Worker &w, const std::string &message) {
  w.busy = true;
  {
    std::lock_guard<std::mutex> hold(w.all->lock);
    if (!w.all->failed) w.all->message = message;
    w.all->failed = true;
  }
  leave(w);
}

std::string format(const char *text, va_list values) {
  char buffer[2048];
  vsnprintf(buffer, sizeof buffer, text, values);
  return buffer;
}
std::string say(const char *text, ...) {
  va_list values;
  va_start(values, text);
  std::string result = format(text, values);
  va_end(values);
  return result;
}
std::string place(const Index &i) { return say("(%u, %u, %u)", i.x, i.y, i.z); }
std::string name_of(const Thread &t) {
  if (t.number == t.block->count) return "a thread of block " + place(t.block->index);
  return "thread " + place(t.index) + " of block " + place(t.block->index);
}

const char *const kNames[] = {
#define KW_ROW(what, name) name,
    KW_WAITS(KW_ROW)
#undef KW_ROW
};

std::string range(unsigned first, unsigned last) {
  return first == last ? say("thread %u", first) : say("threads %u to %u", first, last);
}

// What an mbarrier's current phase waits for: "phase 0: 1 arrival and 64 bytes are missing".
std::string missing(const Running &b, const Thread &t) {
  const Mbarrier &m = b.mbarriers.at(static_cast<unsigned>(t.in));
  return say(
      " for parity %u of the mbarrier at byte %u (in phase %u, where %u of %u arrivals and "
      "%lld bytes are missing)",
      t.source, static_cast<unsigned>(t.in), m.phase, m.pending, m.count,
      static_cast<long long>(m.missing));
}

// What a thread waits for; one that may run has passed its barrier.
Wait waits(const Running &b, unsigned i) { return has(b.ready, i) ? kNothing : b.threads[i].wait; }

// Which threads wait for what: "threads 0 to 31 wait in __syncthreads at @0x..@".
std::string waiting(const Running &b) {
  std::string text;
  for (unsigned i = 0, next; i < b.count; i = next) {
    const Thread &first = b.threads[i];
    for (next = i + 1; next < b.count; ++next) {
      const Thread &t = b.threads[next];
      if (waits(b, next) != waits(b, i) || has(b.started, i) != has(b.started, next)) break;
      if (waits(b, i) != kNothing && t.where != first.where) break;
      if (waits(b, i) >= kSyncwarp && t.mask != first.mask) break;
      if (waits(b, i) == kMbarrier && (t.in != first.in || t.source != first.source)) break;
    }
    text += "\n  " + range(i, next - 1);
    if (waits(b, i) == kNothing)
      text += has(b.started, i) ? " ended" : " did not start";
    else {
      text += say(" in %s", kNames[first.wait]);
      if (first.wait >= kSyncwarp) text += say(" for the lanes 0x%08x", first.mask);
      if (first.wait == kMbarrier) text += missing(b, first);
      text += say(" at @%p@", first.where);
    }
  }
  return text;
}
std::string waiting(const Worker &w) {
  if (w.cluster == 1) return waiting(w.blocks[0]);
  std::string text;
  for (unsigned i = 0; i < w.cluster; ++i)
    text += "\n block " + place(w.blocks[i].index) + ":" + waiting(w.blocks[i]);
  return text;
}

[[noreturn]] void fail_for_ever(Worker &w) {
  const std::string who =
      w.cluster == 1 ? "block " : say("the cluster of %u from block ", w.cluster);
  fail(w, who + place(w.blocks[0].index) + " is deadlocked:" + waiting(w));
}

bool settle_activemasks(Worker &w);
bool complete_one(Worker &w);

// The thread that runs after one that cannot continue.
Thread &next_after(Worker &w, const Thread &t) {
  Thread *next = pick(w, t);
  while (!next && complete_one(w)) next = pick(w, t);
  if (!next && settle_activemasks(w)) next = pick(w, t);
  if (!next) fail_for_ever(w);
  return *next;
}

// The current thread waits: runs others until it is ready.
void wait(Worker &w, Thread *t) { go(w, next_after(w, *t), &t->stack_pointer); }

}  // namespace
}  // namespace kw::emulator

// Fibers: their stacks, the order in which they run, how one hands over to the next or gives up.
#pragma once
#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>

#include "switch.h"
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
  mprotect(stack, kGuard, PROT_NONE);
  w.stacks.push_back(stack);
  return stack;
}

// Stacks start at different distances from their pages, or all of them would meet in the same sets
// of the caches.
void *top_of(void *stack) {
  const std::size_t shift = (reinterpret_cast<std::uintptr_t>(stack) / kStack) % 61 * 64;
  return static_cast<char *>(stack) + kStack - shift - 64;
}

// ---- the order in which threads run

int first_ready(const Worker &w, unsigned from) {
  const unsigned words = (w.count + 63) / 64;
  unsigned i = from / 64 % words;
  std::uint64_t bits = from < words * 64 ? w.ready[i] >> from % 64 << from % 64 : w.ready[i = 0];
  for (unsigned n = 0; n <= words; ++n) {
    if (bits) return static_cast<int>(i * 64 + __builtin_ctzll(bits));
    i = i + 1 == words ? 0 : i + 1;
    bits = w.ready[i];
  }
  return -1;
}

int pick(Worker &w, unsigned after) {
  return first_ready(w, w.launch->seed ? draw(w.random) % w.count : after + 1);
}

void set(std::uint64_t *bits, unsigned i) { bits[i / 64] |= std::uint64_t(1) << i % 64; }
void clear(std::uint64_t *bits, unsigned i) { bits[i / 64] &= ~(std::uint64_t(1) << i % 64); }
bool has(const std::uint64_t *bits, unsigned i) { return bits[i / 64] >> i % 64 & 1; }

void carry();

// Give the processor to a ready thread; returns when the present one is picked again.
void go(Worker &w, int next, void **save) {
  Thread &t = w.threads[next];
  clear(w.ready, next);
  kw_current = &t;
  if (has(w.started, next)) {
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
  std::string made = format(text, values);
  va_end(values);
  return made;
}
std::string place(const Index &i) { return say("(%u, %u, %u)", i.x, i.y, i.z); }
std::string name_of(const Thread &t) {
  return "thread " + place(t.index) + " of block " + place(t.block->index);
}

const char *const kNames[] = {
    "nothing",           "__syncthreads",     "__syncthreads_count", "__syncthreads_and",
    "__syncthreads_or",  "__syncwarp",        "a shuffle",           "__ballot_sync",
    "__any_sync",        "__all_sync",        "__uni_sync",          "__match_any_sync",
    "__match_all_sync",  "__reduce_add_sync", "__reduce_min_sync",   "__reduce_min_sync",
    "__reduce_max_sync", "__reduce_max_sync", "__reduce_and_sync",   "__reduce_or_sync",
    "__reduce_xor_sync", "__activemask",
};

std::string range(unsigned first, unsigned last) {
  return first == last ? say("thread %u", first) : say("threads %u to %u", first, last);
}

// Who waits for what: "threads 0 to 31 wait in __syncthreads at @0x..@".
std::string waiting(const Worker &w) {
  std::string text;
  for (unsigned i = 0, next; i < w.count; i = next) {
    const Thread &a = w.threads[i];
    for (next = i + 1; next < w.count; ++next) {
      const Thread &b = w.threads[next];
      if (b.wait != a.wait || b.where != a.where || (a.wait >= kSyncwarp && b.mask != a.mask))
        break;
    }
    text += "\n  " + range(i, next - 1);
    if (a.wait == kNothing)
      text += has(w.started, i) ? " ended" : " did not start";
    else {
      text += say(" in %s", kNames[a.wait]);
      if (a.wait >= kSyncwarp) text += say(" for the lanes 0x%08x", a.mask);
      text += say(" at @%p@", a.where);
    }
  }
  return text;
}

bool settle_activemasks(Worker &w);

// The present thread waits: run others until it is ready.
void wait(Worker &w, Thread *t) {
  int next = pick(w, t->number);
  if (next < 0 && settle_activemasks(w)) next = pick(w, t->number);
  if (next < 0) fail(w, "block " + place(w.index) + " waits for ever:" + waiting(w));
  go(w, next, &t->stack_pointer);
}

}  // namespace
}  // namespace kw::emulator

// Blocks whose threads are run by loops in the kernel's own code.
#pragma once
#include <sys/mman.h>

#include "fibers.h"

namespace kw::emulator {
namespace {

std::atomic<unsigned long long> blocks_in_loops{0};

constexpr std::size_t kArena = kStack * kMostThreads;

// The other threads of the block are not started: this one runs all of them.
const InLoops *loop_over(Running &b, const Thread &first) {
  std::fill(std::begin(b.ready), std::end(b.ready), 0);
  b.in_loops = true;
  b.none = first;
  b.none.number = b.count;
  for (unsigned i = 0; i < b.count; ++i) {
    Thread &t = b.threads[i];
    t.stack = first.stack;
    t.wait = kNothing;
    t.async = nullptr;
  }
  b.by->arena.used = 0;
  b.loops = {b.threads, &b.none, &b.by->progress};
  kw_current = &b.none;
  ++blocks_in_loops;
  return &b.loops;
}

void refuse_in_loops(const Thread &t) {
  if (running(t).in_loops)
    fail(*running(t).by, name_of(t) +
                             " waits for others in code that the emulator took for code "
                             "that does not: run it with --check");
}

}  // namespace
}  // namespace kw::emulator

const kw::emulator::InLoops *kw_block_in_loops() {
  using namespace kw::emulator;
  Thread *t = kw_current;
  const Worker &w = worker_of(t);
  Running &b = running(*t);
  return w.may_loop() && !b.in_loops ? loop_over(b, *t) : nullptr;
}

unsigned long long kw_blocks_in_loops() { return kw::emulator::blocks_in_loops; }

void *kw_thread_values(unsigned long long bytes) {
  using namespace kw::emulator;
  Arena &r = worker_of(kw_current).arena;
  if (!r.start) {
    void *mapped = mmap(nullptr, kArena, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) kw_fail("no memory for the variables of a block's threads");
    r.start = static_cast<char *>(mapped);
  }
  bytes = (bytes + 63) / 64 * 64;
  if (r.used + bytes > kArena)
    kw_fail("the threads of a block have more than %lu KiB of variables each", kStack / 1024);
  r.used += bytes;
  return r.start + r.used - bytes;
}

void kw_thread_values_free(unsigned long long bytes) {
  kw::emulator::worker_of(kw_current).arena.used -= (bytes + 63) / 64 * 64;
}

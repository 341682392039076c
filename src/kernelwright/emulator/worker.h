// An OS thread that runs blocks, one after the other or a cluster's together: their threads and
// what these wait for.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime.h"

// Where the function that says so was called from, or the asm statement that calls it.
#define HERE kw::emulator::place_in(__builtin_extract_return_addr(__builtin_return_address(0)))

namespace kw::emulator {

// The clock has ticked; the present thread stands at an instruction of the kernel.
void on_time(Thread &, const void *where);
// The present thread does something else than read its variables; `shuffled`: the value that it
// brings to a shuffle.
void settle_doubts(std::uint64_t shuffled = 0);

namespace {

const void *place_in(const void *caller) {
  return kw_current && kw_current->statement ? kw_current->statement : caller;
}

constexpr unsigned kMostThreads = 1024, kWords = kMostThreads / 64;
constexpr std::size_t kGuard = 4096;    // bytes at a stack's end that no one may touch
constexpr std::size_t kGuarded = 8192;  // stacks that have such an end
constexpr double kTick = 0.02;          // seconds between looks at a thread that does not wait

// What the OS threads of one launch share.
struct Shared {
  std::atomic<unsigned long long> next{0};
  std::atomic<bool> failed{false};
  std::mutex lock;
  std::string message;
  std::vector<unsigned> order;  // of blocks, where it is not by their numbers
};

struct Warp {
  unsigned live, waiting;  // lanes
  unsigned turns;          // of lanes that continued before lanes of later lines
};

// The present phase of an mbarrier: it ends when all arrivals and all bytes have come.
struct Mbarrier {
  unsigned count;        // arrivals of a phase
  unsigned pending;      // arrivals that are missing
  std::int64_t missing;  // bytes; negative where they came before they were expected
  unsigned phase;
};

struct Worker;

// A product that threads of a warp group have issued, and where they keep its D.
struct Issued {
  Product product;
  unsigned threads = 0;  // that have issued it
  const void *where = nullptr;
  std::vector<void *> d;  // of all threads, by thread and register
  unsigned a[kWarpGroup][4];
};
// Products of a warp group, in order; the first of `waiting` has the number `done`.
struct Products {
  unsigned done = 0;
  std::deque<Issued> waiting;
  std::deque<Issued> spare;  // whose memory is used again
};

// Memory for what the threads of a block in loops keep, as much as their stacks may hold.
struct Arena {
  char *start = nullptr;
  std::size_t used = 0;
};

// A block, and what its threads wait for.
struct Running : Block {
  Worker *by;
  std::uint64_t ready[kWords];                          // threads that may run
  std::uint64_t started[kWords];                        // threads that have a stack
  unsigned alive, arrived;                              // threads; those of them at the barrier
  Wait kind;                                            // of the barrier
  bool mixed;                                           // some wait in another kind of it
  std::uint64_t sum, conjunction, disjunction, result;  // of the barrier's predicates
  Warp warps[kMostThreads / 32];
  unsigned named[16];                                // arrivals at each of bar.sync's barriers
  std::unordered_map<unsigned, Mbarrier> mbarriers;  // by their places in shared memory
  std::vector<unsigned char> memory;                 // shared, while another block's stands there
  std::unordered_map<unsigned, Products> products;   // by warp group
  bool in_loops;                                     // of the kernel's code, not as fibers
  Thread none;                                       // stands for any of its threads there
  InLoops loops;
};

// An OS thread's blocks and everything to run them. Kept between launches for its stacks.
struct Worker {
  Shared *all;
  const Launch *launch;
  std::deque<Running> blocks;
  unsigned cluster;         // how many of them run together
  Running *resident;        // whose shared memory stands where its threads look for it
  unsigned alive;           // threads of all blocks
  unsigned missing, phase;  // of the cluster's barrier: threads that have yet to arrive
  std::vector<Thread> pool;
  std::vector<void *> stacks, free_stacks;
  Arena arena;
  std::deque<Bulk> bulk;  // copies under way
  void *home;             // where the OS thread waits for its blocks to end
  std::uint64_t random;
  volatile bool busy;                    // inside the runtime, where no signal may switch
  volatile bool late;                    // a tick came meanwhile
  volatile unsigned long long progress;  // counts waits and exits
  unsigned long long seen;               // progress at the last tick
  double stuck;                          // seconds since it changed

  // Threads that run in the order of their numbers, without an observer, may be run in any way.
  bool may_loop() const { return !launch->observer && !launch->seed && cluster == 1; }

  Worker() : pool(kMostThreads) {}
};

Running &running(const Thread &t) { return *static_cast<Running *>(t.block); }
Worker &worker_of(Thread *t) { return *running(*t).by; }

// Let the observer look. Another thread must not run before it has returned: that would find its
// state half changed. What a tick would have done meanwhile is done before the next look, when the
// access that the observer was told of is over.
template <typename Look> void observed(Thread &t, const void *where, Look look) {
  Worker &w = worker_of(&t);
  const bool busy = w.busy;
  if (w.late && !busy) on_time(t, where);
  w.busy = true;
  look();
  w.busy = busy;
}

unsigned long long bytes_of(const Block &b) { return b.shared_bytes + b.dynamic_bytes; }

std::uint64_t draw(std::uint64_t &state) {  // splitmix64
  std::uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

}  // namespace
}  // namespace kw::emulator

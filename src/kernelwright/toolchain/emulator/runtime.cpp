// The runtime of emulated kernels: fibers, the order they run in, what they wait for.
#include "runtime.h"

#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "switch.h"

__thread kw::emulator::Thread *kw_current __attribute__((tls_model("initial-exec"))) = nullptr;

namespace kw::emulator {
namespace {

constexpr unsigned kMostThreads = 1024, kWords = kMostThreads / 64;
constexpr std::size_t kStack = 256 * 1024, kGuard = 4096;
constexpr double kTick = 0.02;  // seconds between looks at a thread that does not wait

#define HERE __builtin_extract_return_addr(__builtin_return_address(0))

// What the OS threads of one launch share.
struct Shared {
  std::atomic<unsigned long long> next{0};
  std::atomic<bool> failed{false};
  std::mutex lock;
  std::string message;
  std::vector<unsigned> order;  // of blocks, where it is not by their numbers
};

struct Warp {
  unsigned existing, live, waiting;  // lanes
};

// An OS thread's block and everything to run it. Kept between launches for its stacks.
struct Worker : Block {
  Shared *all;
  std::uint64_t ready[kWords];                          // threads that may run
  std::uint64_t started[kWords];                        // threads that have a stack
  unsigned alive, arrived;                              // threads; those of them at the barrier
  std::uint64_t sum, conjunction, disjunction, result;  // of the barrier's predicates
  Warp warps[kMostThreads / 32];
  std::vector<Thread> pool;
  std::vector<void *> stacks, free_stacks;
  void *home;  // where the OS thread waits for its block to end
  std::uint64_t random;
  volatile bool busy;                    // inside the runtime, where no signal may switch
  volatile unsigned long long progress;  // counts waits and exits
  unsigned long long seen;               // progress at the last tick
  double stuck;                          // seconds since it changed
  void *signal_stack;

  Worker() : pool(kMostThreads) {}
};

Worker &worker_of(Thread *t) { return *static_cast<Worker *>(t->block); }

std::uint64_t draw(std::uint64_t &state) {  // splitmix64
  std::uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

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

// ---- barriers of the block

// All live threads stand at the barrier: let them go on.
void release(Worker &w) {
  Wait kind = kNothing;
  for (unsigned i = 0; i < w.count; ++i) {
    const Wait here = w.threads[i].wait;
    if (here < kBarrier || here > kBarrierOr) continue;
    if (kind != kNothing && here != kind)
      fail(w, "block " + place(w.index) + " meets in different barriers:" + waiting(w));
    kind = here;
  }
  if (w.launch->observer && w.launch->observer->barrier) w.launch->observer->barrier(w);
  w.result = kind == kBarrierCount ? w.sum : kind == kBarrierAnd ? w.conjunction : w.disjunction;
  w.arrived = 0;
  w.sum = w.disjunction = 0, w.conjunction = 1;
  for (unsigned i = 0; i < w.count; ++i) {
    Thread &t = w.threads[i];
    if (t.wait == kNothing) continue;
    t.wait = kNothing;
    ++t.epoch;
    set(w.ready, i);
  }
}

// ---- operations of a warp

// `lanes` have arrived at one operation: compute what each gets, and let them go on.
void meet(Worker &w, unsigned number, unsigned lanes, Wait kind) {
  Thread *const t = w.threads + number * 32;
  if (w.launch->observer && w.launch->observer->warp)
    w.launch->observer->warp(t[__builtin_ctz(lanes)], lanes);
  const auto each = [lanes](auto visit) {
    for (unsigned left = lanes; left; left &= left - 1) visit(__builtin_ctz(left));
  };
  const auto all_get = [&](std::uint64_t value) { each([&](int i) { t[i].out = value; }); };
  const auto fold = [&](auto apply) {
    std::uint64_t total = t[__builtin_ctz(lanes)].in;
    for (unsigned left = lanes & (lanes - 1); left; left &= left - 1)
      total = apply(total, t[__builtin_ctz(left)].in);
    all_get(total);
  };
  using Signed = std::int32_t;
  unsigned votes = 0;
  switch (kind) {
    case kShuffle:
      // what a lane reads from one that does not take part is undefined: here NaN, or -1
      each([&](int i) {
        t[i].out = lanes >> t[i].source & 1 ? t[t[i].source].in : ~std::uint64_t(0);
      });
      break;
    case kBallot:
    case kAny:
    case kAll:
    case kUni:
      each([&](int i) { votes |= t[i].in ? 1u << i : 0; });
      all_get(kind == kBallot ? votes
              : kind == kAny  ? votes != 0
              : kind == kAll  ? votes == lanes
                              : votes == 0 || votes == lanes);
      break;
    case kMatchAny:
      each([&](int i) {
        t[i].out = 0;
        each([&](int j) { t[i].out |= t[i].in == t[j].in ? 1u << j : 0; });
      });
      break;
    case kMatchAll: {
      bool same = true;
      each([&](int i) { same &= t[i].in == t[__builtin_ctz(lanes)].in; });
      all_get(same ? lanes : 0);
      break;
    }
    case kReduceAdd:
      fold([](auto a, auto b) { return std::uint32_t(a + b); });
      break;
    case kReduceMin:
      fold([](auto a, auto b) { return std::min(a, b); });
      break;
    case kReduceMax:
      fold([](auto a, auto b) { return std::max(a, b); });
      break;
    case kReduceMinSigned:
      fold([](auto a, auto b) { return Signed(a) < Signed(b) ? a : b; });
      break;
    case kReduceMaxSigned:
      fold([](auto a, auto b) { return Signed(a) > Signed(b) ? a : b; });
      break;
    case kReduceAnd:
      fold([](auto a, auto b) { return a & b; });
      break;
    case kReduceOr:
      fold([](auto a, auto b) { return a | b; });
      break;
    case kReduceXor:
      fold([](auto a, auto b) { return a ^ b; });
      break;
    case kActivemask:
      all_get(lanes);
      break;
    default:
      break;
  }
  each([&](int i) {
    t[i].wait = kNothing;
    ++t[i].warp_epoch;
  });
  w.warps[number].waiting &= ~lanes;
  w.ready[number / 2] |= std::uint64_t(lanes) << number % 2 * 32;
}

// Let the lanes of `mask` go on if all live ones of them wait in this operation.
bool try_meet(Worker &w, unsigned number, unsigned mask, Wait kind) {
  const Warp &warp = w.warps[number];
  const unsigned needed = mask & warp.live;
  if ((warp.waiting & needed) != needed) return false;
  for (unsigned left = needed; left; left &= left - 1) {
    const Thread &t = w.threads[number * 32 + __builtin_ctz(left)];
    if (t.wait != kind || t.mask != mask) return false;
  }
  meet(w, number, needed, kind);
  return true;
}

// No thread can run: those that ask who is active beside them get each other, warp by warp and
// place by place. That is the most that a GPU's scheduler could have brought together.
bool settle_activemasks(Worker &w) {
  bool any = false;
  for (unsigned number = 0; number < (w.count + 31) / 32; ++number)
    for (unsigned left = w.warps[number].waiting; left;) {
      const unsigned first = __builtin_ctz(left);
      const Thread *t = w.threads + number * 32;
      unsigned same = 0;
      for (unsigned rest = left; rest; rest &= rest - 1) {
        const unsigned i = __builtin_ctz(rest);
        if (t[i].wait == t[first].wait && t[i].where == t[first].where) same |= 1u << i;
      }
      left &= ~same;
      if (t[first].wait == kActivemask) meet(w, number, same, kActivemask), any = true;
    }
  return any;
}

// ---- one thread after the other on a stack

void end_thread(Worker &w, Thread *t) {
  if (w.launch->observer && w.launch->observer->thread_exit) w.launch->observer->thread_exit(*t);
  ++w.progress;
  --w.alive;
  Warp &warp = w.warps[t->warp()];
  warp.live &= ~(1u << t->lane());
  // the others need not wait for it any more
  for (unsigned left = warp.waiting; left; left &= left - 1) {
    const unsigned lane = __builtin_ctz(left);
    const Thread &other = w.threads[t->warp() * 32 + lane];
    if (warp.waiting >> lane & 1 && other.wait != kActivemask)
      try_meet(w, t->warp(), other.mask, other.wait);
  }
  if (w.arrived && w.arrived == w.alive) release(w);
}

// What a fresh stack runs: its thread, and then every thread that has not started yet, until one
// that waits elsewhere is next. A kernel without barriers never leaves this loop.
void carry() {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  void *const stack = t->stack;
  for (;;) {
    t->stack = stack;
    t->wait = kNothing;
    t->epoch = t->warp_epoch = 0;
    set(w.started, t->number);
    if (w.launch->observer && w.launch->observer->thread_begin)
      w.launch->observer->thread_begin(*t);
    w.busy = false;
    w.launch->entry(w.launch->arguments);
    w.busy = true;
    end_thread(w, t);
    if (!w.alive) break;
    int next = pick(w, t->number);
    if (next < 0 && settle_activemasks(w)) next = pick(w, t->number);
    if (next < 0) fail(w, "block " + place(w.index) + " waits for ever:" + waiting(w));
    if (has(w.started, next)) {
      w.free_stacks.push_back(stack);
      void *forgotten;
      go(w, next, &forgotten);
    }
    clear(w.ready, next);
    kw_current = t = w.threads + next;
  }
  w.free_stacks.push_back(stack);
  leave(w);
}

void run_block(Worker &w) {
  const Observer *o = w.launch->observer;
  w.alive = w.count;
  w.arrived = 0;
  w.sum = w.disjunction = 0, w.conjunction = 1;
  for (unsigned i = 0; i < (w.count + 63) / 64; ++i) {
    const unsigned left = w.count - i * 64;
    w.ready[i] = left >= 64 ? ~std::uint64_t(0) : (std::uint64_t(1) << left) - 1;
    w.started[i] = 0;
  }
  for (unsigned i = 0; i < (w.count + 31) / 32; ++i) {
    const unsigned left = w.count - i * 32;
    w.warps[i].existing = w.warps[i].live = left >= 32 ? ~0u : (1u << left) - 1;
    w.warps[i].waiting = 0;
  }
  if (o && o->block_begin) o->block_begin(w);
  go(w, pick(w, w.count - 1), &w.home);
  if (o && o->block_end && !w.all->failed) o->block_end(w);
}

// ---- what interrupts a kernel: faults, and the clock

std::mutex workers_lock;
std::vector<Worker *> idle_workers;
struct sigaction before_fault[3];
constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE};
int tick_signal() { return SIGRTMIN + 7; }

const void *instruction(void *context) {
#if defined(__x86_64__)
  return reinterpret_cast<void *>(static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP]);
#else
  return reinterpret_cast<void *>(static_cast<ucontext_t *>(context)->uc_mcontext.pc);
#endif
}

void on_fault(int signal, siginfo_t *info, void *context) {
  Thread *t = kw_current;
  if (!t || worker_of(t).busy) {  // not ours
    for (int i = 0; i < 3; ++i)
      if (kFaults[i] == signal) sigaction(signal, &before_fault[i], nullptr);
    return;
  }
  Worker &w = worker_of(t);
  w.busy = true;
  // the instruction itself, where calls give the one behind
  const void *where = static_cast<const char *>(instruction(context)) + 1;
  const auto *address = static_cast<const char *>(info->si_addr);
  const auto *stack = static_cast<const char *>(t->stack);
  if (signal == SIGFPE) fail(w, name_of(*t) + say(" divides an integer by zero at @%p@", where));
  if (address >= stack && address < stack + kGuard)
    fail(w,
         name_of(*t) + say(" uses more than its stack of %zu KiB at @%p@", kStack / 1024, where));
  if (info->si_code == SI_KERNEL)
    fail(w, name_of(*t) + say(" touches a misaligned address at @%p@", where));
  fail(w, name_of(*t) + say(" touches the address %p, where no memory is, at @%p@",
                            static_cast<const void *>(address), where));
}

// A thread that has not waited for a while may wait for another in a loop: let that one run.
void on_tick(int, siginfo_t *, void *context) {
  Thread *t = kw_current;
  if (!t || worker_of(t).busy) return;
  Worker &w = worker_of(t);
  if (w.all->failed) {
    w.busy = true;
    leave(w);
  }
  w.stuck = w.progress == w.seen ? w.stuck + kTick : 0;
  w.seen = w.progress;
  if (w.stuck == 0) return;
  w.busy = true;
  if (w.stuck > w.launch->patience) {
    const void *where = static_cast<const char *>(instruction(context)) + 1;
    fail(w, name_of(*t) +
                say(" has been at @%p@ for %.3g seconds: it waits for something that "
                    "does not come, or its loop is endless. The others of its block:",
                    where, w.stuck) +
                waiting(w));
  }
  const int saved = errno;
  kw_yield();
  errno = saved;
}

int launches = 0;  // that need the signal handlers

void install() {
  std::lock_guard<std::mutex> hold(workers_lock);
  if (launches++) return;
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  action.sa_sigaction = on_fault;
  for (int i = 0; i < 3; ++i) sigaction(kFaults[i], &action, &before_fault[i]);
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;  // on the fiber's stack: it may be left
  action.sa_sigaction = on_tick;
  sigaction(tick_signal(), &action, nullptr);
}

void uninstall() {
  std::lock_guard<std::mutex> hold(workers_lock);
  if (--launches) return;
  for (int i = 0; i < 3; ++i) sigaction(kFaults[i], &before_fault[i], nullptr);
  signal(tick_signal(), SIG_IGN);  // one may still be on its way
}

struct Clock {
  timer_t timer;
  bool running;
  explicit Clock(bool wanted) : running(wanted) {
    if (!running) return;
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = tick_signal();
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
    event.sigev_notify_thread_id = static_cast<int>(syscall(SYS_gettid));
    running = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
    const long tick = static_cast<long>(kTick * 1e9);
    const itimerspec each = {{0, tick}, {0, tick}};
    if (running) timer_settime(timer, 0, &each, nullptr);
  }
  ~Clock() {
    if (running) timer_delete(timer);
  }
};

Worker *take_worker() {
  std::lock_guard<std::mutex> hold(workers_lock);
  if (idle_workers.empty()) return new Worker;
  Worker *w = idle_workers.back();
  idle_workers.pop_back();
  return w;
}
void return_worker(Worker *w) {
  std::lock_guard<std::mutex> hold(workers_lock);
  w->free_stacks = w->stacks;  // those of threads that a failure left behind among them
  idle_workers.push_back(w);
}

extern "C" void *__tls_get_addr(std::size_t *);

// Runs blocks until none is left.
void work(const Launch &launch, Shared &all, unsigned number) {
  Worker &w = *take_worker();
  w.all = &all;
  w.launch = &launch;
  w.grid = launch.grid, w.size = launch.block;
  w.worker = number;
  w.threads = w.pool.data();
  w.count = launch.block.x * launch.block.y * launch.block.z;
  w.data = nullptr;
  w.busy = true;
  w.progress = w.seen = 0, w.stuck = 0;
  w.shared = w.dynamic = nullptr, w.shared_bytes = w.dynamic_bytes = 0;
  if (launch.library.bytes) {
    std::size_t at[2] = {launch.library.module, 0};
    w.shared = static_cast<unsigned char *>(__tls_get_addr(at));
    w.dynamic = w.shared + launch.library.dynamic;
    w.shared_bytes = launch.library.dynamic;
    w.dynamic_bytes = launch.shared;
    // shared memory is not zero when a block starts: NaN, or -1
    std::memset(w.shared, 0xff, w.shared_bytes + w.dynamic_bytes);
  }
  unsigned i = 0;
  for (unsigned z = 0; z < launch.block.z; ++z)
    for (unsigned y = 0; y < launch.block.y; ++y)
      for (unsigned x = 0; x < launch.block.x; ++x, ++i) {
        Thread &t = w.pool[i];
        t = {};
        t.index = {x, y, z};
        t.number = i;
        t.block = &w;
      }
  stack_t mine = {}, before = {};
  std::vector<char> signal_stack(64 * 1024);
  mine.ss_sp = signal_stack.data(), mine.ss_size = signal_stack.size();
  sigaltstack(&mine, &before);
  {
    const Clock clock(launch.patience > 0);
    const unsigned long long blocks = 1ull * launch.grid.x * launch.grid.y * launch.grid.z;
    for (unsigned long long n; !all.failed && (n = all.next++) < blocks;) {
      if (!all.order.empty()) n = all.order[n];
      w.index.x = static_cast<unsigned>(n % launch.grid.x);
      w.index.y = static_cast<unsigned>(n / launch.grid.x % launch.grid.y);
      w.index.z = static_cast<unsigned>(n / launch.grid.x / launch.grid.y);
      w.random = launch.seed ^ n * 0x2545f4914f6cdd1du;
      run_block(w);
    }
  }
  before.ss_flags = before.ss_sp ? before.ss_flags & ~SS_ONSTACK : SS_DISABLE;
  sigaltstack(&before, nullptr);
  return_worker(&w);
}

struct Looked {
  const void *inside;
  Library *found;
};

int look(dl_phdr_info *info, std::size_t, void *data) {
  auto &wanted = *static_cast<Looked *>(data);
  bool inside = false;
  const ElfW(Phdr) *tls = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto &p = info->dlpi_phdr[i];
    const std::uintptr_t at = info->dlpi_addr + p.p_vaddr;
    const auto address = reinterpret_cast<std::uintptr_t>(wanted.inside);
    if (p.p_type == PT_LOAD && address >= at && address < at + p.p_memsz) inside = true;
    if (p.p_type == PT_TLS) tls = &p;
  }
  if (!inside) return 0;
  if (tls) wanted.found->module = info->dlpi_tls_modid, wanted.found->bytes = tls->p_memsz;
  return 1;
}

}  // namespace
}  // namespace kw::emulator

using namespace kw::emulator;

bool kw_library(const void *inside, const void *dynamic, Library *found) {
  *found = {};
  Looked wanted = {inside, found};
  dl_iterate_phdr(look, &wanted);
  if (!found->bytes) return false;
  std::size_t at[2] = {found->module, 0};
  const char *base = static_cast<char *>(__tls_get_addr(at));
  found->dynamic = dynamic ? static_cast<const char *>(dynamic) - base : found->bytes;
  return true;
}

const char *kw_launch(const Launch *launch) {
  static thread_local std::string message;
  Shared all;
  const unsigned long long blocks = 1ull * launch->grid.x * launch->grid.y * launch->grid.z;
  if (launch->block_seed) {
    all.order.resize(blocks);
    std::iota(all.order.begin(), all.order.end(), 0u);
    std::uint64_t state = launch->block_seed;
    for (std::size_t i = blocks; i > 1; --i)
      std::swap(all.order[i - 1], all.order[draw(state) % i]);
  }
  install();
  if (launch->observer && launch->observer->launch_begin) launch->observer->launch_begin(*launch);
  std::vector<std::thread> others;
  for (unsigned i = 1; i < launch->workers && i < blocks; ++i)
    others.emplace_back(work, std::cref(*launch), std::ref(all), i);
  work(*launch, all, 0);
  for (auto &o : others) o.join();
  if (launch->observer && launch->observer->launch_end) launch->observer->launch_end(*launch);
  uninstall();
  message = all.message;
  return all.failed ? message.c_str() : nullptr;
}

std::uint64_t kw_block_wait(Wait kind, std::uint64_t value) {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  w.busy = true;
  ++w.progress;
  t->wait = kind;
  t->where = HERE;
  w.sum += value != 0;
  w.conjunction &= value != 0;
  w.disjunction |= value != 0;
  if (++w.arrived == w.alive) {
    release(w);
    clear(w.ready, t->number);
  } else {
    wait(w, t);
  }
  w.busy = false;
  return w.result;
}

std::uint64_t kw_warp_wait(Wait kind, unsigned mask, std::uint64_t value, unsigned source) {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  w.busy = true;
  ++w.progress;
  t->wait = kind;
  t->where = HERE;
  t->mask = mask;
  t->in = value;
  t->source = source;
  if (!(mask >> t->lane() & 1) && kind != kActivemask)
    fail(w, name_of(*t) + say(" is lane %u, which its own mask 0x%08x does not name, in %s at @%p@",
                              t->lane(), mask, kNames[kind], t->where));
  w.warps[t->warp()].waiting |= 1u << t->lane();
  if (kind != kActivemask && try_meet(w, t->warp(), mask, kind))
    clear(w.ready, t->number);
  else
    wait(w, t);
  w.busy = false;
  return t->out;
}

void kw_yield() {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  w.busy = true;
  const int next = pick(w, t->number);
  if (next >= 0) {
    set(w.ready, t->number);
    go(w, next, &t->stack_pointer);
  }
  w.busy = false;
}

void kw_fail(const char *text, ...) {
  Thread *t = kw_current;
  va_list values;
  va_start(values, text);
  const std::string message = format(text, values);
  va_end(values);
  fail(worker_of(t), name_of(*t) + ": " + message + say(" at @%p@", HERE));
}

int kw_printf(const char *text, ...) {
  Worker &w = worker_of(kw_current);
  w.busy = true;  // stdio has locks
  va_list values;
  va_start(values, text);
  const int written = vprintf(text, values);
  va_end(values);
  w.busy = false;
  return written;
}

void kw_fence(unsigned scope) {
  const Observer *o = kw_current->block->launch->observer;
  if (o && o->fence) o->fence(*kw_current, scope, HERE);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

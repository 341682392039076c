// The runtime of emulated kernels: threads on stacks, blocks on OS threads, launches; and the
// functions that kernels call.
#include "runtime.h"

#include <link.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "async.h"
#include "bulk.h"
#include "cluster.h"
#include "fibers.h"
#include "interrupts.h"
#include "loops.h"
#include "ldmatrix.h"
#include "sync_point.h"
#include "wgmma.h"
#include "debugger_view.h"

__thread kw::emulator::Thread *kw_current __attribute__((tls_model("initial-exec"))) = nullptr;

__thread kw::emulator::Index kw_threadIdx, kw_blockIdx, kw_blockDim, kw_gridDim;

namespace kw::emulator {
namespace {

// ---- one thread after the other on a stack

void end_thread(Worker &w, Thread *t) {
  end_stores(*t, 0, true);
  forget_copies(*t);
  settle_doubts();
  if (w.launch->observer && w.launch->observer->thread_exit) w.launch->observer->thread_exit(*t);
  ++w.progress;
  Running &b = running(*t);
  --b.alive;
  Warp &warp = b.warps[t->warp()];
  warp.live &= ~(1u << t->lane());
  // the other lanes no longer wait for it
  for (unsigned left = warp.waiting; left; left &= left - 1) {
    const unsigned lane = __builtin_ctz(left);
    const Thread &other = b.threads[t->warp() * 32 + lane];
    if (warp.waiting >> lane & 1 && other.wait != kActivemask)
      try_complete(b, t->warp(), other.mask, other.wait);
  }
  if (b.arrived && b.arrived == b.alive) release(b);
  --w.alive;
  if (w.alive && t->arrivals == w.phase) not_missing(w);
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
    t->async = nullptr, t->statement = nullptr;
    t->epoch = t->warp_epoch = t->arrivals = t->phase = 0;
    set(running(*t).started, t->number);
    if (w.launch->observer && w.launch->observer->thread_begin)
      w.launch->observer->thread_begin(*t);
    w.busy = false;
    w.launch->entry(w.launch->arguments);
    w.busy = true;
    if (running(*t).in_loops) {
      for (unsigned i = 0; i < running(*t).count; ++i) forget_copies(running(*t).threads[i]);
      w.alive = running(*t).alive = 0;
      ++w.progress;
      break;
    }
    end_thread(w, t);
    if (!w.alive) {
      while (complete_one(w)) {
      }
      break;
    }
    Thread &next = next_after(w, *t);
    if (has(running(next).started, next.number)) {
      w.free_stacks.push_back(stack);
      void *forgotten;
      go(w, next, &forgotten);
    }
    enter(w, next);
    t = &next;
  }
  w.free_stacks.push_back(stack);
  leave(w);
}

void begin(Running &b) {
  b.alive = b.count;
  b.arrived = 0;
  b.kind = kNothing, b.mixed = false;
  b.sum = b.disjunction = 0, b.conjunction = 1;
  b.in_loops = false;
  b.mbarriers.clear();
  b.products.clear();
  std::fill(std::begin(b.named), std::end(b.named), 0u);
  for (unsigned i = 0; i < (b.count + 63) / 64; ++i) {
    const unsigned left = b.count - i * 64;
    b.ready[i] = left >= 64 ? ~std::uint64_t(0) : (std::uint64_t(1) << left) - 1;
    b.started[i] = 0;
  }
  for (unsigned i = 0; i < (b.count + 31) / 32; ++i) {
    const unsigned left = b.count - i * 32;
    b.warps[i].live = left >= 32 ? ~0u : (1u << left) - 1;
    b.warps[i].waiting = 0;
  }
}

// The blocks of a cluster; of no cluster, one.
void run_blocks(Worker &w) {
  const Observer *o = w.launch->observer;
  w.alive = w.missing = w.cluster * w.blocks[0].count;
  w.phase = 0;
  for (unsigned i = 0; i < w.cluster; ++i) {
    begin(w.blocks[i]);
    bring(w, w.blocks[i]);
    if (o && o->block_begin) o->block_begin(w.blocks[i]);
  }
  const Running &last = w.blocks[w.cluster - 1];
  go(w, *pick(w, last.threads[last.count - 1]), &w.home);
  for (unsigned i = 0; i < w.cluster; ++i)
    if (o && o->block_end && !w.all->failed) o->block_end(w.blocks[i]);
}

// ---- blocks on OS threads

extern "C" void *__tls_get_addr(std::size_t *);

std::mutex workers_lock;
std::vector<Worker *> idle_workers;

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

// What all blocks of a launch that an OS thread runs have in common.
void prepare(Worker &w, const Launch &launch, unsigned number) {
  w.cluster = launch.cluster;
  while (w.blocks.size() < w.cluster) w.blocks.emplace_back();
  w.resident = &w.blocks[0];
  const unsigned count = launch.block.x * launch.block.y * launch.block.z;
  kw_blockDim = launch.block, kw_gridDim = launch.grid;
  w.pool.assign(std::max<std::size_t>(w.pool.size(), w.cluster * count), {});
  for (unsigned rank = 0; rank < w.cluster; ++rank) {
    Running &b = w.blocks[rank];
    b.by = &w;
    b.launch = &launch;
    b.grid = launch.grid, b.size = launch.block;
    b.rank = rank, b.cluster = w.cluster;
    b.worker = number;
    b.threads = w.pool.data() + rank * count;
    b.count = count;
    b.data = nullptr;
    b.shared = b.dynamic = nullptr, b.shared_bytes = b.dynamic_bytes = 0;
    if (launch.library.bytes) {
      std::size_t at[2] = {launch.library.module, 0};
      b.shared = static_cast<unsigned char *>(__tls_get_addr(at));
      b.dynamic = b.shared + launch.library.dynamic;
      b.shared_bytes = launch.library.dynamic;
      // none without an extern array, whatever the launch asks for
      b.dynamic_bytes = std::min(launch.shared, launch.library.bytes - launch.library.dynamic);
      // shared memory is not zero when a block starts: NaN, or -1
      std::memset(b.shared, 0xff, bytes_of(b));
    }
    b.memory.assign(w.cluster > 1 ? bytes_of(b) : 0, 0xff);
    unsigned i = 0;
    for (unsigned z = 0; z < launch.block.z; ++z)
      for (unsigned y = 0; y < launch.block.y; ++y)
        for (unsigned x = 0; x < launch.block.x; ++x, ++i) {
          Thread &t = b.threads[i];
          t.index = {x, y, z};
          t.number = i;
          t.block = &b;
        }
  }
}

// How many blocks, or clusters, run one after the other.
std::atomic<unsigned long long> blocks_begun{0};

unsigned long long turns_of(const Launch &launch) {
  return 1ull * launch.grid.x * launch.grid.y * launch.grid.z / launch.cluster;
}

// Runs blocks until none is left.
void work(const Launch &launch, Shared &all, unsigned number) {
  Worker &w = *take_worker();
  w.all = &all;
  w.launch = &launch;
  w.bulk.clear();
  w.busy = true;
  w.progress = w.seen = 0, w.stuck = 0, w.late = false;
  prepare(w, launch, number);
  stack_t mine = {}, before = {};
  std::vector<char> signal_stack(64 * 1024);
  mine.ss_sp = signal_stack.data(), mine.ss_size = signal_stack.size();
  sigaltstack(&mine, &before);
  {
    const Clock clock(launch.patience > 0);
    for (unsigned long long n; !all.failed && (n = all.next++) < turns_of(launch);) {
      blocks_begun += launch.cluster ? launch.cluster : 1;
      if (!all.order.empty()) n = all.order[n];
      for (unsigned rank = 0; rank < w.cluster; ++rank) {
        const unsigned long long i = n * w.cluster + rank;
        w.blocks[rank].index = {static_cast<unsigned>(i % launch.grid.x),
                                static_cast<unsigned>(i / launch.grid.x % launch.grid.y),
                                static_cast<unsigned>(i / launch.grid.x / launch.grid.y)};
      }
      w.random = launch.seed ^ n * 0x2545f4914f6cdd1du;
      run_blocks(w);
    }
  }
  before.ss_flags = before.ss_sp ? before.ss_flags & ~SS_ONSTACK : SS_DISABLE;
  sigaltstack(&before, nullptr);
  return_worker(&w);
}

struct Looked {
  const void *inside;
  Library *library;
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
  if (tls) wanted.library->module = info->dlpi_tls_modid, wanted.library->bytes = tls->p_memsz;
  return 1;
}

}  // namespace
}  // namespace kw::emulator

using namespace kw::emulator;

bool kw_library(const void *inside, const void *dynamic, Library *library) {
  *library = {};
  Looked wanted = {inside, library};
  dl_iterate_phdr(look, &wanted);
  if (!library->bytes) return false;
  std::size_t at[2] = {library->module, 0};
  const char *base = static_cast<char *>(__tls_get_addr(at));
  library->dynamic = dynamic ? static_cast<const char *>(dynamic) - base : library->bytes;
  return true;
}

unsigned long long kw_blocks_begun() { return blocks_begun; }

const char *kw_launch(const Launch *launch) {
  static thread_local std::string message;
  Shared all;
  const unsigned long long turns = turns_of(*launch);
  if (launch->block_seed) {
    all.order.resize(turns);
    std::iota(all.order.begin(), all.order.end(), 0u);
    std::uint64_t state = launch->block_seed;
    for (std::size_t i = turns; i > 1; --i) std::swap(all.order[i - 1], all.order[draw(state) % i]);
  }
  install();
  if (launch->observer && launch->observer->launch_begin) launch->observer->launch_begin(*launch);
  std::vector<std::thread> others;
  for (unsigned i = 1; i < launch->workers && i < turns; ++i)
    others.emplace_back(work, std::cref(*launch), std::ref(all), i);
  work(*launch, all, 0);
  for (auto &o : others) o.join();
  if (launch->observer && launch->observer->launch_end) launch->observer->launch_end(*launch);
  uninstall();
  message = all.message;
  return all.failed ? message.c_str() : nullptr;
}

std::uint64_t kw_block_wait(Wait kind, std::uint64_t value, const void *call) {
  Thread *t = kw_current;
  refuse_in_loops(*t);
  Worker &w = worker_of(t);
  w.busy = true;
  ++w.progress;
  settle_doubts();
  t->wait = kind;
  t->where = HERE;
  t->call = call;
  Running &b = running(*t);
  b.mixed |= b.kind != kNothing && b.kind != kind;
  b.kind = kind;
  b.sum += value != 0;
  b.conjunction &= value != 0;
  b.disjunction |= value != 0;
  if (++b.arrived == b.alive) {
    release(b);
    clear(b.ready, t->number);
  } else {
    wait(w, t);
  }
  t->wait = kNothing;
  ++t->epoch;
  w.busy = false;
  return b.result;
}

std::uint64_t kw_warp_wait(Wait kind, unsigned mask, std::uint64_t value, unsigned source) {
  Thread *t = kw_current;
  refuse_in_loops(*t);
  Worker &w = worker_of(t);
  w.busy = true;
  ++w.progress;
  settle_doubts(kind == kShuffle ? value : 0);
  t->wait = kind;
  t->where = HERE;
  t->mask = mask;
  t->in = value;
  t->source = source;
  if (!(mask >> t->lane() & 1) && kind != kActivemask)
    fail(w, name_of(*t) + say(" is lane %u, which its own mask 0x%08x does not name, in %s at @%p@",
                              t->lane(), mask, kNames[kind], t->where));
  Running &b = running(*t);
  b.warps[t->warp()].waiting |= 1u << t->lane();
  if (kind != kActivemask && try_complete(b, t->warp(), mask, kind))
    clear(b.ready, t->number);
  else
    wait(w, t);
  w.busy = false;
  return t->out;
}

void kw_named_barrier(unsigned which, unsigned count, bool waits) {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  if (which > 15 || count % 32 || !count)
    kw_fail("bar of the barrier %u for %u threads: there are 16, for multiples of 32", which,
            count);
  w.busy = true;
  ++w.progress;
  Running &b = running(*t);
  const Observer *o = b.launch->observer;
  const auto tell = [&](Thread &of, Named what) {
    if (o && o->named) o->named(of, which, what, of.where);
  };
  t->where = HERE;
  tell(*t, kArrives);
  if (++b.named[which] < count) {
    if (waits) {
      t->wait = kNamedBarrier;
      t->in = which;
      wait(w, t);
    }
    w.busy = false;
    return;
  }
  b.named[which] = 0;
  for (unsigned i = 0; i < b.count; ++i) {
    Thread &other = b.threads[i];
    if (other.wait != kNamedBarrier || other.in != which) continue;
    other.wait = kNothing;
    tell(other, kPasses);
    set(b.ready, i);
  }
  if (waits) tell(*t, kPasses);
  tell(*t, kCompletes);
  w.busy = false;
}

void kw_yield() {
  Thread *t = kw_current;
  Worker &w = worker_of(t);
  w.busy = true;
  if (Thread *next = pick(w, *t)) {
    set(running(*t).ready, t->number);
    go(w, *next, &t->stack_pointer);
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

void kw_fail_at(const void *where, const char *text, ...) {
  Thread *t = kw_current;
  va_list values;
  va_start(values, text);
  const std::string message = format(text, values);
  va_end(values);
  fail(worker_of(t), name_of(*t) + ": " + message + say(" at @%p@", where));
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
  const void *where = HERE;
  if (o && o->fence) observed(*kw_current, where, [&] { o->fence(*kw_current, scope, where); });
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

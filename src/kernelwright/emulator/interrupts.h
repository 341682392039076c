// Interruptions of a kernel: faults and the timer.
#pragma once
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "fibers.h"

// In whole programs: whether a kernel may go on after it has touched this address.
extern "C" __attribute__((weak)) bool kw_forgives(const void *address, const void *where);
// In whole programs: what an address was before it was freed, or an empty text.
extern "C" __attribute__((weak)) const char *kw_freed(const void *address);

namespace kw::emulator {
namespace {

std::mutex handlers_lock;
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
  if (!t || worker_of(t).busy) {  // not a fault of a kernel
    for (int i = 0; i < 3; ++i)
      if (kFaults[i] == signal) sigaction(signal, &before_fault[i], nullptr);
    return;
  }
  Worker &w = worker_of(t);
  w.busy = true;
  // the instruction itself; for calls it is the one after
  const void *where = static_cast<const char *>(instruction(context)) + 1;
  const auto *address = static_cast<const char *>(info->si_addr);
  const auto *stack = static_cast<const char *>(t->stack);
  if (signal == SIGSEGV && info->si_code != SI_KERNEL && kw_forgives &&
      kw_forgives(address, where)) {
    w.busy = false;
    return;
  }
  if (signal == SIGFPE) fail(w, name_of(*t) + say(" divides an integer by zero at @%p@", where));
  if (address >= stack && address < stack + kGuard)
    fail(w,
         name_of(*t) + say(" uses more than its stack of %zu KiB at @%p@", kStack / 1024, where));
  if (info->si_code == SI_KERNEL)
    fail(w, name_of(*t) + say(" touches a misaligned address at @%p@", where));
  if (const char *freed = kw_freed ? kw_freed(address) : ""; *freed)
    fail(w, name_of(*t) + " touches " + freed + say(" at @%p@", where));
  fail(w, name_of(*t) + say(" touches the address %p, which is not mapped, at @%p@",
                            static_cast<const void *>(address), where));
}

// Code of the C library may hold a lock that the next thread would wait for.
bool in_libc(const void *instruction) {
  struct Range {
    std::uintptr_t start, end;
  };
  static const Range libc = [] {
    Range range = {0, 0};
    dl_iterate_phdr(
        [](dl_phdr_info *info, std::size_t, void *data) {
          const auto at = reinterpret_cast<std::uintptr_t>(&malloc);
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto &p = info->dlpi_phdr[i];
            const std::uintptr_t start = info->dlpi_addr + p.p_vaddr;
            if (p.p_type == PT_LOAD && at >= start && at < start + p.p_memsz)
              *static_cast<Range *>(data) = {start, start + p.p_memsz};
          }
          return 0;
        },
        &range);
    return range;
  }();
  const auto at = reinterpret_cast<std::uintptr_t>(instruction);
  return at >= libc.start && at < libc.end;
}

void on_tick(int, siginfo_t *, void *context) {
  Thread *t = kw_current;
  if (!t) return;
  Worker &w = worker_of(t);
  if (w.busy) w.late = true;
  if (w.busy || in_libc(instruction(context))) return;
  const int saved = errno;
  on_time(*t, static_cast<const char *>(instruction(context)) + 1);
  errno = saved;
}

int launches = 0;  // number of launches that need the signal handlers

void install() {
  std::lock_guard<std::mutex> hold(handlers_lock);
  if (launches++) return;
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  action.sa_sigaction = on_fault;
  for (int i = 0; i < 3; ++i) sigaction(kFaults[i], &action, &before_fault[i]);
  in_libc(nullptr);  // initialized now, because the signal's handler must not do it
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;  // on the fiber's stack; may not return
  action.sa_sigaction = on_tick;
  sigaction(tick_signal(), &action, nullptr);
}

void uninstall() {
  std::lock_guard<std::mutex> hold(handlers_lock);
  if (--launches) return;
  for (int i = 0; i < 3; ++i) sigaction(kFaults[i], &before_fault[i], nullptr);
  signal(tick_signal(), SIG_IGN);  // a signal may still be pending
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

}  // namespace

// A thread that has run for a while without waiting may wait for another in a loop: lets that one
// run.
void on_time(Thread &t, const void *where) {
  Worker &w = worker_of(&t);
  w.late = false;
  if (w.all->failed) {
    w.busy = true;
    leave(w);
  }
  w.stuck = w.progress == w.seen ? w.stuck + kTick : 0;
  w.seen = w.progress;
  if (w.stuck == 0) return;
  w.busy = true;
  if (w.stuck > w.launch->patience)
    fail(w, name_of(t) +
                say(" has been at @%p@ for %.3g seconds: it waits for something that "
                    "does not come, or its loop is endless.",
                    where, w.stuck) +
                (running(t).in_loops ? "" : " The others of its block:" + waiting(w)));
  kw_yield();
}

}  // namespace kw::emulator

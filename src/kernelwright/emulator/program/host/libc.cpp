// Functions of the C library that have another meaning in kernels.
#include <assert.h>
#include <time.h>

#include "host.h"

#pragma GCC visibility push(default)
extern "C" {
void __assert_fail(const char *condition, const char *file, unsigned line,
                   const char *function) noexcept {
  if (kw_current) kw_fail_at(HERE, "assertion `%s` failed", condition);
  fflush(stdout);
  fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function, condition);
  abort();
}
// In a kernel, a clock with one tick per nanosecond; on the host, the processor's time.
clock_t clock() noexcept {
  timespec t;
  clock_gettime(kw_current ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
  return kw_current ? t.tv_sec * 1000000000l + t.tv_nsec : t.tv_sec * 1000000l + t.tv_nsec / 1000;
}
}
#pragma GCC visibility pop

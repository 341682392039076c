// Time, output, termination, hints to the compiler.
#pragma once
#include <time.h>

#ifndef KW_PROGRAM  // programs have their own assert and printf, for host and device code
#undef assert
#define assert(condition) \
  ((condition) ? static_cast<void>(0) : kw_fail("assertion `%s` failed", #condition))
#define printf kw_printf
#endif

KW_BUILT_IN void __trap() { kw_fail("__trap() was called"); }
KW_BUILT_IN void __brkpt() {}
KW_BUILT_IN void __nanosleep(unsigned) { kw_yield(); }
inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}
inline unsigned long long globaltimer() { return static_cast<unsigned long long>(clock64()); }
#ifndef KW_PROGRAM  // programs have their own clock(), which tests whether a kernel calls it
#define clock() static_cast<clock_t>(clock64())
#endif
#define __builtin_assume(condition) static_cast<void>(0)
#define __nv_pure__

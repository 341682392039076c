// Barriers of a block, and fences. They are inlined into the rung, so that their return address is
// a line of the rung.
#pragma once

#define KW_BUILT_IN static inline __attribute__((always_inline))
// Variables in shared memory may have changed: the compiler must not keep them in registers.
#define KW_OTHERS_RAN __asm__ volatile("" ::: "memory")
// As the last parameter: identifies the call by its file, line and column.
#ifdef __clang__  // whose kernels are not checked
#define KW_CALL const void *kw_call = nullptr
#else
#define KW_CALL const void *kw_call = __builtin_source_location()
#endif
#if __cplusplus > 201703L
#include <source_location>
#else
namespace std {
struct source_location {  // what the compiler fills, which the C++ library has from C++20 on
  struct __impl {
    const char *_M_file_name, *_M_function_name;
    unsigned _M_line, _M_column;
  };
};
}  // namespace std
#endif

KW_BUILT_IN void __syncthreads(KW_CALL) {
  KW_OTHERS_RAN;
  kw_block_wait(kw::emulator::kBarrier, 0, kw_call);
  KW_OTHERS_RAN;
}
KW_BUILT_IN int __syncthreads_count(int predicate, KW_CALL) {
  KW_OTHERS_RAN;
  const int n =
      static_cast<int>(kw_block_wait(kw::emulator::kBarrierCount, predicate != 0, kw_call));
  KW_OTHERS_RAN;
  return n;
}
KW_BUILT_IN int __syncthreads_and(int predicate, KW_CALL) {
  KW_OTHERS_RAN;
  const int all =
      static_cast<int>(kw_block_wait(kw::emulator::kBarrierAnd, predicate != 0, kw_call));
  KW_OTHERS_RAN;
  return all;
}
KW_BUILT_IN int __syncthreads_or(int predicate, KW_CALL) {
  KW_OTHERS_RAN;
  const int any =
      static_cast<int>(kw_block_wait(kw::emulator::kBarrierOr, predicate != 0, kw_call));
  KW_OTHERS_RAN;
  return any;
}
KW_BUILT_IN void __threadfence_block() { kw_fence(kw::emulator::kBlockScope); }
KW_BUILT_IN void __threadfence() { kw_fence(kw::emulator::kDeviceScope); }
KW_BUILT_IN void __threadfence_system() { kw_fence(kw::emulator::kSystemScope); }

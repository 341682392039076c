// The indices of the current thread.
#pragma once

#ifdef KW_PROGRAM  // variables: programs also give these names to members and variables
#pragma GCC visibility push(default)
#define KW_INDEX(T, name) \
  extern __thread T name __asm__("kw_" #name) __attribute__((tls_model("initial-exec")))
KW_INDEX(uint3, threadIdx);  // not const: a loop over threads changes it
KW_INDEX(const uint3, blockIdx);
KW_INDEX(const dim3, blockDim);
KW_INDEX(const dim3, gridDim);
#undef KW_INDEX
#pragma GCC visibility pop
#elif defined(KW_WATCHED)  // as values, because reading them is not a memory access
#define threadIdx (kw_index(0))
#define blockIdx (kw_index(1))
#define blockDim (kw_index(2))
#define gridDim (kw_index(3))
#else
#define threadIdx (kw_current->index)
#define blockIdx (kw_current->block->index)
#define blockDim (kw_current->block->size)
#define gridDim (kw_current->block->grid)
#endif
constexpr int warpSize = 32;

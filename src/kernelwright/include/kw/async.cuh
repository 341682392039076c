// Asynchronous copies from global to shared memory, without registers (compute capability 8.0).
#pragma once

namespace kw {

// Starts the copy of one object. The calling thread sees the data after copy_async_wait; other
// threads see it after a barrier that follows the wait. There is no asynchronous copy of fewer than
// 4 bytes: such an object is copied immediately.
template <typename T> __device__ __forceinline__ void copy_async(T *shared, const T *global) {
  if constexpr (sizeof(T) < 4) {
    *shared = *global;
  } else {
#ifdef __CUDA_ARCH__
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    if constexpr (sizeof(T) == 16)  // .cg bypasses L1: the data is not read from L1 again
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global),
                   "n"(sizeof(T))
                   : "memory");
#else
    *shared = *global;
#endif
  }
}

// Waits for all copies that this thread has started.
__device__ __forceinline__ void copy_async_wait() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Closes a group of copies: those that this thread has started since the previous group.
__device__ __forceinline__ void copy_async_commit() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all copy groups of this thread except the N most recent ones.
template <int N> __device__ __forceinline__ void copy_async_wait_all_but() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

}  // namespace kw

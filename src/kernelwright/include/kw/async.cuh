// Copies from global to shared memory that pass through no register (compute capability 8.0).
#pragma once

namespace kw {

// Start copying one object. The thread that started it sees it after copy_async_wait; other
// threads after a barrier that follows. Under 4 bytes there is no such copy: it is done at once.
template <typename T> __device__ __forceinline__ void copy_async(T *shared, const T *global) {
  if constexpr (sizeof(T) < 4) {
    *shared = *global;
  } else {
#ifdef __CUDA_ARCH__
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    if constexpr (sizeof(T) == 16)  // .cg: not through L1, nothing there would be read again
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

// Wait for every copy that this thread has started.
__device__ __forceinline__ void copy_async_wait() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Close a group: the copies that this thread has started since the last one.
__device__ __forceinline__ void copy_async_commit() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Wait for all groups of this thread but the youngest N.
template <int N> __device__ __forceinline__ void copy_async_wait_all_but() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

}  // namespace kw

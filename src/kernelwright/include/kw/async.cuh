// Copies from global to shared memory that pass through no register (compute capability 8.0).
#pragma once

namespace kw {

// Start copying one object. The thread that started it sees it after copy_async_wait; other
// threads after a barrier that follows. Under 4 bytes there is no such copy: it is done at once.
template <typename T> __device__ __forceinline__ void copy_async(T *shared, const T *global) {
  if constexpr (sizeof(T) < 4) {
    *shared = *global;
  } else {
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    if constexpr (sizeof(T) == 16)  // .cg: not through L1, nothing there would be read again
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global),
                   "n"(sizeof(T))
                   : "memory");
  }
}

// Wait for every copy that this thread has started.
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace kw

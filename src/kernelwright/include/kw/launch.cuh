// Programmatic dependent launch of two consecutive kernels, the second of which has `overlaps` in
// its plan: its blocks are scheduled while the last blocks of the first kernel are still running,
// and wait there. This hides part of the launch latency (compute capability 9.0; on older devices
// the second kernel simply starts later).
#pragma once

namespace kw {

// Called in the first kernel, near its end: the next kernel may start once every block has called
// this or has exited. If it is called earlier, waiting blocks occupy multiprocessors that have
// little room for them.
__device__ __forceinline__ void let_next_launch_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Called in the second kernel before it reads data that the first kernel has written: when it
// returns, all of that data is visible.
__device__ __forceinline__ void wait_for_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Called at the start of a short kernel between two others: does both.
__device__ __forceinline__ void in_turn() {
  wait_for_launch_before();
  let_next_launch_start();
}

}  // namespace kw

// Two launches that follow each other, the second with `overlaps` in its plan: its blocks are
// brought to the multiprocessors while the last of the first are at work, and wait there. That
// hides part of what a launch costs (compute capability 9.0; before, the second starts later).
#pragma once

namespace kw {

// In the first kernel, near its end: the next launch may start once every block has said so, or
// ended. Earlier, blocks that wait would stand where few multiprocessors have room for them.
__device__ __forceinline__ void let_next_launch_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// In the second, before it reads what the first has written: all of that is there when this
// returns.
__device__ __forceinline__ void wait_for_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// In a short kernel between two others, first of all: both.
__device__ __forceinline__ void in_turn() {
  wait_for_launch_before();
  let_next_launch_start();
}

}  // namespace kw

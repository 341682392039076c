// Detects the block that finishes last; it combines the results of all blocks in the same launch.
#pragma once

namespace kw {

// Acquire-release fence at GPU scope: other blocks see the memory accesses before it before those
// after it, which is sufficient to pass data to another block. __threadfence is also sequentially
// consistent and takes longer.
__device__ __forceinline__ void fence() {
#ifdef __CUDA_ARCH__
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
  __threadfence();
#endif
}

// Returns true in the last of `blocks` blocks that call it; that block then sees the results of all
// blocks. Every thread of a block calls it, after thread 0 has written the results or before a
// barrier. `arrived` starts at zero, and atomicInc resets it to zero in the last block, so it is
// ready for the next launch on the stream or the next replay of a graph.
__device__ __forceinline__ bool is_last_block(unsigned *arrived, unsigned blocks) {
  bool last = false;
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    fence();  // release: a block that sees the count sees this block's results
    last = atomicInc(arrived, blocks - 1) == blocks - 1;
    if (last) fence();  // acquire: the last block reads the others' results
  }
  return __syncthreads_or(last);
}

}  // namespace kw

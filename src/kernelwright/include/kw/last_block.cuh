// Detects the block that finishes last, which combines the results of all blocks in one launch.
#pragma once

namespace kw {

// Acquire-release fence at GPU scope: orders the memory accesses before it against those after it,
// as other blocks see them, which is enough to pass data to another block. __threadfence is also
// sequentially consistent, and takes longer.
__device__ __forceinline__ void fence() {
#ifdef __CUDA_ARCH__
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
  __threadfence();
#endif
}

// True in the last of `blocks` blocks to call this; that block then sees the results of all. Every
// thread of a block calls it, after the results are written by thread 0 or before a barrier.
// `arrived` starts at zero, and atomicInc wraps it to zero at the last block, so it is ready for
// the next launch on the stream or the next replay of a graph.
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

// Which block finishes last: how one launch combines what its blocks found.
#pragma once

namespace kw {

// Orders memory accesses before it against those after it, as other blocks see them, which is
// what handing over data takes. __threadfence also orders fences among all threads (sequential
// consistency), and waits longer for it.
__device__ __forceinline__ void fence() {
#ifdef __CUDA_ARCH__
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
  __threadfence();
#endif
}

// All threads of a block call this once its results are written: by thread 0, or before a
// barrier. True in the block that comes last of `blocks`, which then sees the results of all.
// `arrived` starts at zero, and atomicInc wraps it to zero at the last block: the next launch on
// the stream, or the next replay of a graph, finds it ready.
__device__ __forceinline__ bool arrive_last(unsigned *arrived, unsigned blocks) {
  bool last = false;
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    fence();  // whoever sees this block counted sees what it wrote
    last = atomicInc(arrived, blocks - 1) == blocks - 1;
    if (last) fence();  // and the last one reads only after it has seen
  }
  return __syncthreads_or(last);
}

}  // namespace kw

// Boxes in order, one after another, in one block.
//
// Idea: boxes are sorted by score by counting, for each, how many come before it. Then a block
// iterates over them: if a box is still kept, each thread compares it with later boxes, and marks
// those that it suppresses.
// Traffic: boxes and marks from L2, once for each box that is kept.
// Compared with `manual`: no matrix of all overlaps.
// Limit: one multiprocessor, and one barrier per box.
#include "order.cuh"

template <int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    nms_naive(const kw::Box *sorted, const int *order, unsigned char *gone, long long *keep,
              long long *total, int count, float threshold) {
  for (int i = threadIdx.x; i < count; i += BLOCK) gone[i] = 0, keep[i] = -1;
  __syncthreads();
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const bool suppressed = gone[i];
    if (!suppressed) {
      if (threadIdx.x == 0) keep[kept] = order[i];
      ++kept;
      const kw::Box box = sorted[i];
      for (int j = i + 1 + threadIdx.x; j < count; j += BLOCK)
        if (kw::overlap(box, sorted[j], threshold)) gone[j] = 1;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *total = kept;
}

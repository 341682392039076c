// The first of several launches: sorts boxes by score.
#pragma once
#include "boxes.cuh"

// LANES threads count how many boxes come before a box; this number is its position. The keys are
// read through shared memory, BLOCK at a time.
template <typename T, int LANES, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    nms_order(const T *boxes, const T *scores, kw::Box *sorted, int *order, int count,
              long long box_stride, long long score_stride) {
  __shared__ unsigned keys[BLOCK];
  const int i = (blockIdx.x * BLOCK + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
  const unsigned own = i < count ? kw::key_of(kw::to_float(scores[i * score_stride])) : 0;
  int before = 0;
  for (int start = 0; start < count; start += BLOCK) {
    const int mine = start + threadIdx.x;
    __syncthreads();
    if (mine < count) keys[threadIdx.x] = kw::key_of(kw::to_float(scores[mine * score_stride]));
    __syncthreads();
    const int here = min(BLOCK, count - start);
    for (int k = lane; k < here; k += LANES)
      before += keys[k] > own || (keys[k] == own && start + k < i);
  }
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) before += __shfl_xor_sync(kw::kAll, before, step);
  if (i >= count || lane) return;
  order[before] = i;
  sorted[before] = kw::load_box(boxes + i * box_stride);
}

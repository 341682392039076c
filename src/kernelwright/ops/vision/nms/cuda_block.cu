// Up to 1024 boxes in a single launch of one block.
//
// Idea: each thread counts how many boxes come before its own, which is the position of this box in
// shared memory, and continues with the box at the thread's own position. Warps take turns: for 32
// boxes, those that are kept are found by ballots, then every later thread compares its box with
// them.
// Traffic: boxes and scores read once, the result written once; everything else is in shared
// memory.
// Compared with `cuda_naive`: one launch, and one barrier per 32 boxes.
// Limit: launch latency; with more boxes, the arithmetic of one multiprocessor.
#include "boxes.cuh"

template <typename T, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    nms_block(const T *boxes, const T *scores, long long *keep, long long *total, int count,
              long long box_stride, long long score_stride, float threshold) {
  __shared__ kw::Box sorted[BLOCK];
  __shared__ unsigned keys[BLOCK];
  __shared__ int order[BLOCK];
  __shared__ unsigned kept[BLOCK / 32];
  const int i = threadIdx.x, lane = i % 32, warp = i / 32;
  if (i < count) keys[i] = kw::key_of(kw::to_float(scores[i * score_stride]));
  __syncthreads();
  if (i < count) {
    int before = 0;
    for (int k = 0; k < count; ++k) before += keys[k] > keys[i] || (keys[k] == keys[i] && k < i);
    order[before] = i;
    sorted[before] = kw::load_box(boxes + i * box_stride);
  }
  __syncthreads();
  const kw::Box own = i < count ? sorted[i] : kw::Box{};
  unsigned rivals = 0;  // earlier boxes of this warp that overlap it
  for (int k = 0; k < 32 && warp * 32 + k < count; ++k)
    if (k < lane && kw::overlap(sorted[warp * 32 + k], own, threshold)) rivals |= 1u << k;
  bool gone = i >= count;
  const int warps = (count + 31) / 32;
  for (int turn = 0; turn < warps; ++turn) {
    if (warp == turn) {
      const kw::Bits found = kw::resolve(__ballot_sync(kw::kAll, !gone), rivals, 0);
      if (lane == 0) kept[turn] = (unsigned)found;
    }
    __syncthreads();
    if (warp <= turn || gone) continue;
    for (unsigned left = kept[turn]; left && !gone; left &= left - 1)
      gone = kw::overlap(sorted[turn * 32 + __ffs(left) - 1], own, threshold);
  }
  int before = 0, all = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += __popc(kept[w]);
    all += __popc(kept[w]);
  }
  if (i == 0) *total = all;
  if (i >= count) return;
  if (i >= all) keep[i] = -1;
  if (kept[warp] >> lane & 1) keep[before + __popc(kept[warp] & ((1u << lane) - 1))] = order[i];
}

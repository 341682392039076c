// All pairs are compared by all multiprocessors; then one block processes groups of 64 boxes.
//
// Idea: after `nms_order`, a thread compares a box with 64 others and writes a word of bits. Within
// a group, a word has the bits of the boxes before. One block then decides one group after another:
// within it by ballots, a few for all 64 boxes; the words of the kept boxes are combined.
// Traffic: N * N / 16 bytes of words, written and at most read once, in L2.
// Compared with `cuda_naive`: comparisons by the whole GPU, one barrier per 64 boxes.
// Limit: the comparisons; the last launch, which waits for L2 once per group.
#include "order.cuh"

// The words of kGroup boxes by COLUMNS groups.
template <int COLUMNS>
__global__ void __launch_bounds__(kw::kGroup *COLUMNS)
    nms_bits(const kw::Box *sorted, kw::Bits *bits, int count, int words, float threshold) {
  __shared__ kw::Box columns[kw::kGroup * COLUMNS];
  const int row_group = blockIdx.y, first_group = blockIdx.x * COLUMNS;
  if (first_group + COLUMNS <= row_group) return;
  const int mine = first_group * kw::kGroup + threadIdx.x;
  if (mine < count) columns[threadIdx.x] = sorted[mine];
  __syncthreads();
  const int part = threadIdx.x / kw::kGroup, group = first_group + part;
  const int row = row_group * kw::kGroup + threadIdx.x % kw::kGroup;
  if (row >= count || group < row_group || group >= words) return;
  const kw::Box box = sorted[row];
  const int most = min(kw::kGroup, count - group * kw::kGroup);
  const int end = group == row_group ? threadIdx.x % kw::kGroup : most;
  kw::Bits word = 0;
  for (int k = 0; k < end; ++k)
    if (kw::overlap(box, columns[part * kw::kGroup + k], threshold)) word |= 1ull << k;
  bits[(long long)row * words + group] = word;
}

template <int WORDS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    nms_reduce(const kw::Bits *bits, const int *order, long long *keep, long long *total, int count,
               int words) {
  constexpr int WARPS = BLOCK / 32;
  __shared__ kw::Bits gone[WORDS], kept;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int w = threadIdx.x; w < words; w += BLOCK) gone[w] = 0;
  int all = 0;
  for (int group = 0; group < words; ++group) {
    const int first = group * kw::kGroup, a = first + lane, b = a + 32;
    __syncthreads();
    if (warp == 0) {
      const kw::Bits low = a < count ? bits[(long long)a * words + group] : 0;
      const kw::Bits high = b < count ? bits[(long long)b * words + group] : 0;
      const kw::Bits there = count - first < 64 ? (1ull << (count - first)) - 1 : ~0ull;
      const kw::Bits found = kw::resolve(there & ~gone[group], low, high);
      const kw::Bits before_a = (1ull << lane) - 1, before_b = before_a << 32 | kw::kAll;
      if (found >> lane & 1) keep[all + __popcll(found & before_a)] = order[a];
      if (found >> (lane + 32) & 1) keep[all + __popcll(found & before_b)] = order[b];
      all += __popcll(found);
      if (lane == 0) kept = found;
    }
    __syncthreads();
    const kw::Bits found = kept;
    for (int w = group + 1 + lane; w < words; w += 32) {
      kw::Bits joined = 0;
#pragma unroll
      for (int k = warp; k < kw::kGroup; k += WARPS)
        if (found >> k & 1) joined |= bits[(long long)(first + k) * words + w];
      if (joined) atomicOr(&gone[w], joined);
    }
  }
  if (warp) return;
  if (lane == 0) *total = all;
  for (int i = all + lane; i < count; i += 32) keep[i] = -1;
}

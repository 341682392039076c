// clustered.cuh with wgmma: four warps multiply 64 rows of the weight, which they hold in
// registers, by x in shared memory, which no warp loads to registers.
//
// The elements of the weight that a lane holds, and the positions of the sums, are the same as with
// mma.sync. The operands of the next step are prepared while the current one is multiplied.
#pragma once
#include "../clustered.cuh"
#include "warpgroup.cuh"

namespace few_rows {

// This block's steps of x as the right operand of wgmma: a turn of a step is two instructions of 16
// elements along k. Rows past those of x are not written: their columns of sums are never read.
template <class WEIGHTS, class SPLIT, typename T>
__device__ __forceinline__ void copy_x_for_wgmma(char *shared, const T *x, long long x_line,
                                                 int begin, int count, int m, int k) {
  const int lane = threadIdx.x % 32, q = lane % 4;
  const int all = count * WEIGHTS::kOfX * SPLIT::kBlocks;
#pragma unroll 4
  for (int at = threadIdx.x / 32; at < all; at += SPLIT::kThreads / 32) {
    const int turn = at / SPLIT::kBlocks, b = at % SPLIT::kBlocks, r = 8 * b + lane / 4;
    const int step = turn / WEIGHTS::kOfX, unit = WEIGHTS::unit(turn % WEIGHTS::kOfX, q);
    if (r >= m) continue;
    const int deep = (begin + step) * WEIGHTS::kDepth + 8 * unit;
    uint4 v = {};
    if (deep < k) v = *reinterpret_cast<const uint4 *>(x + r * x_line + deep);
    char *to = shared + (4 * turn * SPLIT::kBlocks + b) * 128 + lane / 4 * 16 + q * 4;
    const unsigned pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int p = 0; p < 4; p++)
      *reinterpret_cast<unsigned *>(to + p * SPLIT::kBlocks * 128) = pairs[p];
  }
}

// A step's operands: the left operand of every instruction, in registers.
template <typename T, class WEIGHTS> struct Operands {
  unsigned a[2 * WEIGHTS::kOfX][4];
  float scale[2];  // of both rows of a lane, if there are scales

  // The operands are computed before this point: instructions between two wgmma would separate
  // them.
  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int i = 0; i < 8 * WEIGHTS::kOfX; i++) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
  }
  __device__ __forceinline__ void load(const char *shared) {
    const int lane = threadIdx.x % 32;
    uint4 units[2][WEIGHTS::kUnits];
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int u = 0; u < WEIGHTS::kUnits; u++)
        units[h][u] =
            *reinterpret_cast<const uint4 *>(shared + (h * WEIGHTS::kUnits + u) * 512 + lane * 16);
    unsigned metas[2] = {};
    if constexpr (WEIGHTS::kScales > 0) {
      const char *of_rows = shared + 2 * WEIGHTS::kUnits * 512 + lane / 4 * 4;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        metas[h] = *reinterpret_cast<const unsigned *>(of_rows + 32 * h);
        scale[h] = WEIGHTS::scale(metas[h]);
      }
    }
    const typename WEIGHTS::Row low(metas[0]), high(metas[1]);
#pragma unroll
    for (int turn = 0; turn < WEIGHTS::kOfX; turn++) {
      const uint4 l = low.eight(units[0], turn), h = high.eight(units[1], turn);
      unsigned (&first)[4] = a[2 * turn], (&second)[4] = a[2 * turn + 1];
      first[0] = l.x, first[1] = h.x, first[2] = l.y, first[3] = h.y;
      second[0] = l.z, second[1] = h.z, second[2] = l.w, second[3] = h.w;
    }
  }
};

template <typename T, class WEIGHTS, class SPLIT, class STORE>
__device__ __forceinline__ void clustered_wgmma(const WEIGHTS &weights, const T *x,
                                                long long x_line, char *shared, int rings,
                                                int boxed, int m, int n, int k,
                                                const STORE &store) {
  static_assert(
      WEIGHTS::kScales <= 1 && SPLIT::kGroups == 1 && SPLIT::kAlongK == 1,
      "four neighboring warps multiply the same step of 64 rows, with one scale for each");
  constexpr int kBlocks = SPLIT::kBlocks, kColumns = 8 * kBlocks, kSums = 4 * kBlocks;
  constexpr int kOfStep = 2 * WEIGHTS::kOfX * kColumns * 32;  // bytes of x
  constexpr bool kScaled = WEIGHTS::kScales > 0;
  using Mma = WarpgroupMma<T, kColumns>;
  __shared__ kw::Mailbox boxes[2];
  const Part<WEIGHTS, SPLIT> part(weights.n, weights.k);
  Exchange<SPLIT> exchange(boxes, shared + boxed, m, n, part);

  kw::wait_for_launch_before();
  Ring<WEIGHTS, SPLIT> ring(weights, shared + rings, part.begin, part.count, part.tiles);
#pragma unroll
  for (int i = 0; i < SPLIT::kStages - 1; i++) ring.copy();
  copy_x_for_wgmma<WEIGHTS, SPLIT>(shared, x, x_line, part.begin, part.count, m, k);
  fence_shared_for_wgmma();
  __syncthreads();
  kw::let_next_launch_start();
  exchange.ready();

  int slot = 0;
  for (int turn = 0; turn < part.turns; turn++) {
    Sums<T, WEIGHTS, SPLIT> sums = {};
    float d[kSums] = {}, by[2] = {};  // of a group, or of all k if there are no scales
    const auto add = [&](bool last) {
      warpgroup_wait(d);
      if (!kScaled && !last) return;
#pragma unroll
      for (int i = 0; i < kSums; i++) {
        float &of = sums.of[0][i / 4][i % 4];
        of = kScaled ? fmaf(by[i / 2 % 2], d[i], of) : d[i];
      }
    };
    unsigned long long of_x = descriptor<kColumns>(shared);
    const auto multiply = [&](Operands<T, WEIGHTS> &operands) {
      kw::copy_async_wait_all_but<SPLIT::kStages - 2>();
      __syncwarp();  // other lanes' scales have arrived, and the previous slot is read
      ring.copy();
      operands.load(ring.slots + slot);
      slot = ring.next(slot);
      add(false);
      if constexpr (kScaled) by[0] = operands.scale[0], by[1] = operands.scale[1];
      operands.pin();
      warpgroup_fence();
#pragma unroll
      for (int i = 0; i < 2 * WEIGHTS::kOfX; i++)
        Mma::mma(d, operands.a[i], of_x + i * (kColumns * 32 / 16), i > 0 || !kScaled);
      warpgroup_commit();
      of_x += kOfStep / 16;
    };
    Operands<T, WEIGHTS> even, odd;
    for (int step = 1; step < part.count; step += 2) {
      multiply(even);
      multiply(odd);
    }
    if (part.count % 2) multiply(even);
    add(true);
    exchange.send(sums, turn);
    exchange.receive(turn, store);
  }
}

}  // namespace few_rows

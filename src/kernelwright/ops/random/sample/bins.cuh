// A histogram of a row's logits in the shared memory of a cluster, and the bins in which sums over
// it reach a limit.
#pragma once
#include "kw/cluster.cuh"
#include "kw/math.cuh"
#include "kw/radix.cuh"
#include "kw/reduce.cuh"
#include "kw/scan.cuh"

namespace kw {

// Bins of t = 1 + (most - x) scale, where `most` is the row's maximum and 2^(1 - t) a weight. The
// leading bits of t are the bin, 256 from one power of 2 to the next, so bins are finest where
// weights are large. Logits with t from 256 on are in no bin.
struct Bins {
  static constexpr unsigned kFirst = 0x3f800000u, kEnd = 0x43800000u, kShift = 15;
  static constexpr int kCount = (kEnd - kFirst) >> kShift;
  float most, scale;

  // The smallest t of a bin.
  static __device__ __forceinline__ float edge(unsigned bin) {
    return __uint_as_float(kFirst + (bin << kShift));
  }
  // A number below all logits of the bins before `bin`; close to those in `bin`. The relative
  // distance of 2^-21 and the two spacings exceed the rounding errors of t and of this result.
  __device__ __forceinline__ float below(unsigned bin) const {
    const float x = most - (edge(bin) * (1 + 0x1p-21f) - 1) / scale;
    return fmaxf(from_ordered(ordered(x) - 2), -kInfinity);  // -infinity instead of NaN
  }
  // A number above all logits that are in `bin`, or in no earlier one; at most `most`.
  __device__ __forceinline__ float above(unsigned bin) const {
    const float x = most - (edge(bin) * (1 - 0x1p-21f) - 1) / scale;
    return x < most ? fminf(from_ordered(ordered(x) + 2), most) : most;
  }
};

template <int THREADS, int BLOCKS> class Histogram {
 public:
  static constexpr int kCount = Bins::kCount, kWarps = THREADS / 32;
  struct Shared {
    unsigned long long pairs[kCount / 2];  // two counts each
    unsigned long long parts[BLOCKS > 1 ? kCount / 2 : 1];
    float of_warps[kWarps];
    unsigned found;
    Mailbox boxes[2];
  };

  // Called by every thread. ready() is called by every warp, converged, before merge().
  __device__ __forceinline__ explicit Histogram(Shared &shared) : shared_(shared) {
    for (int i = threadIdx.x; i < kCount / 2; i += THREADS) shared.pairs[i] = 0;
    if constexpr (BLOCKS > 1) Mailbox::open_all(shared.boxes, 0, [](int) { return false; });
    __syncthreads();
  }
  __device__ __forceinline__ void ready() {
    if constexpr (BLOCKS > 1) Mailbox::ready();
  }

  // Counts a logit, given 1 + (most - x) scale.
  __device__ __forceinline__ void add(float t) {
    const unsigned bits = __float_as_uint(t);
    if (bits < Bins::kEnd) atomicAdd(&counts()[(bits - Bins::kFirst) >> Bins::kShift], 1u);
  }

  // Adds up the counts of the cluster's blocks. Each block receives its part of the bins from all
  // blocks, and sends the sums to all of them.
  __device__ __forceinline__ void merge() {
    __syncthreads();
    if constexpr (BLOCKS > 1) {
      constexpr int kPart = kCount / 2 / BLOCKS;
      for (Mailbox &box : shared_.boxes) box.expect(sizeof(shared_.pairs));
      const int rank = cluster_rank();
      for (int i = threadIdx.x; i < kCount / 2; i += THREADS)
        shared_.boxes[0].send(&shared_.parts[rank * kPart + i % kPart], shared_.pairs[i],
                              i / kPart);
      shared_.boxes[0].wait();
      for (int i = threadIdx.x; i < kCount / 2; i += THREADS) {
        unsigned long long sum = 0;
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) sum += shared_.parts[b * kPart + i % kPart];
        shared_.boxes[1].send(&shared_.pairs[rank * kPart + i % kPart], sum, i / kPart);
      }
      shared_.boxes[1].wait();
    }
  }

  // The first bin with which the sum of count * value(bin) is not below the limit; kCount if there
  // is none. All threads call it.
  template <typename F> __device__ __forceinline__ unsigned reaches(float limit, const F &value) {
    constexpr int kEach = kCount / THREADS;
    const unsigned first = threadIdx.x * kEach;
    const auto mass = [&](int i) { return float(counts()[first + i]) * value(first + i); };
    float mine = 0, total;
#pragma unroll
    for (int i = 0; i < kEach; ++i) mine += mass(i);
    if (threadIdx.x == 0) shared_.found = kCount;
    const float scan = warp_scan<Adding<float>>(mine);
    float sum = before_lane<Adding<float>>(scan);
    sum += before_warp<Adding<float>, kWarps>(shuffle(scan, 31), shared_.of_warps, total);
    unsigned found = kCount;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      sum += mass(i);
      if (!(sum < limit)) found = min(found, first + i);
    }
    const unsigned some = __ballot_sync(0xffffffffu, found < kCount);
    if (some && int(threadIdx.x % 32) == __ffs(int(some)) - 1) atomicMin(&shared_.found, found);
    __syncthreads();
    found = shared_.found;
    __syncthreads();  // read by all before it is written again
    return found;
  }

  // The least number of the block's threads; none is negative.
  __device__ __forceinline__ float least(float of_warp) {
    if (threadIdx.x % 32 == 0) shared_.of_warps[threadIdx.x / 32] = of_warp;
    __syncthreads();
    return shared_.of_warps[threadIdx.x % kWarps];
  }

 private:
  __device__ __forceinline__ unsigned *counts() const {
    return reinterpret_cast<unsigned *>(shared_.pairs);
  }

  Shared &shared_;
};

}  // namespace kw

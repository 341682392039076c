// Reductions of 64-bit words over the threads of a block, or of all blocks of a cluster; every
// thread receives the result.
#pragma once
#include "kw/cluster.cuh"

namespace kw {

using Word = unsigned long long;

struct Highest {
  static constexpr Word kIdentity = 0;
  static __device__ __forceinline__ Word apply(Word a, Word b) { return a > b ? a : b; }
};
struct Lowest {
  static constexpr Word kIdentity = ~Word(0);
  static __device__ __forceinline__ Word apply(Word a, Word b) { return a < b ? a : b; }
};
struct Total {
  static constexpr Word kIdentity = 0;
  static __device__ __forceinline__ Word apply(Word a, Word b) { return a + b; }
};
// Two floats in one word.
struct Masses {
  static constexpr Word kIdentity = 0;
  static __device__ __forceinline__ Word word(float a, float b) {
    return Word(__float_as_uint(b)) << 32 | __float_as_uint(a);
  }
  static __device__ __forceinline__ float first(Word w) { return __uint_as_float(unsigned(w)); }
  static __device__ __forceinline__ float second(Word w) {
    return __uint_as_float(unsigned(w >> 32));
  }
  static __device__ __forceinline__ Word apply(Word a, Word b) {
    return word(first(a) + first(b), second(a) + second(b));
  }
};

// One barrier per reduction: two consecutive reductions use different memory, and the barrier of
// the one between separates the readers of a reduction from the writers of the one after the next.
// Blocks of a cluster send to each other under the same rule, as cluster.cuh describes.
template <int WARPS, int BLOCKS> class Team {
 public:
  struct Shared {
    Word of_warps[2][WARPS], of_blocks[2][BLOCKS];
    Mailbox boxes[2];
  };

  // Called by every thread, before work that needs no other block.
  __device__ __forceinline__ explicit Team(Shared &shared) : shared_(shared) {
    if constexpr (BLOCKS > 1) Mailbox::open_all(shared.boxes, 0, [](int) { return false; });
  }
  // Called by every warp, converged, before the first reduction.
  __device__ __forceinline__ void ready() {
    if constexpr (BLOCKS > 1) Mailbox::ready();
  }

  template <typename Op> __device__ __forceinline__ Word reduce(Word x) {
    const int at = turn_ % 2, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    x = among<Op>(x);
    if (lane == 0) shared_.of_warps[at][warp] = x;
    __syncthreads();
    x = among<Op>(lane < WARPS ? shared_.of_warps[at][lane] : Op::kIdentity);
    if constexpr (BLOCKS > 1) {
      Mailbox &box = shared_.boxes[at];
      box.expect(BLOCKS * sizeof(Word));
      if (warp == 0 && lane < BLOCKS) box.send(&shared_.of_blocks[at][cluster_rank()], x, lane);
      box.wait(turn_ / 2 % 2);
      x = shared_.of_blocks[at][0];
#pragma unroll
      for (int b = 1; b < BLOCKS; ++b) x = Op::apply(x, shared_.of_blocks[at][b]);
    }
    ++turn_;
    return x;
  }

 private:
  template <typename Op> static __device__ __forceinline__ Word among(Word x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
      x = Op::apply(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
  }

  Shared &shared_;
  unsigned turn_ = 0;
};

}  // namespace kw

// Scans: prefix totals under an associative operation. An operation has a State, an `identity` and
// a function `apply(earlier, later)`, which need not be commutative.
#pragma once
#include "kw/types.cuh"

namespace kw {

template <typename S> struct Adding {
  using State = S;
  static __device__ __forceinline__ State identity() { return S(0); }
  static __device__ __forceinline__ State apply(State a, State b) { return a + b; }
};
template <typename S> struct Multiplying {
  using State = S;
  static __device__ __forceinline__ State identity() { return S(1); }
  static __device__ __forceinline__ State apply(State a, State b) { return a * b; }
};

// Segmented sums, which restart where `begins` is not 0. No value is carried across such a
// position, not even NaN.
template <typename S> struct Segment {
  S sum, begins;
};
template <typename S> struct Segmented {
  using State = Segment<S>;
  static __device__ __forceinline__ State identity() { return {S(0), S(0)}; }
  static __device__ __forceinline__ State apply(State a, State b) {
    return b.begins != S(0) ? b : State{a.sum + b.sum, a.begins};
  }
};

// The function r -> scale * r + shift; the composition of such functions is a linear recurrence.
template <typename S> struct Line {
  S scale, shift;
};
template <typename S> struct Composing {
  using State = Line<S>;
  static __device__ __forceinline__ State identity() { return {S(1), S(0)}; }
  static __device__ __forceinline__ State apply(State a, State b) {
    if (a.scale == S(1) && a.shift == S(0)) return b;  // 0 * infinity would be NaN
    return {a.scale * b.scale, a.shift * b.scale + b.shift};
  }
};

// Converts a state to another precision.
template <typename S, typename From> __device__ __forceinline__ S state_as(From x) { return S(x); }
template <typename S, typename From>
__device__ __forceinline__ Segment<S> state_as(Segment<From> x) {
  return {S(x.sum), S(x.begins)};
}
template <typename S, typename From> __device__ __forceinline__ Line<S> state_as(Line<From> x) {
  return {S(x.scale), S(x.shift)};
}

// Shuffles a state from another lane, word by word.
template <typename State> __device__ __forceinline__ State shuffle_up(State x, int lanes) {
  unsigned words[sizeof(State) / 4];
  memcpy(words, &x, sizeof(State));
#pragma unroll
  for (unsigned &w : words) w = __shfl_up_sync(0xffffffffu, w, lanes);
  memcpy(&x, words, sizeof(State));
  return x;
}
template <typename State> __device__ __forceinline__ State shuffle(State x, int lane) {
  unsigned words[sizeof(State) / 4];
  memcpy(words, &x, sizeof(State));
#pragma unroll
  for (unsigned &w : words) w = __shfl_sync(0xffffffffu, w, lane);
  memcpy(&x, words, sizeof(State));
  return x;
}

// Inclusive scan over the lanes of a warp, in five steps, each of which doubles the number of lanes
// that a state covers (Hillis and Steele).
template <typename Op>
__device__ __forceinline__ typename Op::State warp_scan(typename Op::State x) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const auto earlier = shuffle_up(x, step);
    if (lane >= step) x = Op::apply(earlier, x);
  }
  return x;
}
// The exclusive result of a lane, from the inclusive scan.
template <typename Op>
__device__ __forceinline__ typename Op::State before_lane(typename Op::State inclusive) {
  const auto earlier = shuffle_up(inclusive, 1);
  return threadIdx.x % 32 ? earlier : Op::identity();
}

// For a 1-D block of WARPS warps with one state each: the combined state of the preceding warps,
// and the total of the block. `states` holds WARPS states.
template <typename Op, int WARPS>
__device__ __forceinline__ typename Op::State before_warp(typename Op::State of_warp,
                                                          typename Op::State *states,
                                                          typename Op::State &total) {
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) states[warp] = of_warp;
  __syncthreads();
  auto before = Op::identity();
  total = Op::identity();
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    if (w == warp) before = total;
    total = Op::apply(total, states[w]);
  }
  return before;
}

}  // namespace kw

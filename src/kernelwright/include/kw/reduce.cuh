// Reductions over a warp and over a block; the result reaches every thread.
#pragma once

namespace kw {

struct Sum {
  template <typename T> static __device__ __forceinline__ T identity() { return T(0); }
  template <typename T> static __device__ __forceinline__ T apply(T a, T b) { return a + b; }
};
struct Max {
  template <typename T> static __device__ __forceinline__ T identity() { return T(-INFINITY); }
  // NaN wins, as in PyTorch: fmaxf would drop it
  template <typename T> static __device__ __forceinline__ T apply(T a, T b) {
    return (a > b || a != a) ? a : b;
  }
};

// WIDTH lanes (a power of two up to 32) reduce among themselves by butterfly.
template <typename Op, int WIDTH = 32, typename T> __device__ __forceinline__ T warp_reduce(T x) {
#pragma unroll
  for (int lane = WIDTH / 2; lane > 0; lane /= 2)
    x = Op::template apply<T>(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}

// All threads of a 1-D block (a multiple of 32) reduce; `scratch` holds 32 values. The barrier at
// the start lets a caller reduce twice with one scratch.
template <typename Op, typename T> __device__ __forceinline__ T block_reduce(T x, T *scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  x = warp_reduce<Op>(x);
  __syncthreads();
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = lane < warps ? scratch[lane] : Op::template identity<T>();
  return warp_reduce<Op>(x);
}

}  // namespace kw

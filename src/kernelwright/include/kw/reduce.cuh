// Reductions over a warp and over a block; every thread receives the result.
#pragma once

namespace kw {

constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000);  // NVRTC has no INFINITY

// The maximum; NaN if either operand is NaN, as in PyTorch. fmaxf would return the other operand.
__device__ __forceinline__ float max_nan(float a, float b) {
#ifdef __CUDA_ARCH__
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return (a > b || a != a) ? a : b;
#endif
}

struct Sum {
  template <typename T> static __device__ __forceinline__ T identity() { return T(0); }
  template <typename T> static __device__ __forceinline__ T apply(T a, T b) { return a + b; }
};
struct Max {
  template <typename T> static __device__ __forceinline__ T identity() { return T(-kInfinity); }
  template <typename T> static __device__ __forceinline__ T apply(T a, T b) {
    return (a > b || a != a) ? a : b;
  }
  static __device__ __forceinline__ float apply(float a, float b) { return max_nan(a, b); }
};

// WIDTH lanes (a power of two up to 32) reduce their values by a butterfly exchange. All 32 lanes
// of the warp must call it.
template <typename Op, int WIDTH = 32, typename T> __device__ __forceinline__ T warp_reduce(T x) {
#pragma unroll
  for (int lane = WIDTH / 2; lane > 0; lane /= 2)
    x = Op::apply(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}

// All threads of a 1-D block (a multiple of 32) reduce; `scratch` holds 32 values. Because of the
// barrier at the start, a caller can use the same scratch for two reductions in a row.
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

// Elementwise functions of a few instructions, for kernels that would otherwise be limited by issue
// slots. Inline PTX appears only in functions that also have a body for the CPU.
#pragma once

namespace kw {

// 2^x in one instruction: relative error 2^-22; results below 2^-126 are flushed to 0.
__device__ __forceinline__ float fast_exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

// 1 / x in one instruction: relative error 2^-23; results below 2^-126 are flushed to 0.
__device__ __forceinline__ float fast_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

// 1 / x rounded to nearest, for x and 1 / x that are normal numbers: the instructions that a
// division compiles to, without its branch for other numbers.
__device__ __forceinline__ float normal_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  const float y = fast_reciprocal(x);
  return fmaf(y, fmaf(-x, y, 1.0f), y);
#else
  return 1.0f / x;
#endif
}

// 1 / x for a result stored as T: the rounding of a 16-bit type hides the error of one instruction.
template <typename T> __device__ __forceinline__ float reciprocal(float x) {
  if constexpr (sizeof(T) == 4) return 1.0f / x;
  return fast_reciprocal(x);
}

// c[0] + c[1] x + ... by Horner's method.
template <int N> __device__ __forceinline__ float polynomial(const float (&c)[N], float x) {
  float y = c[N - 1];
#pragma unroll
  for (int i = N - 2; i >= 0; --i) y = fmaf(y, x, c[i]);
  return y;
}

}  // namespace kw

// gelu and its slope, for results stored as T. Coefficients: `python -m kernelwright.ops.gelu.fit`.
//
// At copy speed an H200 has about 31 issue slots for each 16-bit element, and erff takes 30. But
// gelu(x) = max(x, 0) - t Phi(-t) with t = |x|, and log2 Phi(-t) is so smooth that a polynomial
// of degree 7 holds it to a part of a 16-bit ulp: one exponential instead of an error function,
// and no 1 + erf that would cancel in the negative tail. float32 has twice the slots and takes
// erff.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "kw/math.cuh"

namespace kw {

// Phi(-t) up to where results of type T end. CUDA folds the tables into the instructions.
template <typename T> struct NormalTail;
template <> struct NormalTail<__half> {
  static constexpr float kTop = 5.8f;
  static __device__ __forceinline__ float log2(float t) {
    constexpr float c[] = {-0.999995291f, -1.15125036f,     -0.458466858f,   -0.0539566875f,
                           0.0085057579f, -0.000929852482f, 6.14956007e-05f, -1.82876704e-06f};
    return polynomial(c, t);
  }
  // log2 of gelu'(-t) / (kRoot - t)
  static __device__ __forceinline__ float log2_slope(float t) {
    constexpr float c[] = {-0.588410258f,  -0.383051217f,   -0.561219394f,   -0.0540831648f,
                           0.0143600935f,  -0.00286333077f, 0.000405341416f, -3.78979348e-05f,
                           2.0785576e-06f, -5.03419244e-08f};
    return polynomial(c, t);
  }
};
template <> struct NormalTail<__nv_bfloat16> {
  static constexpr float kTop = 13.2f;
  static __device__ __forceinline__ float log2(float t) {
    constexpr float c[] = {-1.00078189f,   -1.14293218f,     -0.472946614f, -0.0444063917f,
                           0.00545576168f, -0.000418445648f, 1.781629e-05f, -3.19470161e-07f};
    return polynomial(c, t);
  }
  static __device__ __forceinline__ float log2_slope(float t) {
    constexpr float c[] = {-0.588557899f,   -0.380485564f,   -0.568524539f,   -0.0460636728f,
                           0.00991871674f,  -0.00146576553f, 0.000143261117f, -8.78630726e-06f,
                           3.04978357e-07f, -4.5589208e-09f};
    return polynomial(c, t);
  }
};

// x Phi(x), Phi the normal distribution
template <typename T> __device__ __forceinline__ float gelu_erf(float x) {
  const float t = fminf(fabsf(x), NormalTail<T>::kTop), half = 0.5f * x;
  // half + |half| is max(x, 0), and NaN for -inf, as in x (1 + erf(x))
  return fmaf(-t, fast_exp2(NormalTail<T>::log2(t)), half + fabsf(half));
}
template <> __device__ __forceinline__ float gelu_erf<float>(float x) {
  return 0.5f * x * (1.0f + erff(0.70710678f * x));
}

// Phi(x) + x phi(x). It is 1 - d(-x), and for x = -t it is (root - t) 2^log2_slope(t).
template <typename T> __device__ __forceinline__ float gelu_erf_slope(float x) {
  constexpr float kRoot = 0.751791525f;
  const float e = fast_exp2(NormalTail<T>::log2_slope(fabsf(x)));
  const float side = copysignf(0.5f, x);  // copysign(kRoot, x) - x is +-(kRoot - t)
  return fmaf(x - 2.0f * kRoot * side, e, side + 0.5f);
}
template <> __device__ __forceinline__ float gelu_erf_slope<float>(float x) {
  const float cdf = 0.5f * (1.0f + erff(0.70710678f * x));
  return fmaf(x, 0.39894228f * expf(-0.5f * x * x), cdf);
}

// x (1 + tanh u) / 2 = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3). The right side
// needs no tanh and does not cancel.
constexpr float kTanhA = -2.30220820f,
                kTanhB = -0.102943240f;                       // -2 log2(e) sqrt(2/pi) {1, 0.044715}
constexpr float kTanhC = 1.59576912f, kTanhD = 0.214064449f;  // 2 sqrt(2/pi) {1, 3 * 0.044715}

__device__ __forceinline__ float tanh_gate(float x, float xx) {
  return fast_reciprocal(1.0f + fast_exp2(x * fmaf(xx, kTanhB, kTanhA)));
}
__device__ __forceinline__ float gelu_tanh(float x) { return x * tanh_gate(x, x * x); }

// s + x s (1 - s) 2u': the small factors first, so that a huge x meets a zero and not an infinity
__device__ __forceinline__ float gelu_tanh_slope(float x) {
  const float xx = x * x, s = tanh_gate(x, xx);
  return fmaf(x * fmaf(-s, s, s), fmaf(xx, kTanhD, kTanhC), s);
}

template <typename T, bool TANH> __device__ __forceinline__ float gelu(float x) {
  if constexpr (TANH) return gelu_tanh(x);
  return gelu_erf<T>(x);
}
template <typename T, bool TANH> __device__ __forceinline__ float gelu_slope(float x) {
  if constexpr (TANH) return gelu_tanh_slope(x);
  return gelu_erf_slope<T>(x);
}

}  // namespace kw

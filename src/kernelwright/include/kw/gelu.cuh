// gelu and its slope, for results stored as T; ops/elementwise/gelu/fit.py prints the tables.
//
// In the time in which an H200 copies a 16-bit element it has about 31 issue slots, and erff takes
// 30. But gelu(x) = max(x, 0) - t Phi(-t) with t = |x|, and log2 Phi(-t) is so smooth that a
// polynomial of degree 7 approximates it to a fraction of a 16-bit ulp. This takes one exponential
// instead of an error function, and there is no sum 1 + erf that would cancel in the negative tail.
// float32 has twice as many issue slots and uses erff.
//
// The slope is 1 - d(-x), where d(-t) = (root - t) 2^W(t) and W is equally smooth. This form is
// exact at the zero of the slope, where Phi(x) + x phi(x) has lost all significant digits. float32
// uses a longer polynomial for W.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "kw/math.cuh"

namespace kw {

// The coefficients for the argument TIMES t, plus log2(TIMES); they are computed at compile time.
template <int TIMES, int N>
__device__ __forceinline__ float log2_of_multiple(const float (&c)[N], float t) {
  static_assert(TIMES == 1 || TIMES == 2, "log2(TIMES) is 0 or 1");
  float of_t[N], power = 1.0f;
#pragma unroll
  for (int k = 0; k < N; ++k, power *= TIMES) of_t[k] = c[k] * power;
  if (TIMES == 2) of_t[0] += 1.0f;
  return polynomial(of_t, t);
}

template <typename T> struct GeluTables;
template <> struct GeluTables<float> {
  static __device__ __forceinline__ float log2_slope(float t) {
    constexpr float c[] = {-0.588404536f,    -0.383200765f,   -0.560582697f,    -0.0550958849f,
                           0.015103233f,     -0.00309358537f, 0.000384759507f,  4.68700773e-06f,
                           -1.41800401e-05f, 3.34902256e-06f, -4.42889444e-07f, 3.68679771e-08f,
                           -1.91303928e-09f, 5.65999157e-11f, -7.29731271e-13f};
    return polynomial(c, t);
  }
};
template <> struct GeluTables<__half> {
  static constexpr float kTop = 5.8f;  // above it t Phi(-t) rounds to 0
  template <int TIMES = 1> static __device__ __forceinline__ float log2_tail(float t) {
    constexpr float c[] = {-0.999995351f,  -1.15125036f,     -0.458466887f,  -0.0539566651f,
                           0.00850574393f, -0.000929848931f, 6.1495135e-05f, -1.82874328e-06f};
    return log2_of_multiple<TIMES>(c, t);
  }
  static __device__ __forceinline__ float log2_slope(float t) {
    constexpr float c[] = {-0.588410258f,   -0.383051217f,   -0.561219394f,   -0.0540831797f,
                           0.0143601047f,   -0.00286333542f, 0.000405342522f, -3.7898084e-05f,
                           2.07856874e-06f, -5.0342269e-08f};
    return polynomial(c, t);
  }
};
template <> struct GeluTables<__nv_bfloat16> {
  static constexpr float kTop = 14.5f;
  template <int TIMES = 1> static __device__ __forceinline__ float log2_tail(float t) {
    constexpr float c[] = {-1.00078189f,   -1.14293253f,     -0.472946197f,  -0.0444065966f,
                           0.00545580825f, -0.000418451091f, 1.7816601e-05f, -3.19477067e-07f};
    return log2_of_multiple<TIMES>(c, t);
  }
  static __device__ __forceinline__ float log2_slope(float t) {
    constexpr float c[] = {-0.588557899f,   -0.380485713f,   -0.568524182f,  -0.0460639521f,
                           0.00991883036f,  -0.0014657916f,  0.00014326458f, -8.78657465e-06f,
                           3.04989442e-07f, -4.55911131e-09f};
    return polynomial(c, t);
  }
};

// x Phi(x), where Phi is the normal distribution function.
template <typename T> __device__ __forceinline__ float gelu_erf(float x) {
  const float t = fminf(fabsf(x), GeluTables<T>::kTop), half = 0.5f * x;
  // half + |half| is max(x, 0), and NaN for -inf, as in x (1 + erf(x))
  return fmaf(-t, fast_exp2(GeluTables<T>::log2_tail(t)), half + fabsf(half));
}
template <> __device__ __forceinline__ float gelu_erf<float>(float x) {
  return 0.5f * x * (1.0f + erff(0.70710678f * x));
}

// Phi(x) + x phi(x).
template <typename T> __device__ __forceinline__ float gelu_erf_slope(float x) {
  constexpr float kRoot = 0.751791525f, kRootLow = -1.2114449e-08f;  // the root to 48 bits
  const float e = fast_exp2(GeluTables<T>::log2_slope(fabsf(x)));
  const float side = copysignf(0.5f, x);
  float a = fmaf(-2.0f * kRoot, side, x);  // +-(t - root)
  if constexpr (sizeof(T) == 4) a = fmaf(-2.0f * kRootLow, side, a);
  return fmaf(a, e, side + 0.5f);
}

// x s(x), s = (1 + tanh u) / 2 = 1 / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3). The form
// with an exponential needs no tanh and does not cancel; float32 keeps tanhf, whose error is one
// ulp smaller.
__device__ __forceinline__ float tanh_gate(float x, float xx) {
  const float minus_2u = x * fmaf(xx, -0.10294324f, -2.3022082f);  // times log2(e)
  return fast_reciprocal(1.0f + fast_exp2(minus_2u));
}
template <typename T> __device__ __forceinline__ float gelu_tanh(float x) {
  return x * tanh_gate(x, x * x);
}
template <> __device__ __forceinline__ float gelu_tanh<float>(float x) {
  const float u = 0.79788456f * (x + 0.044715f * (x * x * x));
  return 0.5f * x * (1.0f + tanhf(u));
}

// s + x s (1 - s) 2u'. The small factors are multiplied first and x^2 is bounded, so that for a
// huge x the product is 0 and not 0 times infinity.
template <typename T> __device__ __forceinline__ float gelu_tanh_slope(float x) {
  const float xx = fminf(x * x, 1e30f), s = tanh_gate(x, xx);
  return fmaf(x * fmaf(-s, s, s), fmaf(xx, 0.21406445f, 1.5957691f), s);
}
template <> __device__ __forceinline__ float gelu_tanh_slope<float>(float x) {
  const float xx = fminf(x * x, 1e30f), tanh = tanhf(0.79788456f * (x + 0.044715f * (xx * x)));
  const float left = 0.5f * x, right = 1.0f + tanh;
  const float inner = 0.79788456f * (1.0f + 0.134145f * xx);
  return 0.5f * right + left * (1.0f - tanh * tanh) * inner;
}

template <typename T, bool TANH> __device__ __forceinline__ float gelu(float x) {
  if constexpr (TANH) return gelu_tanh<T>(x);
  return gelu_erf<T>(x);
}
template <typename T, bool TANH> __device__ __forceinline__ float gelu_slope(float x) {
  if constexpr (TANH) return gelu_tanh_slope<T>(x);
  return gelu_erf_slope<T>(x);
}

// gelu(2 h). If the argument is a product, the caller can halve one of its factors in advance,
// which saves the multiplication by one half here.
template <typename T, bool TANH> __device__ __forceinline__ float gelu_twice(float h) {
  if constexpr (TANH) {
    return gelu_tanh<T>(h + h);
  } else if constexpr (sizeof(T) == 4) {
    return fmaf(h, erff(1.41421356f * h), h);
  } else {
    const float t = fminf(fabsf(h), 0.5f * GeluTables<T>::kTop);
    return fmaf(-t, fast_exp2(GeluTables<T>::template log2_tail<2>(t)), h + fabsf(h));
  }
}

}  // namespace kw

// sigmoid, silu, tanh and their derivatives, for results stored as T.
//
// All of them use e^-|x|, which never overflows, so that the negative tail keeps its precision: in
// the form 1 / (1 + e^-x), the result would be 0 from x = -88.8 on, where silu's float32 and
// bfloat16 results are still normal numbers. 16-bit types compute it with one ex2 and divide with
// one rcp; float32 kernels have enough issue slots for expf and a division.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "kw/math.cuh"

namespace kw {

// e^-|x|. ex2 flushes values below 2^-126 to zero, so this computes 2^16 times the value.
template <typename T> __device__ __forceinline__ float exp_minus_abs(float x) {
  return 1.52587890625e-5f * fast_exp2(fmaf(fabsf(x), -1.4426950f, 16.0f));
}
template <> __device__ __forceinline__ float exp_minus_abs<float>(float x) {
  return expf(-fabsf(x));
}

template <typename T> __device__ __forceinline__ float sigmoid(float x) {
  const float e = exp_minus_abs<T>(x);
  return (x < 0.0f ? e : 1.0f) * reciprocal<T>(1.0f + e);
}

// x sigmoid(x)
template <typename T> __device__ __forceinline__ float silu(float x) {
  const float e = exp_minus_abs<T>(x);
  return x * (x < 0.0f ? e : 1.0f) * reciprocal<T>(1.0f + e);
}

// silu(x) and its slope s (1 + x (1 - s)), s = sigmoid(x). 1 - s is computed as sigmoid(-x), which
// does not cancel.
struct ValueAndSlope {
  float value, slope;
};
template <typename T> __device__ __forceinline__ ValueAndSlope silu_and_slope(float x) {
  const float e = exp_minus_abs<T>(x), r = reciprocal<T>(1.0f + e), er = e * r;
  const float s = x < 0.0f ? er : r, rest = x < 0.0f ? r : er;
  return {x * s, s * fmaf(x, rest, 1.0f)};
}

// tanh(x). 1 - 2 / (1 + e^2x) cancels near 0; there x (15 + x^2) / (15 + 6 x^2), from Lambert's
// continued fraction, is accurate to the precision of a 16-bit type.
template <typename T> __device__ __forceinline__ float tanh(float x) {
  const float xx = x * x;
  const float near = x * fmaf(xx, 1.0f, 15.0f) * fast_reciprocal(fmaf(xx, 6.0f, 15.0f));
  const float e = fast_exp2(2.8853901f * fabsf(x));
  const float far = copysignf(fmaf(-2.0f, fast_reciprocal(1.0f + e), 1.0f), x);
  return xx < 0.0625f ? near : far;
}
template <> __device__ __forceinline__ float tanh<float>(float x) { return tanhf(x); }

}  // namespace kw

// What is applied to a sum of products before it is stored to c.
#pragma once
#include "../../elementwise/activations.cuh"
#include "kw/gelu.cuh"
#include "kw/types.cuh"

namespace matmul {

struct Nothing {
  template <int N> __device__ __forceinline__ void operator()(float (&)[N], int, int, int) const {}
};

enum Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu };

template <Activation ACTIVATION, typename T> __device__ __forceinline__ float activated(float z) {
  if constexpr (ACTIVATION == kRelu) return z < 0.0f ? 0.0f : z;  // NaN remains NaN
  if constexpr (ACTIVATION == kGelu) return kw::gelu<T, false>(z);
  if constexpr (ACTIVATION == kGeluTanh) return kw::gelu<T, true>(z);
  if constexpr (ACTIVATION == kSilu) return kw::silu<T>(z);
  return z;
}

// y = activation(z + bias) * gate + residual, without null operands; z + bias is kept in z.
template <Activation ACTIVATION, typename T> struct Linear {
  const T *bias, *gate, *residual;
  T *z;

  // Stores N adjacent elements of row `row`, from column `col` of n on.
  template <int N>
  __device__ __forceinline__ void operator()(float (&v)[N], int row, int col, int n) const {
    const long long at = static_cast<long long>(row) * n + col;
#pragma unroll
    for (int i = 0; i < N; i++) {
      if (bias) v[i] += kw::to_float(bias[col + i]);
      if (z) z[at + i] = kw::from_float<T>(v[i]);
      v[i] = activated<ACTIVATION, T>(v[i]);
      if (gate) v[i] *= kw::to_float(gate[at + i]);
      if (residual) v[i] += kw::to_float(residual[at + i]);
    }
  }
};

}  // namespace matmul

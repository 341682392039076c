// What is done to a product's sums before they are rounded and stored.
#pragma once
#include "../../../elementwise/activations.cuh"
#include "kw/gelu.cuh"
#include "kw/tensor_map.cuh"
#include "kw/types.cuh"

namespace kw {

// A thread of a warp group holds columns 8 j + first_column() of a tile and the next ones.
__device__ __forceinline__ int first_column() { return threadIdx.x % 4 * 2; }

enum Activation { NONE, RELU, GELU, GELU_TANH, SILU };

template <typename T, int ACTIVATION> __device__ __forceinline__ float activation(float z) {
  if constexpr (ACTIVATION == RELU) return z < 0.0f ? 0.0f : z;  // NaN remains NaN
  if constexpr (ACTIVATION == GELU) return gelu<T, false>(z);
  if constexpr (ACTIVATION == GELU_TANH) return gelu<T, true>(z);
  if constexpr (ACTIVATION == SILU) return silu<T>(z);
  return z;
}

// Two 16-bit values in a register.
template <typename T> __device__ __forceinline__ unsigned packed(float2 v) {
  const auto rounded = Pair<T>::from(v.x, v.y);
  unsigned bits;
  memcpy(&bits, &rounded, 4);
  return bits;
}
template <typename T> __device__ __forceinline__ float2 unpacked(unsigned bits) {
  typename Pair<T>::type pair;
  memcpy(&pair, &bits, 4);
  return to_float2(pair);
}

// C = A B
struct Plain {
  static constexpr bool kBias = false, kGate = false, kResidual = false, kKeep = false;
  static constexpr int kLoads = 0;
  __device__ __forceinline__ float2 operator()(float2 v, unsigned, unsigned) const { return v; }
};

// y = activation(z) gate + residual, z = A B + bias. gate and residual are read through tensor
// maps, one box for each box of y; z is stored too if KEEP is set.
template <typename T, int ACTIVATION, bool BIAS, bool GATE, bool RESIDUAL, bool KEEP>
struct Linear {
  static constexpr bool kBias = BIAS, kGate = GATE, kResidual = RESIDUAL, kKeep = KEEP;
  static constexpr int kLoads = GATE + RESIDUAL;
  const TensorMap &gate, &residual, &z;
  const T *bias;
  int n;

  __device__ __forceinline__ float2 operator()(float2 v, unsigned times, unsigned plus) const {
    v = {activation<T, ACTIVATION>(v.x), activation<T, ACTIVATION>(v.y)};
    if constexpr (GATE) {
      const float2 g = unpacked<T>(times);
      v = {v.x * g.x, v.y * g.y};
    }
    if constexpr (RESIDUAL) {
      const float2 r = unpacked<T>(plus);
      v = {v.x + r.x, v.y + r.y};
    }
    return v;
  }
};

// The bias of column `col` and the next one, in one register; 0 past the last column.
template <typename Epilogue>
__device__ __forceinline__ unsigned bias_of(const Epilogue &epilogue, int col) {
  if constexpr (Epilogue::kBias)
    if (col < epilogue.n) return *reinterpret_cast<const unsigned *>(epilogue.bias + col);
  return 0;
}

}  // namespace kw

// A row that a block reads again in each pass.
#pragma once
#include "rejection.cuh"

namespace kw {

template <typename T, int THREADS> struct RowInMemory {
  static constexpr int kWidth = kVecWidth<T>;
  using Values = const float (&)[kWidth];
  const T *row;
  int columns;
  bool aligned, infinite;

  template <typename F> __device__ __forceinline__ void each(const F &f) const {
    for (int col = threadIdx.x * kWidth; col < columns; col += THREADS * kWidth) {
      float x[kWidth];
      to_float(load_logits(row, col, columns, aligned), x);
#pragma unroll
      for (float &one : x) one = clean(one);
      f(col, x);
    }
  }
  template <int N>
  __device__ __forceinline__ void count(const float (&pivot)[N], unsigned (&found)[N]) const {
    each([&](int, Values x) {
      for (const float one : x)
#pragma unroll
        for (int j = 0; j < N; ++j) found[j] += one >= pivot[j];
    });
  }
  __device__ __forceinline__ float at(unsigned col) const { return clean(to_float(row[col])); }
  __device__ __forceinline__ void keep_infinities() { infinite = true; }

 private:
  __device__ __forceinline__ float clean(float x) const {
    if (infinite) return x == kInfinity ? 0.0f : -kInfinity;
    return logit(x);
  }
};

}  // namespace kw

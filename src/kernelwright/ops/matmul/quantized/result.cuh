// Where a product with a quantized weight stores its sums.
#pragma once
#include "kw/types.cuh"

namespace few_rows {

template <typename T> struct Biased {
  const T *bias;  // or null
  T *y;
  __device__ __forceinline__ void operator()(float sum, int i, int r, int n) const {
    if (bias) sum += kw::to_float(bias[i]);
    y[static_cast<long long>(r) * n + i] = kw::from_float<T>(sum);
  }
};

}  // namespace few_rows

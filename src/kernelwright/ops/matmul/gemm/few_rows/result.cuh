// Where a kernel for few rows stores its sums. `i` counts rows of the weight, `r` rows of x.
#pragma once
#include "../epilogue.cuh"

namespace few_rows {

// c = a b: the weight may be either operand, so c has a stride for each of the two.
template <typename T> struct Product {
  T *c;
  long long i_stride, r_stride;
  __device__ __forceinline__ void operator()(float sum, int i, int r, int) const {
    c[i * i_stride + r * r_stride] = kw::from_float<T>(sum);
  }
};

// y = activation(x weight^T + bias) gate + residual
template <matmul::Activation ACTIVATION, typename T> struct Linear {
  matmul::Linear<ACTIVATION, T> epilogue;
  T *y;
  __device__ __forceinline__ void operator()(float sum, int i, int r, int n) const {
    float v[1] = {sum};
    epilogue(v, r, i, n);
    y[static_cast<long long>(r) * n + i] = kw::from_float<T>(v[0]);
  }
};

}  // namespace few_rows

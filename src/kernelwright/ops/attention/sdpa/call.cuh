// A call of attention as CUDA C++ kernels see it; `Call.packed` in cuda.py fills it in.
#pragma once
#include "kw/types.cuh"

namespace attention {

// Elements from one batch, head, row and column to the next.
struct Strides {
  long long b, h, row, col;
  __host__ __device__ long long at(long long head, int heads, int group) const {
    return head / heads * b + head % heads / group * h;
  }
};

struct Call {
  Strides q, k, v, y;
  int heads, group;  // heads of q, and how many of them share one of k and v
  int length, s, d, dv;

  // Keys that a query sees.
  template <bool CAUSAL> __device__ __forceinline__ int seen(int row) const {
    return CAUSAL ? min(s, row + 1) : s;
  }
};

}  // namespace attention

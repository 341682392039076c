// A call of attention in the form that CUDA C++ kernels take; filled in by `Call.packed` in
// cuda.py.
#pragma once
#include "kw/types.cuh"

namespace attention {

// Elements between batches, heads, rows and columns.
struct Strides {
  long long b, h, row, col;
  __host__ __device__ long long at(long long head, int heads, int group) const {
    return head / heads * b + head % heads / group * h;
  }
};

struct Call {
  Strides q, k, v, y;
  int heads, group;  // heads of q; how many of them share a head of k and v
  int length, s, d, dv;

  // The number of keys that a query sees.
  template <bool CAUSAL> __device__ __forceinline__ int seen(int row) const {
    return CAUSAL ? min(s, row + 1) : s;
  }
};

}  // namespace attention

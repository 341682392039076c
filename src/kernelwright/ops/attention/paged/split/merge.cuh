// The merge of parts of a softmax: sums of weighted values, each relative to its own maximum.
#pragma once
#include "kw/math.cuh"
#include "kw/reduce.cuh"

namespace split {

// Weights are exp2(score - top); `total` is their sum.
struct State {
  float top, total;
};

__device__ __forceinline__ float weight(float top, float highest) {
  return top == -kw::kInfinity ? 0.0f : kw::fast_exp2(top - highest);
}

// `count` parts of some queries: sums of `pitch` floats a query.
struct Parts {
  const float *sums;
  const State *states;
  int count, queries, pitch;

  __device__ __forceinline__ State state(int part, int query) const {
    return states[part * queries + query];
  }
  // Four sums of all parts, in their order.
  __device__ __forceinline__ float4 merged(int query, int dim, State &of) const {
    of = {-kw::kInfinity, 0.0f};
#pragma unroll 16
    for (int i = 0; i < count; i++) of.top = fmaxf(of.top, state(i, query).top);
    float4 y = {};
#pragma unroll 16
    for (int i = 0; i < count; i++) {
      const State part = state(i, query);
      const auto at = (static_cast<long long>(i) * queries + query) * pitch + dim;
      const float4 x = *reinterpret_cast<const float4 *>(sums + at);
      const float w = weight(part.top, of.top);
      of.total += w * part.total;
      y = {y.x + w * x.x, y.y + w * x.y, y.z + w * x.z, y.w + w * x.w};
    }
    return y;
  }
};

}  // namespace split

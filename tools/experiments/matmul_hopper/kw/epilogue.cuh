// What becomes of a matrix product's results, two neighbours of a row at a time, before they are
// rounded and stored. Columns<PAIRS> holds what a thread needs of its columns, `first` and the
// next, 8 later and the next, ...: it is loaded before the product, so that
// the epilogue does not wait for it.
#pragma once
#include "kw/gelu.cuh"
#include "kw/types.cuh"

namespace kw {

struct Plain {
  template <int PAIRS> struct Columns {
    __device__ __forceinline__ Columns(const Plain &, int) {}
    __device__ __forceinline__ float2 operator()(float2 v, int) const { return v; }
  };
};

// One addend for each column, of which there are an even number.
template <typename T> struct Bias {
  const T *bias;
  int cols;
  template <int PAIRS> struct Columns {
    typename Pair<T>::type pairs[PAIRS];
    __device__ __forceinline__ Columns(const Bias &e, int first) {
#pragma unroll
      for (int p = 0; p < PAIRS; p++) {
        unsigned bits = 0;
        if (first + 8 * p < e.cols) memcpy(&bits, e.bias + first + 8 * p, 4);
        memcpy(&pairs[p], &bits, 4);
      }
    }
    __device__ __forceinline__ float2 operator()(float2 v, int p) const {
      const float2 b = to_float2(pairs[p]);
      return {v.x + b.x, v.y + b.y};
    }
  };
};

template <typename T, bool TANH> struct BiasGelu {
  Bias<T> bias;
  template <int PAIRS> struct Columns {
    typename Bias<T>::template Columns<PAIRS> add;
    __device__ __forceinline__ Columns(const BiasGelu &e, int first) : add(e.bias, first) {}
    __device__ __forceinline__ float2 operator()(float2 v, int p) const {
      const float2 x = add(v, p);
      return {gelu<T, TANH>(x.x), gelu<T, TANH>(x.y)};
    }
  };
};

}  // namespace kw

// The two pixels of which an output is a weighted mean, along one dimension.
#pragma once
#include <kw/divisor.cuh>
#include <kw/vec.cuh>

namespace kw {

struct Sizes {
  int from_h, to_h, from_w, to_w, corners;
};

struct Mean {
  int first, second;
  float weight;  // of the second pixel
};

// The number of input and output pixels, and input pixels per output pixel.
struct Axis {
  int from, to;
  float scale;
  bool corners;

  __device__ __forceinline__ Mean of(int o) const {
    const float at = corners ? __fmul_rn(float(o), scale)
                             : fmaxf(__fadd_rn(__fmul_rn(float(o) + 0.5f, scale), -0.5f), 0.0f);
    const int first = min(int(at), from - 1);
    return {first, min(first + 1, from - 1), at - float(first)};
  }
  // The first output whose first pixel is i or later. The error of the quotient is below 2.
  __device__ __forceinline__ int first_of(int i) const {
    if (i <= 0) return 0;
    if (i >= from) return to;
    const float middle = corners ? 0.0f : 0.5f;
    int o = max(int(fminf((float(i) + middle) / scale - middle, float(to))) - 2, 0);
    while (o < to && of(o).first < i) ++o;
    return o;
  }
  // The weight of pixel i in output o.
  __device__ __forceinline__ float weight(int o, int i) const {
    const Mean m = of(o);
    return (m.first == i ? 1.0f - m.weight : 0.0f) + (m.second == i ? m.weight : 0.0f);
  }
};

__device__ __forceinline__ Axis rows_of(const Sizes &s, float scale) {
  return {s.from_h, s.to_h, scale, s.corners != 0};
}
__device__ __forceinline__ Axis columns_of(const Sizes &s, float scale) {
  return {s.from_w, s.to_w, scale, s.corners != 0};
}

// A weighted mean of four, columns first.
__device__ __forceinline__ float mean(float a, float b, float c, float d, float right, float down) {
  const float top = (1.0f - right) * a + right * b, bottom = (1.0f - right) * c + right * d;
  return (1.0f - down) * top + down * bottom;
}

}  // namespace kw

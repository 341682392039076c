// The pixel that an output copies, along one dimension.
#pragma once
#include <kw/divisor.cuh>
#include <kw/vec.cuh>

namespace kw {

struct Sizes {
  int from_h, to_h, from_w, to_w;
};

// The number of input and output pixels, and input pixels per output pixel. TIMES: if not 0,
// outputs per pixel, which replaces the scale.
template <int TIMES> struct Axis {
  int from, to;
  float scale;

  __device__ __forceinline__ int source(int o) const {
    return TIMES ? o / (TIMES ? TIMES : 1) : min(int(float(o) * scale), from - 1);
  }
  // The first output whose source is i or later. The error of the quotient is below 2.
  __device__ __forceinline__ int first_of(int i) const {
    if (TIMES) return i * TIMES;
    if (i == 0) return 0;
    if (i >= from) return to;
    int o = max(int(fminf(float(i) / scale, float(to))) - 2, 0);
    while (o < to && source(o) < i) ++o;
    return o;
  }
};

}  // namespace kw

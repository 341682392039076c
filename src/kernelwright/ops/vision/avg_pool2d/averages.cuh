// The divisor of the sum of a window.
#pragma once
#include <kw/divisor.cuh>
#include <kw/vec.cuh>

#include "../windows.cuh"

namespace kw {

// `fixed` if it is not 0; otherwise the number of the window's pixels inside the padding, or inside
// the image.
struct Average {
  int fixed, count_padding;

  __device__ __forceinline__ int length(const Windows1d &of, int o) const {
    const int first = of.first(o), end = min(first + of.kernel, of.from + of.padding);
    const int inside = min(end, of.from) - max(first, 0);
    return count_padding ? end - first : inside;
  }
  // The factor for a window of this height and width.
  __device__ __forceinline__ float share(int high, int wide) const {
    const int pixels = max(high * wide, 1);
    return __fdividef(1.0f, float(fixed ? fixed : pixels));
  }
  __device__ __forceinline__ float share(const Windows &of, int o, int p) const {
    return share(length(of.h, o), length(of.w, p));
  }
};

}  // namespace kw

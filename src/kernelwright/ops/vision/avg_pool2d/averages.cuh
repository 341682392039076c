// What the sum of a window is divided by.
#pragma once
#include <kw/vec.cuh>

#include "../divisor.cuh"
#include "../windows.cuh"

namespace kw {

// `fixed` where it is not 0; else the window's pixels inside the padding or inside the image.
struct Average {
  int fixed, count_padding;

  __device__ __forceinline__ int length(const Windows1d &of, int o) const {
    const int first = of.first(o), end = min(first + of.kernel, of.from + of.padding);
    return count_padding ? end - first : min(end, of.from) - max(first, 0);
  }
  __device__ __forceinline__ float share(const Windows &of, int o, int p) const {
    return __fdividef(1.0f, float(fixed ? fixed : max(length(of.h, o) * length(of.w, p), 1)));
  }
};

}  // namespace kw

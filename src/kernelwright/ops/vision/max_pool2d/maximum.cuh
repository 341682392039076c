// The greatest pixel of a window, and its index in the window.
#pragma once
#include <kw/divisor.cuh>
#include <kw/reduce.cuh>
#include <kw/vec.cuh>

#include "../windows.cuh"

namespace kw {

// NaN is greater than any number; of several NaNs the last is selected.
__device__ __forceinline__ bool exceeds(float x, float most) { return x > most || x != x; }

// Keeps the greater of x and `most`, and its index; NaN if one is NaN, where the index is
// undefined.
__device__ __forceinline__ void take(float x, int n, bool first, float &most, int &number) {
  if (first) {
    most = x, number = n;
    return;
  }
  if (!(x <= most)) number = n;
  most = max_nan(x, most);
}

}  // namespace kw

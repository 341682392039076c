// The greatest pixel of a window, and its number.
#pragma once
#include <kw/reduce.cuh>
#include <kw/vec.cuh>

#include "../divisor.cuh"
#include "../windows.cuh"

namespace kw {

// A NaN is greater than any number; of several the last counts.
__device__ __forceinline__ bool exceeds(float x, float most) { return x > most || x != x; }

// The greater of x and `most`, and its number; NaN if one is NaN, the number is undefined then.
__device__ __forceinline__ void take(float x, int n, bool first, float &most, int &number) {
  if (first) {
    most = x, number = n;
    return;
  }
  if (!(x <= most)) number = n;
  most = max_nan(x, most);
}

}  // namespace kw

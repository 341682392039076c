// The greatest pixel of a window, and its number.
#pragma once
#include <kw/vec.cuh>

#include "../divisor.cuh"
#include "../windows.cuh"

namespace kw {

// A NaN is greater than any number; of several the last counts.
__device__ __forceinline__ bool exceeds(float x, float most) { return x > most || x != x; }

// The greater of two; NaN if one of them is.
__device__ __forceinline__ float greater(float x, float most) {
#ifdef __CUDA_ARCH__
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(most));
  return found;
#else
  return exceeds(x, most) ? x : most;
#endif
}

__device__ __forceinline__ float lowest() { return __int_as_float(0xff800000); }

}  // namespace kw

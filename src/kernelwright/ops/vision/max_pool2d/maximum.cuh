// The greatest pixel of a window, and its number.
#pragma once
#include <kw/reduce.cuh>
#include <kw/vec.cuh>

#include "../divisor.cuh"
#include "../windows.cuh"

namespace kw {

// A NaN is greater than any number; of several the last counts.
__device__ __forceinline__ bool exceeds(float x, float most) { return x > most || x != x; }

}  // namespace kw

// Sine and cosine of an angle in units of 2 pi (turns): no argument reduction is needed for any
// position in a sequence.
#pragma once

namespace kw {

// turns must be within [-1/2, 1/2]; the error of both results is at most 2 ulp of 1 in float.
__device__ __forceinline__ void sincos_turns(float turns, float &sine, float &cosine) {
#ifdef __CUDA_ARCH__
  sincospif(2.0f * turns, &sine, &cosine);
#else
  const double angle = 6.283185307179586 * double(turns);
  sine = float(sin(angle)), cosine = float(cos(angle));
#endif
}

// position * frequency (in turns per position) without its whole turns. In double, because the
// whole turns would use up all 24 bits of a float.
__device__ __forceinline__ float turns_of(double position, double frequency) {
  const double turns = position * frequency;
  return float(turns - rint(turns));
}

}  // namespace kw

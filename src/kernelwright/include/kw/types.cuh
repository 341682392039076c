// Conversions between storage types and float, the type in which rungs compute.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kw {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Two 16-bit values in one register, the first in the lower half: one instruction per value to
// unpack, and one instruction to pack both.
__device__ __forceinline__ float2 to_float2(__half2 x) { return __half22float2(x); }
__device__ __forceinline__ float2 to_float2(__nv_bfloat162 x) {
  unsigned bits;
  memcpy(&bits, &x, 4);  // a bfloat16 is the upper half of a float
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
}

template <typename T> struct Pair;  // Pair<T>::type holds two T
template <> struct Pair<__half> {
  using type = __half2;
  static __device__ __forceinline__ type from(float a, float b) { return __floats2half2_rn(a, b); }
};
template <> struct Pair<__nv_bfloat16> {
  using type = __nv_bfloat162;
  static __device__ __forceinline__ type from(float a, float b) {
    return __floats2bfloat162_rn(a, b);
  }
};

}  // namespace kw

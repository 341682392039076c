// NVIDIA's types and declarations of the host API, as a host compiler reads them, and declarations
// that CUDA 13 has removed but programs still use.
#pragma once

// NVIDIA's host_defines.h and vector_types.h are excluded: the emulator has its own versions
#define __HOST_DEFINES_H__
#define __VECTOR_TYPES_H__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __specialization_static static
#define __cluster_dims__(...)
#define __block_size__(...)
#define __inline_hint__
#define __thread__ thread_local
#define __no_return__ __attribute__((noreturn))
#define __inline__ inline

// CUDA 13 also has a type of four long numbers for each alignment.
#define KW_ALIGNED(name, T)                         \
  struct alignas(16) name##4_16a { T x, y, z, w; }; \
  struct alignas(32) name##4_32a { T x, y, z, w; };
KW_ALIGNED(long, long)
KW_ALIGNED(ulong, unsigned long)
KW_ALIGNED(longlong, long long)
KW_ALIGNED(ulonglong, unsigned long long)
KW_ALIGNED(double, double)
#undef KW_ALIGNED

#define cudaDeviceProp kw_cudaDeviceProp
#include <cuComplex.h>
#include <cuda_runtime_api.h>
#include <library_types.h>
#undef cudaDeviceProp

// Fields that older toolkits also had.
struct cudaDeviceProp : kw_cudaDeviceProp {
  int clockRate, memoryClockRate, deviceOverlap, computeMode, kernelExecTimeoutEnabled;
  int cooperativeMultiDeviceLaunch, singleToDoublePrecisionPerfRatio;
  int maxTexture1DLinear;
};

// The constructors of driver_functions.h, which CUDA's own headers declare for nvcc.
inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }
inline cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth) {
  return {width, height, depth};
}
inline cudaPitchedPtr make_cudaPitchedPtr(void *p, size_t pitch, size_t xsize, size_t ysize) {
  return {p, pitch, xsize, ysize};
}

// NVIDIA's header of the driver API, and a form that older toolkits had.
#pragma once
#include_next <cuda.h>

inline CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
  return cuCtxCreate(context, static_cast<CUctxCreateParams *>(nullptr), flags, device);
}

// NVIDIA's helper_cuda.h has this function for CUresult only where CUDA_DRIVER_API is defined.
template <typename E, std::enable_if_t<std::is_same_v<E, CUresult>, int> = 0>
const char *_cudaGetErrorEnum(E error) {
  const char *name = nullptr;
  return cuGetErrorName(error, &name) == CUDA_SUCCESS ? name : "<unknown>";
}

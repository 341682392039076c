// NVIDIA's header of the driver API, and a form that older toolkits had.
#pragma once
#include_next <cuda.h>

inline CUresult cuCtxCreate(CUcontext *made, unsigned flags, CUdevice device) {
  return cuCtxCreate(made, static_cast<CUctxCreateParams *>(nullptr), flags, device);
}

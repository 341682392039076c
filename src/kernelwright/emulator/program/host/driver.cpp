// Functions of the driver API that programs for the runtime API call: the device, its context,
// memory. Modules and their kernels are machine code, which is not emulated.
#include <cuda.h>

#include <cstring>

#include "host.h"

namespace {
CUresult of(cudaError_t e) { return static_cast<CUresult>(e); }
void *at(CUdeviceptr p) { return reinterpret_cast<void *>(p); }
CUcontext context() {
  static char only;
  return reinterpret_cast<CUcontext>(&only);
}
CUcontext current = nullptr;
CUresult take(CUcontext *made) {
  *made = current = context();
  return CUDA_SUCCESS;
}
CUresult name_of(const char *known, const char **text) {
  const bool is = std::strncmp(known, "unrecognized", 12) != 0;
  *text = is ? known : nullptr;
  return is ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
}  // namespace

extern "C" {
CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { return of(cudaDriverGetVersion(version)); }
CUresult cuGetErrorString(CUresult e, const char **text) {
  return name_of(cudaGetErrorString(static_cast<cudaError_t>(e)), text);
}
CUresult cuGetErrorName(CUresult e, const char **text) {
  return name_of(cudaGetErrorName(static_cast<cudaError_t>(e)), text);
}
CUresult cuDeviceGetCount(int *count) { return of(cudaGetDeviceCount(count)); }
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = 0;
  return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  kw_cudaDeviceProp its;
  const cudaError_t e = cudaGetDeviceProperties(&its, device);
  if (!e) snprintf(name, length, "%s", its.name);
  return of(e);
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
  return of(cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(which), device));
}
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, device);
  return of(cudaDeviceGetAttribute(minor, cudaDevAttrComputeCapabilityMinor, device));
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
  kw_cudaDeviceProp its;
  const cudaError_t e = cudaGetDeviceProperties(&its, device);
  *bytes = e ? 0 : its.totalGlobalMem;
  return of(e);
}

CUresult cuCtxCreate(CUcontext *made, CUctxCreateParams *, unsigned, CUdevice) {
  return take(made);
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *made, CUdevice) { return take(made); }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxDestroy(CUcontext) {
  current = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext wanted) {
  current = wanted;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *its) {
  *its = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() { return of(cudaDeviceSynchronize()); }

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) {
  return of(cudaMemGetInfo(free_bytes, total));
}
CUresult cuMemAlloc(CUdeviceptr *p, size_t bytes) {
  return of(cudaMalloc(reinterpret_cast<void **>(p), bytes));
}
CUresult cuMemFree(CUdeviceptr p) { return of(cudaFree(at(p))); }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
  return of(cudaMemcpy(at(to), from, bytes, cudaMemcpyHostToDevice));
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
  return of(cudaMemcpy(to, at(from), bytes, cudaMemcpyDeviceToHost));
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return of(cudaMemcpy(at(to), at(from), bytes, cudaMemcpyDeviceToDevice));
}
CUresult cuMemsetD8(CUdeviceptr p, unsigned char value, size_t count) {
  return of(cudaMemset(at(p), value, count));
}
}

// Functions of the driver API that programs for the runtime API call: the device, its context,
// memory. Modules are in modules.cpp.
#include <cuda.h>

#include <cstring>
#include <vector>

#include "host.h"

namespace {
CUresult of(cudaError_t e) { return static_cast<CUresult>(e); }
void *at(CUdeviceptr p) { return reinterpret_cast<void *>(p); }
CUcontext context() {
  static char only;
  return reinterpret_cast<CUcontext>(&only);
}
// Each thread has a stack of them, whose top is the present one.
thread_local std::vector<CUcontext> stack;
void set(CUcontext c) {
  if (!stack.empty()) stack.pop_back();
  if (c) stack.push_back(c);
}
CUresult take(CUcontext *current) {
  *current = context();
  stack.push_back(*current);
  return CUDA_SUCCESS;
}
cudaStream_t of(CUstream s) { return reinterpret_cast<cudaStream_t>(s); }
cudaEvent_t of(CUevent e) { return reinterpret_cast<cudaEvent_t>(e); }
template <typename T> CUresult fill(CUdeviceptr p, T value, size_t count, CUstream stream) {
  if (value == static_cast<T>(static_cast<unsigned char>(value) * 0x0101010101010101ull))
    return of(
        cudaMemsetAsync(at(p), static_cast<int>(value & 0xff), count * sizeof(T), of(stream)));
  const std::vector<T> all(count, value);
  return of(
      cudaMemcpyAsync(at(p), all.data(), count * sizeof(T), cudaMemcpyHostToDevice, of(stream)));
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

CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *, unsigned, CUdevice) {
  return take(context);
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *current, CUdevice) {
  *current = context();
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxReset(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice, unsigned) { return CUDA_SUCCESS; }
CUresult cuCtxDestroy(CUcontext) {
  set(nullptr);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext c) {
  stack.push_back(c);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext *its) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (its) *its = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext wanted) {
  set(wanted);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *its) {
  *its = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetFlags(unsigned *flags) {
  *flags = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCacheConfig(CUfunc_cache) { return CUDA_SUCCESS; }
CUresult cuCtxGetApiVersion(CUcontext, unsigned *version) {
  *version = 13000;
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
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return of(cudaMemcpy(at(to), at(from), bytes, cudaMemcpyDefault));
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
  return of(cudaMemcpyAsync(at(to), from, bytes, cudaMemcpyHostToDevice, of(s)));
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
  return of(cudaMemcpyAsync(to, at(from), bytes, cudaMemcpyDeviceToHost, of(s)));
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
  return of(cudaMemcpyAsync(at(to), at(from), bytes, cudaMemcpyDeviceToDevice, of(s)));
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
  return of(cudaMemcpyAsync(at(to), at(from), bytes, cudaMemcpyDefault, of(s)));
}
CUresult cuMemsetD8(CUdeviceptr p, unsigned char value, size_t count) {
  return of(cudaMemset(at(p), value, count));
}
CUresult cuMemsetD16(CUdeviceptr p, unsigned short value, size_t count) {
  return fill(p, value, count, nullptr);
}
CUresult cuMemsetD32(CUdeviceptr p, unsigned value, size_t count) {
  return fill(p, value, count, nullptr);
}
CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t count, CUstream s) {
  return of(cudaMemsetAsync(at(p), value, count, of(s)));
}
CUresult cuMemsetD32Async(CUdeviceptr p, unsigned value, size_t count, CUstream s) {
  return fill(p, value, count, s);
}
CUresult cuMemAllocManaged(CUdeviceptr *p, size_t bytes, unsigned flags) {
  return of(cudaMallocManaged(reinterpret_cast<void **>(p), bytes, flags));
}
CUresult cuMemAllocPitch(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned) {
  return of(cudaMallocPitch(reinterpret_cast<void **>(p), pitch, width, height));
}
CUresult cuMemAllocHost(void **p, size_t bytes) { return of(cudaMallocHost(p, bytes)); }
CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
  return of(cudaHostAlloc(p, bytes, flags));
}
CUresult cuMemFreeHost(void *p) { return of(cudaFreeHost(p)); }
CUresult cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream s) {
  return of(cudaMallocAsync(reinterpret_cast<void **>(p), bytes, of(s)));
}
CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) { return of(cudaFreeAsync(at(p), of(s))); }
CUresult cuMemHostGetDevicePointer(CUdeviceptr *p, void *host, unsigned flags) {
  return of(cudaHostGetDevicePointer(reinterpret_cast<void **>(p), host, flags));
}

// ---- streams and events, which are the runtime API's

CUresult cuStreamCreate(CUstream *s, unsigned flags) {
  return of(cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t *>(s), flags));
}
CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int) {
  return cuStreamCreate(s, flags);
}
CUresult cuStreamDestroy(CUstream s) { return of(cudaStreamDestroy(of(s))); }
CUresult cuStreamSynchronize(CUstream s) { return of(cudaStreamSynchronize(of(s))); }
CUresult cuStreamQuery(CUstream s) { return of(cudaStreamQuery(of(s))); }
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
  return of(cudaStreamWaitEvent(of(s), of(e), flags));
}
CUresult cuLaunchHostFunc(CUstream s, CUhostFn f, void *data) {
  return of(cudaLaunchHostFunc(of(s), f, data));
}
CUresult cuEventCreate(CUevent *e, unsigned flags) {
  return of(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t *>(e), flags));
}
CUresult cuEventRecord(CUevent e, CUstream s) { return of(cudaEventRecord(of(e), of(s))); }
CUresult cuEventSynchronize(CUevent e) { return of(cudaEventSynchronize(of(e))); }
CUresult cuEventQuery(CUevent e) { return of(cudaEventQuery(of(e))); }
CUresult cuEventDestroy(CUevent e) { return of(cudaEventDestroy(of(e))); }
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  return of(cudaEventElapsedTime(ms, of(from), of(to)));
}
}

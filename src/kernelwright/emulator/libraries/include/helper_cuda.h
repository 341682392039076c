// The functions that programs use from the header of this name in NVIDIA's samples.
#pragma once
#include <helper_string.h>

#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif
#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif
#define DEVICE_RESET cudaDeviceReset();

inline const char *_cudaGetErrorEnum(cudaError_t e) { return cudaGetErrorName(e); }
template <typename T> const char *kw_status_name(T e) {
  if constexpr (std::is_same_v<T, cudaError_t>)
    return cudaGetErrorName(e);
  else
    return "of a library";
}
template <typename T> void check(T e, const char *call, const char *file, int line) {
  if (!e) return;
  fprintf(stderr, "CUDA error at %s:%d code=%d(%s) \"%s\" \n", file, line, static_cast<unsigned>(e),
          kw_status_name(e), call);
  exit(EXIT_FAILURE);
}
#define checkCudaErrors(call) check((call), #call, __FILE__, __LINE__)
inline void kw_get_last(const char *message, const char *file, int line, bool stop) {
  const cudaError_t e = cudaGetLastError();
  if (!e) return;
  fprintf(stderr, "%s(%i) : getLastCudaError() CUDA error : %s : (%d) %s.\n", file, line, message,
          static_cast<int>(e), cudaGetErrorString(e));
  if (stop) exit(EXIT_FAILURE);
}
#define getLastCudaError(message) kw_get_last(message, __FILE__, __LINE__, true)
#define printLastCudaError(message) kw_get_last(message, __FILE__, __LINE__, false)
inline int ftoi(float x) { return static_cast<int>(x >= 0 ? x + 0.5f : x - 0.5f); }

inline int _ConvertSMVer2Cores(int major, int minor) {
  return major >= 9 ? 128 : major == 8 ? (minor ? 128 : 64) : major == 6 && minor ? 128 : 64;
}
inline const char *_ConvertSMVer2ArchName(int major, int minor) {
  return major >= 9 ? "Hopper" : major == 8 ? (minor == 9 ? "Ada" : "Ampere") : "Turing";
}
inline int gpuDeviceInit(int device) {
  checkCudaErrors(cudaSetDevice(device));
  return device;
}
inline int gpuGetMaxGflopsDeviceId() { return 0; }
inline int findCudaDevice(int argc, const char **argv) {
  cudaDeviceProp its;
  const int device = checkCmdLineFlag(argc, argv, "device")
                         ? gpuDeviceInit(getCmdLineArgumentInt(argc, argv, "device="))
                         : 0;
  checkCudaErrors(cudaGetDeviceProperties(&its, device));
  printf("GPU Device %d: \"%s\" with compute capability %d.%d\n\n", device,
         _ConvertSMVer2ArchName(its.major, its.minor), its.major, its.minor);
  return device;
}
inline int findIntegratedGPU() { return -1; }
inline bool checkCudaCapabilities(int major, int minor) {
  cudaDeviceProp its;
  checkCudaErrors(cudaGetDeviceProperties(&its, 0));
  return its.major > major || (its.major == major && its.minor >= minor);
}

// NVML: the properties of the emulated GPU.
#include <nvml.h>
#include <unistd.h>

#include <cstring>

#include "program/host/host.h"

namespace {
bool ready = false;
kw_cudaDeviceProp its() {
  kw_cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  return p;
}
nvmlDevice_t first() {
  static char only;
  return reinterpret_cast<nvmlDevice_t>(&only);
}
// Whether a query of a device may be answered.
nvmlReturn_t asked(nvmlDevice_t device, const void *result) {
  if (!ready) return NVML_ERROR_UNINITIALIZED;
  return device == first() && result ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
nvmlReturn_t absent(nvmlDevice_t device, const void *result) {
  const nvmlReturn_t e = asked(device, result);
  return e ? e : NVML_ERROR_NOT_SUPPORTED;
}
nvmlReturn_t copied(const char *text, char *to, unsigned length) {
  if (!ready) return NVML_ERROR_UNINITIALIZED;
  if (std::strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::strcpy(to, text);
  return NVML_SUCCESS;
}
constexpr char kId[] = "00000000:00:00.0", kUuid[] = "GPU-00000000-0000-0000-0000-000000000000";

template <typename T, typename V> nvmlReturn_t given(nvmlDevice_t device, T *to, V value) {
  const nvmlReturn_t e = asked(device, to);
  if (!e) *to = static_cast<T>(value);
  return e;
}
unsigned attribute(cudaDeviceAttr which) {
  int value = 0;
  cudaDeviceGetAttribute(&value, which, 0);
  return static_cast<unsigned>(value);
}
nvmlReturn_t handle(nvmlDevice_t *device, bool is) {
  if (!ready) return NVML_ERROR_UNINITIALIZED;
  if (is) *device = first();
  return is ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
}  // namespace

#pragma GCC visibility push(default)
extern "C" {
nvmlReturn_t nvmlInit_v2() { return ready = true, NVML_SUCCESS; }
nvmlReturn_t nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }
nvmlReturn_t nvmlShutdown() {
  const bool was = ready;
  ready = false;
  return was ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}
const char *nvmlErrorString(nvmlReturn_t e) {
  return e == NVML_SUCCESS                   ? "Success"
         : e == NVML_ERROR_UNINITIALIZED     ? "Uninitialized"
         : e == NVML_ERROR_INVALID_ARGUMENT  ? "Invalid Argument"
         : e == NVML_ERROR_NOT_SUPPORTED     ? "Not Supported"
         : e == NVML_ERROR_NOT_FOUND         ? "Not Found"
         : e == NVML_ERROR_INSUFFICIENT_SIZE ? "Insufficient Size"
                                             : "Unknown Error";
}
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
  return copied("580.00", version, length);
}
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
  return copied("13.580.00", version, length);
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
  return cudaDriverGetVersion(version), NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
  return nvmlSystemGetCudaDriverVersion(version);
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) { return given(first(), count, 1); }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
  if (ready && index) return NVML_ERROR_INVALID_ARGUMENT;
  return handle(device, true);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device) {
  return handle(device, !std::strcmp(id, kId) || !std::strcmp(id, kId + 4));
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  return handle(device, !std::strcmp(uuid, kUuid));
}
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *index) { return given(d, index, 0); }
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned *n) { return given(d, n, 0); }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned length) {
  const nvmlReturn_t e = asked(d, name);
  return e ? e : copied(its().name, name, length);
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned length) {
  const nvmlReturn_t e = asked(d, uuid);
  return e ? e : copied(kUuid, uuid, length);
}
nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t d, char *serial, unsigned) {
  return absent(d, serial);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *info) {
  const nvmlReturn_t e = asked(d, info);
  if (e) return e;
  *info = {};
  std::strcpy(info->busId, kId), std::strcpy(info->busIdLegacy, kId + 4);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *memory) {
  const nvmlReturn_t e = asked(d, memory);
  if (e) return e;
  size_t unused = 0, total = 0;
  cudaMemGetInfo(&unused, &total);
  *memory = {total, unused, total - unused};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t d, unsigned *bits) {
  return given(d, bits, its().memoryBusWidth);
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor) {
  const nvmlReturn_t e = given(d, major, its().major);
  return e ? e : given(d, minor, its().minor);
}
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t d, nvmlDeviceArchitecture_t *architecture) {
  const kw_cudaDeviceProp p = its();
  return given(d, architecture,
               p.major >= 9   ? NVML_DEVICE_ARCH_HOPPER
               : p.major == 7 ? NVML_DEVICE_ARCH_TURING
               : p.minor == 9 ? NVML_DEVICE_ARCH_ADA
                              : NVML_DEVICE_ARCH_AMPERE);
}
nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t d, unsigned *cores) {
  const kw_cudaDeviceProp p = its();
  const int each = p.major >= 9 || p.minor == 9 ? 128 : 64;
  return given(d, cores, p.multiProcessorCount * each);
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t which, unsigned *mhz) {
  const cudaDeviceAttr clock =
      which == NVML_CLOCK_MEM ? cudaDevAttrMemoryClockRate : cudaDevAttrClockRate;
  return given(d, mhz, attribute(clock) / 1000);
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, nvmlClockType_t which, unsigned *mhz) {
  return nvmlDeviceGetClockInfo(d, which, mhz);
}
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t d, nvmlComputeMode_t *mode) {
  return given(d, mode, NVML_COMPUTEMODE_DEFAULT);
}
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t d, nvmlEnableState_t *mode) {
  return given(d, mode, NVML_FEATURE_ENABLED);
}
nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t d, nvmlEnableState_t *now, nvmlEnableState_t *next) {
  const nvmlReturn_t e = given(d, now, NVML_FEATURE_ENABLED);
  return e ? e : given(d, next, NVML_FEATURE_ENABLED);
}
nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t d, unsigned *is) { return given(d, is, 0); }
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *count,
                                                     nvmlProcessInfo_t *processes) {
  const nvmlReturn_t e = asked(d, count);
  if (e) return e;
  const unsigned room = *count;
  *count = 1;
  if (!room || !processes) return room ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_INSUFFICIENT_SIZE;
  nvmlMemory_t memory;
  nvmlDeviceGetMemoryInfo(d, &memory);
  *processes = {static_cast<unsigned>(getpid()), memory.used, ~0u, ~0u};
  return NVML_SUCCESS;
}

// ---- what only a machine has

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) {
  return absent(d, u);
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t, unsigned *t) {
  return absent(d, t);
}
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, nvmlPcieUtilCounter_t, unsigned *v) {
  return absent(d, v);
}
nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t d, nvmlPstates_t *v) {
  return absent(d, v);
}
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *v) {
  return absent(d, v);
}
#define KW_ABSENT(name) \
  nvmlReturn_t name(nvmlDevice_t d, unsigned *v) { return absent(d, v); }
KW_ABSENT(nvmlDeviceGetPowerUsage)
KW_ABSENT(nvmlDeviceGetPowerManagementLimit)
KW_ABSENT(nvmlDeviceGetEnforcedPowerLimit)
KW_ABSENT(nvmlDeviceGetFanSpeed)
KW_ABSENT(nvmlDeviceGetCurrPcieLinkGeneration)
KW_ABSENT(nvmlDeviceGetCurrPcieLinkWidth)
}
#pragma GCC visibility pop

// The emulated device's properties, errors, occupancy.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "streams.h"

namespace kw::program {
namespace {

thread_local cudaError_t last = cudaSuccess;
cudaError_t broken = cudaSuccess;
int current = 0;

// The properties of the GPUs that `run --as` names, as programs query them. Sources: NVIDIA's data
// sheets, the table of technical specifications in the CUDA programming guide.
struct Model {
  const char *key, *name;
  int major, minor, sms;
  size_t memory;
  int l2, shared_per_sm, optin, threads_per_sm, blocks_per_sm, clock_khz, memory_khz, bus;
};
constexpr size_t kGiB = size_t(1) << 30;
constexpr Model kModels[] = {
    {"h200", "NVIDIA H200", 9, 0, 132, 141 * kGiB, 60 << 20, 233472, 232448, 2048, 32, 1980000,
     3201000, 6144},
    {"h100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 80 * kGiB, 50 << 20, 233472, 232448, 2048, 32,
     1980000, 2619000, 5120},
    {"a100", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 80 * kGiB, 40 << 20, 167936, 166912, 2048, 32,
     1410000, 1593000, 5120},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 8, 9, 128, 24 * kGiB, 72 << 20, 102400, 101376, 1536, 24,
     2520000, 10501000, 384},
    {"t4", "Tesla T4", 7, 5, 40, 16 * kGiB, 4 << 20, 65536, 65536, 1024, 16, 1590000, 5001000, 256},
};

const Model &model() {
  static const Model &chosen = [&]() -> const Model & {
    const std::string key = setting("gpu", "h200");
    for (const Model &m : kModels)
      if (key == m.key) return m;
    return kModels[0];
  }();
  return chosen;
}

}  // namespace

cudaError_t invalid_value() { return give(cudaErrorInvalidValue); }
cudaError_t give(cudaError_t e) {
  if (e) last = e;
  return e;
}
void poison(cudaError_t e) {
  broken = e;
  last = e;
}
cudaError_t poisoned() { return broken; }
std::map<const void *, size_t> &dynamic_limits() {
  static auto *const all = new std::map<const void *, size_t>;
  return *all;
}
void from_host(const char *function, const void *where) {
  if (kw_current)
    kw_fail_at(where,
               "%s is called in a kernel: only launches, streams and cudaGetLastError are emulated "
               "there",
               function);
}

}  // namespace kw::program

using namespace kw::program;

namespace {
void fill(kw_cudaDeviceProp &p) {
  const Model &m = model();
  p = {};
  std::strncpy(p.name, m.name, sizeof p.name - 1);
  p.totalGlobalMem = m.memory;
  p.sharedMemPerBlock = 49152;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.memPitch = 2147483647;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.major = m.major, p.minor = m.minor;
  p.textureAlignment = 512, p.texturePitchAlignment = 32;
  p.multiProcessorCount = m.sms;
  p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.managedMemory = 1;
  p.maxTexture1D = 131072, p.maxTexture1DMipmap = 32768;
  p.maxTexture2D[0] = 131072, p.maxTexture2D[1] = 65536;
  p.maxTexture3D[0] = p.maxTexture3D[1] = p.maxTexture3D[2] = 16384;
  p.maxTexture1DLayered[0] = 32768, p.maxTexture1DLayered[1] = 2048;
  p.maxTexture2DLayered[0] = p.maxTexture2DLayered[1] = 32768, p.maxTexture2DLayered[2] = 2048;
  p.surfaceAlignment = 512;
  p.ECCEnabled = 1;
  p.asyncEngineCount = 3;
  p.memoryBusWidth = m.bus;
  p.l2CacheSize = m.l2;
  p.persistingL2CacheMaxSize = m.l2 / 2;
  p.maxThreadsPerMultiProcessor = m.threads_per_sm;
  p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.sharedMemPerMultiprocessor = m.shared_per_sm;
  p.concurrentManagedAccess = p.computePreemptionSupported = p.cooperativeLaunch = 1;
  p.canUseHostPointerForRegisteredMem = p.hostNativeAtomicSupported = 1;
  p.sharedMemPerBlockOptin = m.optin;
  p.maxBlocksPerMultiProcessor = m.blocks_per_sm;
  p.reservedSharedMemPerBlock = 1024;
  p.hostRegisterSupported = p.memoryPoolsSupported = 1;
  p.clusterLaunch = m.major >= 9;
}
}  // namespace

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  from_host(__func__);
  if (device != 0) return give(cudaErrorInvalidDevice);
  *p = {};
  fill(*p);
  const Model &m = model();
  p->clockRate = m.clock_khz, p->memoryClockRate = m.memory_khz;
  p->deviceOverlap = 1;
  p->computeMode = cudaComputeModeDefault;
  p->singleToDoublePrecisionPerfRatio = 2;
  p->maxTexture1DLinear = 1 << 27;
  return give(cudaSuccess);
}
cudaError_t cudaChooseDevice(int *device, const cudaDeviceProp *) {
  *device = 0;
  return give(cudaSuccess);
}

extern "C" {

cudaError_t cudaGetDeviceProperties(kw_cudaDeviceProp *p, int device) {
  if (device != 0) return give(cudaErrorInvalidDevice);
  fill(*p);
  return give(cudaSuccess);
}
cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return give(cudaSuccess);
}
cudaError_t cudaGetDevice(int *device) {
  *device = current;
  return give(cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  return give(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
cudaError_t cudaSetDeviceFlags(unsigned) { return give(cudaSuccess); }
cudaError_t cudaGetDeviceFlags(unsigned *flags) {
  *flags = 0;
  return give(cudaSuccess);
}
cudaError_t cudaDeviceReset() {
  from_host(__func__);
  host_waits_for_all();
  synchronized();
  return give(poisoned());
}
cudaError_t cudaDeviceSynchronize() {
  from_host(__func__);
  host_waits_for_all();
  synchronized();
  return give(poisoned());
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return give(cudaSuccess); }
cudaError_t cudaDeviceGetLimit(size_t *value, cudaLimit which) {
  *value = which == cudaLimitStackSize        ? 1024
           : which == cudaLimitMallocHeapSize ? 8 << 20
                                              : 1 << 20;
  return give(cudaSuccess);
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return give(cudaSuccess); }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0, *greatest = -5;
  return give(cudaSuccess);
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) {
  *can = 0;
  return give(cudaSuccess);
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return give(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceDisablePeerAccess(int) { return give(cudaErrorPeerAccessNotEnabled); }
cudaError_t cudaDriverGetVersion(int *version) {
  *version = 13000;
  return give(cudaSuccess);
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = 13000;
  return give(cudaSuccess);
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int) {
  std::snprintf(id, length, "0000:00:00.0");
  return give(cudaSuccess);
}
cudaError_t cudaProfilerStart() { return give(cudaSuccess); }
cudaError_t cudaProfilerStop() { return give(cudaSuccess); }

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device) {
  if (device != 0) return give(cudaErrorInvalidDevice);
  const Model &m = model();
  kw_cudaDeviceProp p;
  fill(p);
  const std::map<int, long> known = {
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, 2147483647},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
      {cudaDevAttrTotalConstantMemory, 65536},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrClockRate, m.clock_khz},
      {cudaDevAttrMemoryClockRate, m.memory_khz},
      {cudaDevAttrGlobalMemoryBusWidth, m.bus},
      {cudaDevAttrMultiProcessorCount, m.sms},
      {cudaDevAttrL2CacheSize, m.l2},
      {cudaDevAttrMaxThreadsPerMultiProcessor, m.threads_per_sm},
      {cudaDevAttrMaxBlocksPerMultiprocessor, m.blocks_per_sm},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, m.shared_per_sm},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, m.optin},
      {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
      {cudaDevAttrComputeCapabilityMajor, m.major},
      {cudaDevAttrComputeCapabilityMinor, m.minor},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrCooperativeLaunch, 1},
      {cudaDevAttrManagedMemory, 1},
      {cudaDevAttrConcurrentManagedAccess, 1},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrComputePreemptionSupported, 1},
      {cudaDevAttrMemoryPoolsSupported, 1},
      {cudaDevAttrStreamPrioritiesSupported, 1},
      {cudaDevAttrAsyncEngineCount, 3},
      {cudaDevAttrEccEnabled, 1},
      {cudaDevAttrMaxPitch, 2147483647},
      {cudaDevAttrTextureAlignment, 512},
      {cudaDevAttrGpuOverlap, 1},
      {cudaDevAttrHostNativeAtomicSupported, 1},
      {cudaDevAttrGlobalL1CacheSupported, 1},
      {cudaDevAttrLocalL1CacheSupported, 1},
      {cudaDevAttrClusterLaunch, m.major >= 9},
      {cudaDevAttrHostRegisterSupported, 1},
      {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
      {cudaDevAttrMaxPersistingL2CacheSize, m.l2 / 2},
      {cudaDevAttrTexturePitchAlignment, 32},
      {cudaDevAttrSurfaceAlignment, 512},
      {cudaDevAttrMaxTexture1DWidth, 131072},
      {cudaDevAttrMaxTexture2DWidth, 131072},
      {cudaDevAttrMaxTexture2DHeight, 65536},
      {cudaDevAttrMaxTexture3DWidth, 16384},
      {cudaDevAttrMaxTexture3DHeight, 16384},
      {cudaDevAttrMaxTexture3DDepth, 16384},
      {cudaDevAttrSingleToDoublePrecisionPerfRatio, 2},
  };
  if (which < 1 || which >= cudaDevAttrMax) return give(cudaErrorInvalidValue);
  const auto attribute = known.find(which);  // this GPU does not have the others
  *value = attribute == known.end() ? 0 : static_cast<int>(attribute->second);
  return give(cudaSuccess);
}
cudaError_t cudaDeviceGetP2PAttribute(int *, cudaDeviceP2PAttr, int, int) {
  return give(cudaErrorInvalidDevice);  // there is one device
}

// ---- errors

cudaError_t cudaGetLastError() {
  const cudaError_t e = last;
  last = poisoned();
  if (e) seen();
  return e;
}
cudaError_t cudaPeekAtLastError() {
  if (last) seen();
  return last;
}
}
namespace {
struct Error {
  cudaError_t its;
  const char *name, *text;
};
#define KW_ERROR(its, text) {its, #its, text}
constexpr Error kErrors[] = {
    KW_ERROR(cudaErrorInitializationError, "initialization error"),
    KW_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    KW_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    KW_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    KW_ERROR(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    KW_ERROR(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    KW_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    KW_ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    KW_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    KW_ERROR(cudaErrorStreamCaptureInvalidated,
             "operation failed due to a previous error during capture"),
    KW_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    KW_ERROR(cudaErrorStreamCaptureImplicit,
             "operation would make the legacy stream depend on a capturing blocking stream"),
    KW_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    KW_ERROR(cudaErrorGraphExecUpdateFailure,
             "the graph update was not performed because it included changes which violated "
             "constraints specific to instantiated graph update"),
    KW_ERROR(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    KW_ERROR(cudaSuccess, "no error"),
    KW_ERROR(cudaErrorInvalidValue, "invalid argument"),
    KW_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    KW_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    KW_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    KW_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    KW_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    KW_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    KW_ERROR(cudaErrorNotReady, "device not ready"),
    KW_ERROR(cudaErrorNotSupported, "operation not supported"),
    KW_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    KW_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    KW_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    KW_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    KW_ERROR(cudaErrorAssert, "device-side assert triggered"),
    KW_ERROR(cudaErrorUnknown, "unknown error"),
    KW_ERROR(cudaErrorInsufficientDriver,
             "CUDA driver version is insufficient for CUDA runtime version"),
    KW_ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    KW_ERROR(cudaErrorInvalidTexture, "invalid texture reference"),
    KW_ERROR(cudaErrorNoKernelImageForDevice,
             "no kernel image is available for execution on the device"),
    KW_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    KW_ERROR(cudaErrorHostMemoryAlreadyRegistered,
             "part or all of the requested memory range is already mapped"),
    KW_ERROR(cudaErrorHardwareStackError, "hardware stack error"),
    KW_ERROR(cudaErrorInvalidAddressSpace,
             "operation not supported on global/shared address space"),
    KW_ERROR(cudaErrorInvalidPc, "invalid program counter"),
    KW_ERROR(cudaErrorInvalidPtx, "a PTX JIT compilation failed"),
    KW_ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    KW_ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
};
#undef KW_ERROR
constexpr Error kUnknown = {cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
const Error &known(cudaError_t e) {
  const auto entry = std::find_if(std::begin(kErrors), std::end(kErrors),
                                  [&](const Error &each) { return each.its == e; });
  return entry == std::end(kErrors) ? kUnknown : *entry;
}
}  // namespace
extern "C" {
const char *cudaGetErrorString(cudaError_t e) { return known(e).text; }
const char *cudaGetErrorName(cudaError_t e) { return known(e).name; }

// ---- kernels: their registers are not known, so occupancy assumes 32 registers per thread

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads,
                                                          size_t shared) {
  const Model &m = model();
  if (threads < 1 || threads > 1024) return give(cudaErrorInvalidValue);
  const int rounded = (threads + 31) / 32 * 32;
  int most = std::min({m.blocks_per_sm, m.threads_per_sm / rounded, 65536 / (32 * rounded)});
  if (shared) most = std::min<int>(most, m.shared_per_sm / (shared + 1024));
  *blocks = most;
  return give(cudaSuccess);
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *, int blocks,
                                                      int) {
  *bytes = model().shared_per_sm / std::max(blocks, 1) - 1024;
  return give(cudaSuccess);
}
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what, int value) {
  if (what == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value > model().optin) return give(cudaErrorInvalidValue);
    dynamic_limits()[kernel] = value;
  }
  return give(cudaSuccess);
}
cudaError_t cudaFuncSetCacheConfig(const void *, cudaFuncCache) { return give(cudaSuccess); }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *its, const void *) {
  *its = {};
  its->maxThreadsPerBlock = 1024;
  its->numRegs = 32;
  its->ptxVersion = its->binaryVersion = 10 * model().major + model().minor;
  its->maxDynamicSharedSizeBytes = 49152;
  return give(cudaSuccess);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) {
  return give(cudaSuccess);
}
}

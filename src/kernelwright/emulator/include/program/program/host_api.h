// The C++ functions of the host API, and functions of older toolkits.
#pragma once

template <typename T> inline cudaError_t cudaMalloc(T **p, size_t bytes) {
  return ::cudaMalloc(reinterpret_cast<void **>(p), bytes);
}
template <typename T> inline cudaError_t cudaMallocHost(T **p, size_t bytes, unsigned flags = 0) {
  return ::cudaHostAlloc(reinterpret_cast<void **>(p), bytes, flags);
}
template <typename T> inline cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned flags) {
  return ::cudaHostAlloc(reinterpret_cast<void **>(p), bytes, flags);
}
template <typename T>
inline cudaError_t cudaHostGetDevicePointer(T **device, void *host, unsigned flags) {
  return ::cudaHostGetDevicePointer(reinterpret_cast<void **>(device), host, flags);
}
template <typename T>
inline cudaError_t cudaMallocManaged(T **p, size_t bytes, unsigned flags = cudaMemAttachGlobal) {
  return ::cudaMallocManaged(reinterpret_cast<void **>(p), bytes, flags);
}
template <typename T> inline cudaError_t cudaMallocAsync(T **p, size_t bytes, cudaStream_t stream) {
  return ::cudaMallocAsync(reinterpret_cast<void **>(p), bytes, stream);
}
template <typename T>
inline cudaError_t cudaMallocPitch(T **p, size_t *pitch, size_t width, size_t height) {
  return ::cudaMallocPitch(reinterpret_cast<void **>(p), pitch, width, height);
}
template <typename T>
inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, T *p, size_t bytes = 0,
                                            unsigned flags = cudaMemAttachSingle) {
  return ::cudaStreamAttachMemAsync(stream, static_cast<void *>(p), bytes, flags);
}

// ---- symbols: variables of the program

namespace kw::program {
// Sets cudaErrorInvalidValue as the last error, and returns it.
__attribute__((visibility("default"))) cudaError_t invalid_value();
// Whether bytes of a variable are not all in it; of an array of unknown size, nothing is known.
template <typename T> constexpr bool outside_symbol(size_t bytes, size_t offset) {
  if constexpr (std::is_array_v<T> && std::extent_v<T> == 0)
    return false;
  else
    return offset > sizeof(T) || bytes > sizeof(T) - offset;
}
}  // namespace kw::program
template <typename T>
inline cudaError_t cudaMemcpyToSymbol(const T &symbol, const void *from, size_t bytes,
                                      size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  if (kw::program::outside_symbol<T>(bytes, offset)) return kw::program::invalid_value();
  return ::cudaMemcpyToSymbol(static_cast<const void *>(&symbol), from, bytes, offset, kind);
}
template <typename T>
inline cudaError_t cudaMemcpyFromSymbol(void *to, const T &symbol, size_t bytes, size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  if (kw::program::outside_symbol<T>(bytes, offset)) return kw::program::invalid_value();
  return ::cudaMemcpyFromSymbol(to, static_cast<const void *>(&symbol), bytes, offset, kind);
}
template <typename T>
inline cudaError_t cudaMemcpyToSymbolAsync(const T &symbol, const void *from, size_t bytes,
                                           size_t offset = 0,
                                           cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                           cudaStream_t stream = nullptr) {
  if (kw::program::outside_symbol<T>(bytes, offset)) return kw::program::invalid_value();
  return ::cudaMemcpyToSymbolAsync(static_cast<const void *>(&symbol), from, bytes, offset, kind,
                                   stream);
}
template <typename T>
inline cudaError_t cudaMemcpyFromSymbolAsync(void *to, const T &symbol, size_t bytes,
                                             size_t offset = 0,
                                             cudaMemcpyKind kind = cudaMemcpyDeviceToHost,
                                             cudaStream_t stream = nullptr) {
  if (kw::program::outside_symbol<T>(bytes, offset)) return kw::program::invalid_value();
  return ::cudaMemcpyFromSymbolAsync(to, static_cast<const void *>(&symbol), bytes, offset, kind,
                                     stream);
}
template <typename T> inline cudaError_t cudaGetSymbolAddress(void **p, const T &symbol) {
  return ::cudaGetSymbolAddress(p, static_cast<const void *>(&symbol));
}
template <typename T> inline cudaError_t cudaGetSymbolSize(size_t *bytes, const T &symbol) {
  *bytes = sizeof symbol;
  return cudaSuccess;
}

// ---- kernels

template <typename K>
inline cudaError_t cudaLaunchKernel(K *kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared = 0, cudaStream_t stream = nullptr) {
  return ::cudaLaunchKernel(static_cast<const void *>(kw::program::address(kernel)), grid, block,
                            arguments, shared, stream);
}
template <typename... P>
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                       void **arguments) {
  return ::cudaLaunchKernelExC(config, static_cast<const void *>(kw::program::address(kernel)),
                               arguments);
}
template <typename K>
inline cudaError_t cudaLaunchCooperativeKernel(K *kernel, dim3 grid, dim3 block, void **arguments,
                                               size_t shared = 0, cudaStream_t stream = nullptr) {
  return ::cudaLaunchCooperativeKernel(static_cast<const void *>(kw::program::address(kernel)),
                                       grid, block, arguments, shared, stream);
}
namespace kw::program {
Config config_of(const cudaLaunchConfig_t &);
}
template <typename... P, typename... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                      A &&...arguments) {
  kw::program::submit(kw::program::Plain<P...>::job(kernel, P(arguments)..., "a kernel",
                                                    kw::program::config_of(*config)));
  return cudaPeekAtLastError();
}
template <typename K>
inline cudaError_t cudaFuncSetAttribute(K *kernel, cudaFuncAttribute what, int value) {
  return ::cudaFuncSetAttribute(static_cast<const void *>(kw::program::address(kernel)), what,
                                value);
}
template <typename K> inline cudaError_t cudaFuncSetCacheConfig(K *kernel, cudaFuncCache how) {
  return ::cudaFuncSetCacheConfig(static_cast<const void *>(kw::program::address(kernel)), how);
}
template <typename K> inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *its, K *kernel) {
  return ::cudaFuncGetAttributes(its, static_cast<const void *>(kw::program::address(kernel)));
}
template <typename K> inline cudaError_t cudaFuncSetSharedMemConfig(K, cudaSharedMemConfig) {
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig *how) {
  *how = cudaSharedMemBankSizeFourByte;
  return cudaSuccess;
}
template <typename K>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, K kernel, int threads,
                                                                 size_t shared) {
  return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, static_cast<const void *>(kw::program::address(kernel)), threads, shared);
}
template <typename K>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, K kernel,
                                                                          int threads,
                                                                          size_t shared, unsigned) {
  return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, static_cast<const void *>(kw::program::address(kernel)), threads, shared);
}
template <typename K>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int *grid, int *block, K kernel,
                                                      size_t shared = 0, int most = 0) {
  *block = most > 0 && most < 1024 ? most : 1024;
  int each = 0, sms = 0;
  const auto e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, *block, shared);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  *grid = each * sms;
  return e;
}
template <typename F, typename K>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int *grid, int *block, K kernel,
                                                                  F shared, int most = 0) {
  const int threads = most > 0 && most < 1024 ? most : 1024;
  return cudaOccupancyMaxPotentialBlockSize(grid, block, kernel, shared(threads), threads);
}

// ---- graphs: the signatures of CUDA 11 and 12; those of CUDA 13 are NVIDIA's declarations

inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, cudaGraphNode_t *,
                                        char *, size_t) {
  return ::cudaGraphInstantiate(exec, graph, 0ull);
}
inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                       cudaGraphNode_t *node, cudaGraphExecUpdateResult *result) {
  cudaGraphExecUpdateResultInfo info;
  const cudaError_t e = ::cudaGraphExecUpdate(exec, graph, &info);
  if (node) *node = info.errorNode;
  if (result) *result = info.result;
  return e;
}
inline cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                               unsigned long long *id = nullptr,
                                               cudaGraph_t *graph = nullptr,
                                               const cudaGraphNode_t **after = nullptr,
                                               size_t *count = nullptr) {
  return ::cudaStreamGetCaptureInfo(stream, status, id, graph, after, nullptr, count);
}
inline cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                               unsigned long long *id = nullptr,
                                               cudaGraph_t *graph = nullptr,
                                               const cudaGraphNode_t **after = nullptr,
                                               const cudaGraphEdgeData **edges = nullptr,
                                               size_t *count = nullptr) {
  return ::cudaStreamGetCaptureInfo(stream, status, id, graph, after, edges, count);
}
inline cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *nodes,
                                                       size_t count, unsigned flags = 0) {
  return ::cudaStreamUpdateCaptureDependencies(stream, nodes, nullptr, count, flags);
}
// Without data of the edges, and by the names that CUDA 12 gave the functions with data.
#define KW_EDGES(name, G, first, F, from, T, to, N)                                         \
  inline cudaError_t name(G first, F from, T to, N count) {                                 \
    return ::name(first, from, to, nullptr, count);                                         \
  }                                                                                         \
  inline cudaError_t name##_v2(G first, F from, T to, const cudaGraphEdgeData *, N count) { \
    return ::name(first, from, to, nullptr, count);                                         \
  }
KW_EDGES(cudaGraphAddDependencies, cudaGraph_t, graph, const cudaGraphNode_t *, from,
         const cudaGraphNode_t *, to, size_t)
KW_EDGES(cudaGraphRemoveDependencies, cudaGraph_t, graph, const cudaGraphNode_t *, from,
         const cudaGraphNode_t *, to, size_t)
KW_EDGES(cudaGraphGetEdges, cudaGraph_t, graph, cudaGraphNode_t *, from, cudaGraphNode_t *, to,
         size_t *)
#undef KW_EDGES
inline cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                                size_t *count) {
  return ::cudaGraphNodeGetDependencies(node, nodes, nullptr, count);
}
inline cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                                  size_t *count) {
  return ::cudaGraphNodeGetDependentNodes(node, nodes, nullptr, count);
}
inline cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                    const cudaGraphNode_t *after, size_t count,
                                    cudaGraphNodeParams *p) {
  return ::cudaGraphAddNode(node, graph, after, nullptr, count, p);
}

// ---- properties, and functions of older toolkits

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaChooseDevice(int *device, const cudaDeviceProp *properties);
inline cudaError_t cudaMemPrefetchAsync(const void *p, size_t bytes, int device,
                                        cudaStream_t stream = nullptr) {
  const cudaMemLocation to = {cudaMemLocationTypeDevice, device};
  return ::cudaMemPrefetchAsync(p, bytes, to, 0u, stream);
}
inline cudaError_t cudaMemAdvise(const void *p, size_t bytes, cudaMemoryAdvise what, int device) {
  const cudaMemLocation where = {cudaMemLocationTypeDevice, device};
  return ::cudaMemAdvise(p, bytes, what, where);
}
inline cudaError_t cudaEventCreate(cudaEvent_t *event, unsigned flags) {
  return ::cudaEventCreateWithFlags(event, flags);
}
inline cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
inline cudaError_t cudaThreadExit() { return cudaDeviceReset(); }
inline cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void *from,
                                     size_t bytes, cudaMemcpyKind kind) {
  return ::cudaMemcpy2DToArray(to, x, y, from, bytes, bytes, 1, kind);
}
template <typename T> inline cudaChannelFormatDesc cudaCreateChannelDesc() {
  const auto of = [](int bits, int n, cudaChannelFormatKind kind) {
    return cudaChannelFormatDesc{bits, n > 1 ? bits : 0, n > 2 ? bits : 0, n > 3 ? bits : 0, kind};
  };
  using kw::program::Channel;
  return of(Channel<T>::bits, Channel<T>::count, Channel<T>::kind);
}

// Memory pools, which allocate memory of the process as every other allocation does, and settings
// of caches and streams, which have no effect.
#include <algorithm>

#include "arrays.h"

struct CUmemPoolHandle_st {
  std::map<int, unsigned long long> attributes;
};

namespace {
cudaMemPool_t first() {
  static CUmemPoolHandle_st pool;
  return &pool;
}
cudaMemPool_t chosen = nullptr;
bool is_flag(cudaMemPoolAttr what) {
  return what == cudaMemPoolReuseFollowEventDependencies ||
         what == cudaMemPoolReuseAllowOpportunistic ||
         what == cudaMemPoolReuseAllowInternalDependencies;
}
}  // namespace

using namespace kw::program;

extern "C" {
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
  API;
  *pool = first();
  return give(device ? cudaErrorInvalidDevice : cudaSuccess);
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
  API;
  *pool = chosen ? chosen : first();
  return give(device ? cudaErrorInvalidDevice : cudaSuccess);
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  API;
  chosen = pool;
  return give(device ? cudaErrorInvalidDevice : cudaSuccess);
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *) {
  API;
  *pool = new CUmemPoolHandle_st;
  return give(cudaSuccess);
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  API;
  if (pool == first()) return give(cudaErrorInvalidValue);
  if (pool == chosen) chosen = nullptr;
  delete pool;
  return give(cudaSuccess);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc *, size_t) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr what, void *value) {
  API;
  pool->attributes[what] =
      is_flag(what) ? *static_cast<int *>(value) : *static_cast<unsigned long long *>(value);
  return give(cudaSuccess);
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr what, void *value) {
  API;
  if (is_flag(what)) {
    const auto attribute = pool->attributes.find(what);
    *static_cast<int *>(value) = attribute == pool->attributes.end() ? 1 : int(attribute->second);
    return give(cudaSuccess);
  }
  unsigned long long is = pool->attributes[what];
  if (what >= cudaMemPoolAttrReservedMemCurrent) {  // memory in use, of all pools
    is = 0;
    for (const Allocation &a : allocations())
      if (a.kind == Kind::kDevice) is += a.bytes;
  }
  *static_cast<unsigned long long *>(value) = is;
  return give(cudaSuccess);
}
cudaError_t cudaMallocFromPoolAsync(void **p, size_t bytes, cudaMemPool_t, cudaStream_t) {
  API;
  *p = allocate(bytes, Kind::kDevice, HERE);
  return give(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache *how) {
  API;
  *how = cudaFuncCachePreferNone;
  return give(cudaSuccess);
}
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *) {
  API;
  *device = 0;
  return give(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *,
                                           const cudaLaunchConfig_t *how) {
  API;
  int sms = 0, size = 1;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  for (unsigned i = 0; i < how->numAttrs; ++i)
    if (how->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      const auto &d = how->attrs[i].val.clusterDim;
      size = int(d.x * d.y * d.z);
    }
  *clusters = sms / std::max(size, 1);
  return give(cudaSuccess);
}

// ---- copies of arrays and volumes in streams

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  API;
  return in_stream(stream, [=] { return cudaMemset2D(p, pitch, value, width, height); });
}
cudaError_t cudaMemset3D(cudaPitchedPtr p, int value, cudaExtent extent) {
  API;
  for (size_t z = 0; z < extent.depth; ++z) {
    char *slice = static_cast<char *>(p.ptr) + z * p.pitch * p.ysize;
    if (auto e = cudaMemset2D(slice, p.pitch, value, extent.width, extent.height)) return e;
  }
  return give(cudaSuccess);
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr p, int value, cudaExtent extent, cudaStream_t stream) {
  API;
  return in_stream(stream, [=] { return cudaMemset3D(p, value, extent); });
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms *p, cudaStream_t stream) {
  API;
  const cudaMemcpy3DParms own = *p;
  return in_stream(stream, [own] { return cudaMemcpy3D(&own); });
}
cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void *from,
                                     size_t pitch, size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t stream) {
  API;
  return in_stream(stream,
                   [=] { return cudaMemcpy2DToArray(to, x, y, from, pitch, width, height, kind); });
}
cudaError_t cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, cudaArray_const_t from, size_t x,
                                       size_t y, size_t width, size_t height, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
  API;
  return in_stream(
      stream, [=] { return cudaMemcpy2DFromArray(to, pitch, from, x, y, width, height, kind); });
}
cudaError_t cudaMemcpyFromArray(void *to, cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                                cudaMemcpyKind kind) {
  API;
  const char *at = from->data + y * from->row + x;
  return copy("cudaMemcpyFromArray", to, at, bytes, kind, HERE);
}
cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc *format, cudaArray_const_t array) {
  API;
  *format = array->format;
  return give(cudaSuccess);
}
}

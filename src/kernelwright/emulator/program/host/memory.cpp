// Device memory: the process's own, each allocation between pages that no one may touch. A GPU has
// no such pages and does not notice accesses close behind an allocation: they are reported, and the
// kernel goes on.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "arrays.h"
#include "launch_cache.h"
#include "streams.h"

namespace kw::program {
namespace {

constexpr size_t kPage = 4096, kAligned = 256;
constexpr size_t kBehind = 64 << 10;          // bytes behind an allocation that a kernel may touch
constexpr size_t kMarked = size_t(64) << 20;  // bytes of the largest allocation with a pattern

std::mutex lock;
void (*told)(const void *, size_t) = nullptr;  // the observer
std::map<std::uintptr_t, Allocation> all;
size_t used = 0;
size_t kept = 0;                               // addresses of freed memory that are not used again
constexpr size_t kMostKept = size_t(1) << 42;  // of 2^47
// Memory that was freed, and where.
struct Freed {
  Allocation its;
  const void *where;
};
std::map<std::uintptr_t, Freed> gone;
std::vector<std::pair<const char *, size_t>> registered;  // memory of the host

size_t rounded(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

void *allocate(size_t bytes, Kind kind, const void *where) {
  const size_t inside = rounded(std::max<size_t>(bytes, 1), kAligned);
  const size_t pages = rounded(inside, kPage), mapped = pages + 2 * kPage + kBehind;
  void *memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char *const base = static_cast<char *>(memory);
  mprotect(base, kPage, PROT_NONE);
  mprotect(base + kPage + pages, kBehind + kPage, PROT_NONE);
  // its end meets the page behind it
  char *const at = base + kPage + pages - inside;
  // the host writes to it otherwise than by functions of the API
  if (told && (kind == Kind::kManaged || kind == Kind::kPinned) && bytes <= kMarked)
    kw_fill_pattern(at, bytes);
  if (kind == Kind::kManaged || kind == Kind::kPinned) read_back();
  std::lock_guard<std::mutex> hold(lock);
  used += bytes;
  const Allocation a = {at, bytes, kind, where, base, mapped, kPage, pages, false, false};
  all[reinterpret_cast<std::uintptr_t>(at)] = a;
  keep_apart(a);
  return at;
}

bool release(void *p, const void *where) {
  std::lock_guard<std::mutex> hold(lock);
  const auto allocation = all.find(reinterpret_cast<std::uintptr_t>(p));
  if (allocation == all.end()) return false;
  const Allocation a = allocation->second;
  all.erase(allocation);
  used -= a.bytes;
  // never reused, so that a later access is detected
  mprotect(a.mapped, a.mapped_bytes, PROT_NONE);
  madvise(a.mapped, a.mapped_bytes, MADV_DONTNEED);
  if (kept + a.mapped_bytes > kMostKept) {
    munmap(a.mapped, a.mapped_bytes);
  } else {
    kept += a.mapped_bytes;
    gone[reinterpret_cast<std::uintptr_t>(p)] = {a, where};
  }
  return true;
}

const Allocation *holding(const void *p) {
  std::lock_guard<std::mutex> hold(lock);
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  auto after = all.upper_bound(at);
  if (after == all.begin()) return nullptr;
  const Allocation &a = (--after)->second;
  return at < reinterpret_cast<std::uintptr_t>(a.at) + std::max<size_t>(a.bytes, 1) ? &a : nullptr;
}

std::vector<Allocation> allocations() {
  std::lock_guard<std::mutex> hold(lock);
  std::vector<Allocation> list;
  for (const auto &[at, a] : all) list.push_back(a);
  return list;
}

namespace {
std::string line(const void *where) {
  char text[32];
  snprintf(text, sizeof text, "@%p@", where);
  return text;
}
}  // namespace

std::string freed_at(const void *p) {
  std::lock_guard<std::mutex> hold(lock);
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  auto after = gone.upper_bound(at);
  if (after == gone.begin()) return "";
  const Freed &f = (--after)->second;
  const size_t offset = at - after->first;
  if (offset >= std::max<size_t>(f.its.bytes, 1)) return "";
  return "byte " + std::to_string(offset) + " of memory that was freed at " + line(f.where) + " (" +
         std::to_string(f.its.bytes) + " bytes allocated at " + line(f.its.where) + ")";
}

extern "C" __attribute__((visibility("default"))) const char *kw_freed(const void *address) {
  static thread_local std::string text;
  text = freed_at(address);
  return text.c_str();
}

extern "C" __attribute__((visibility("default"))) bool kw_forgives(const void *address,
                                                                   const void *where) {
  if (told) return false;  // the checks find it themselves
  std::lock_guard<std::mutex> hold(lock);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto after = all.upper_bound(at);
  if (after == all.begin()) return false;
  Allocation &a = std::prev(after)->second;
  char *const behind = a.mapped + a.mapped_bytes - kPage - kBehind;
  if (address < behind || address >= behind + kBehind) return false;
  never_repeat();  // it reaches memory that is not among the allocations
  if (!a.passed)
    note("past", line(where) + ": a kernel touches memory " +
                     std::to_string(static_cast<const char *>(address) - a.at - a.bytes) +
                     " bytes past the end of the " + std::to_string(a.bytes) +
                     " bytes allocated at " + line(a.where) +
                     "; a GPU may not notice it, so the kernel was not stopped");
  a.passed = true;
  return mprotect(behind, kBehind, PROT_READ | PROT_WRITE) == 0;
}

void wrote(const void *p, size_t bytes) {
  if (!told) return;
  std::lock_guard<std::recursive_mutex> hold(observed());
  told(p, bytes);
}
void tell_writes(void (*function)(const void *, size_t)) { told = function; }

namespace {

cudaError_t out_of_memory_or(void *memory, void **p) {
  host_waits_for_all();
  if (!memory) return give(cudaErrorMemoryAllocation);
  *p = memory;
  return give(cudaSuccess);
}

// Whether `bytes` bytes at `p` may be copied: not past the end of the allocation that holds it.
bool inside(const char *function, const void *p, size_t bytes, bool on_device, const void *where) {
  const Allocation *a = holding(p);
  if (!a) {
    if (on_device && reinterpret_cast<std::uintptr_t>(p) < kPage) {
      note("api", line(where) + ": " + function + " is given a null pointer");
      return false;
    }
    return true;  // a variable of the program, or the host's memory
  }
  const size_t offset = static_cast<const char *>(p) - a->at;
  if (offset + bytes <= a->bytes) return true;
  note("api", line(where) + ": " + function + " of " + std::to_string(bytes) + " bytes at offset " +
                  std::to_string(offset) + " of " + std::to_string(a->bytes) +
                  " bytes allocated at " + line(a->where));
  return false;
}

bool is_registered(const void *p) {
  return std::any_of(registered.begin(), registered.end(),
                     [&](const auto &r) { return p >= r.first && p < r.first + r.second; });
}
// Copies to such memory end before cudaMemcpyAsync returns.
bool is_pageable(const void *p) { return !holding(p) && !is_registered(p); }

// What is wrong with the direction of a copy, or null. Whose memory an address is can be told only
// if it is neither a variable of the program nor memory of a library.
const char *misdirected(const void *to, const void *from, bool to_device, bool from_device,
                        cudaMemcpyKind kind) {
  if (!kept_apart() || kind == cudaMemcpyDefault) return nullptr;
  const auto is_host = [](const void *p) { return is_pageable(p) && !in_program(p); };
  const auto is_device = [](const void *p) {
    const Allocation *a = holding(p);
    return a && a->kind == Kind::kDevice;
  };
  if (to_device ? is_host(to) : is_device(to))
    return to_device ? "its destination is memory of the host" : "its destination is device memory";
  if (from_device ? is_host(from) : is_device(from))
    return from_device ? "its source is memory of the host" : "its source is device memory";
  return nullptr;
}

}  // namespace

cudaError_t copy(const char *function, void *to, const void *from, size_t bytes,
                 cudaMemcpyKind kind, const void *where) {
  if (!bytes) return give(cudaSuccess);
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return give(cudaErrorInvalidMemcpyDirection);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const auto fail = [] {
    read_back();  // the program would have copied: what fails is said elsewhere
    return give(cudaErrorInvalidValue);
  };
  if (!to || !from || !inside(function, to, bytes, to_device, where) ||
      !inside(function, from, bytes, from_device, where))
    return fail();
  for (const void *p : {static_cast<const void *>(to), from})
    if (const std::string freed = freed_at(p); !freed.empty()) {
      note("api", line(where) + ": " + function + " touches " + freed);
      return fail();
    }
  if (const char *why = misdirected(to, from, to_device, from_device, kind)) {
    const char *const kinds[] = {"HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice"};
    note("api",
         line(where) + ": " + function + " is told cudaMemcpy" + kinds[kind] + ", but " + why);
    return fail();
  }
  if (!to_device && !holding(to) && (from_device || holding(from))) read_back();
  synchronized();
  const Synchronous work;
  if (watches_streams()) {
    std::lock_guard<std::recursive_mutex> hold(observed());
    streams_see(function, where);
    streams_see(from, bytes, emulator::kRead, where);
    streams_see(to, bytes, emulator::kWrite, where);
    if (!to_device && is_pageable(to)) host_waits_for_current();
  }
  {
    const OpenedPart opened(to, from);
    std::memmove(to, from, bytes);
  }
  wrote(to, bytes);
  return give(cudaSuccess);
}

cudaError_t copy_rows(const char *function, void *to, size_t to_pitch, const void *from,
                      size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                      const void *where) {
  if (width > to_pitch || width > from_pitch) return give(cudaErrorInvalidPitchValue);
  for (size_t y = 0; y < height; ++y) {
    const cudaError_t e =
        copy(function, static_cast<char *>(to) + y * to_pitch,
             static_cast<const char *>(from) + y * from_pitch, width, kind, where);
    if (e) return e;
  }
  return give(cudaSuccess);
}

namespace {

cudaError_t set(const char *function, void *p, int value, size_t bytes, const void *where) {
  if (!bytes) return give(cudaSuccess);
  if (!inside(function, p, bytes, true, where)) return give(cudaErrorInvalidValue);
  synchronized();
  const Synchronous work;
  if (watches_streams()) {
    std::lock_guard<std::recursive_mutex> hold(observed());
    streams_see(function, where);
    streams_see(p, bytes, emulator::kWrite, where);
  }
  {
    const OpenedPart opened(p, nullptr);
    std::memset(p, value, bytes);
  }
  wrote(p, bytes);
  return give(cudaSuccess);
}

}  // namespace
}  // namespace kw::program

using namespace kw::program;

extern "C" {

cudaError_t cudaMalloc(void **p, size_t bytes) {
  API;
  if (!p) return give(cudaErrorInvalidValue);
  if (!bytes) {
    *p = nullptr;
    return give(cudaSuccess);
  }
  size_t free_bytes = 0, total = 0;
  cudaMemGetInfo(&free_bytes, &total);
  if (bytes > free_bytes) return give(cudaErrorMemoryAllocation);
  return out_of_memory_or(allocate(bytes, Kind::kDevice, HERE), p);
}
cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t) {
  API;
  *p = allocate(bytes, Kind::kDevice, HERE);
  return give(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned) {
  API;
  return out_of_memory_or(allocate(bytes, Kind::kManaged, HERE), p);
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
  API;
  return out_of_memory_or(allocate(bytes, Kind::kPinned, HERE), p);
}
cudaError_t cudaMallocHost(void **p, size_t bytes) {
  API;
  return out_of_memory_or(allocate(bytes, Kind::kPinned, HERE), p);
}
cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
  API;
  *pitch = rounded(width, 512);
  return out_of_memory_or(allocate(*pitch * height, Kind::kDevice, HERE), p);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr *p, cudaExtent extent) {
  API;
  const size_t pitch = rounded(extent.width, 512);
  void *memory = allocate(pitch * extent.height * extent.depth, Kind::kDevice, HERE);
  *p = {memory, pitch, extent.width, extent.height};
  return give(memory ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void *p) {
  API;
  host_waits_for_all();
  synchronized();
  return give(!p || release(p, HERE) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t) {
  API;
  synchronized();
  return give(!p || release(p, HERE) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaFreeHost(void *p) {
  API;
  host_waits_for_all();
  synchronized();
  return give(!p || release(p, HERE) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned) {
  API;
  read_back();
  registered.emplace_back(static_cast<const char *>(p), bytes);
  never_repeat();  // kernels reach memory that is not among the allocations
  return give(cudaSuccess);
}
cudaError_t cudaHostUnregister(void *) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned) {
  API;
  *device = host;
  return give(cudaSuccess);
}
cudaError_t cudaHostGetFlags(unsigned *flags, void *) {
  API;
  *flags = cudaHostAllocMapped;
  return give(cudaSuccess);
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  API;
  kw_cudaDeviceProp its;
  cudaGetDeviceProperties(&its, 0);
  std::lock_guard<std::mutex> hold(lock);
  *total = its.totalGlobalMem;
  *free_bytes = *total - std::min(used, *total);
  return give(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *its, const void *p) {
  API;
  const Allocation *a = holding(p);
  *its = {};
  its->type = !a                          ? cudaMemoryTypeUnregistered
              : a->kind == Kind::kManaged ? cudaMemoryTypeManaged
              : a->kind == Kind::kPinned  ? cudaMemoryTypeHost
                                          : cudaMemoryTypeDevice;
  its->devicePointer = a ? const_cast<void *>(p) : nullptr;
  its->hostPointer = a && a->kind != Kind::kDevice ? const_cast<void *>(p) : nullptr;
  return give(cudaSuccess);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  API;
  return copy("cudaMemcpy", to, from, bytes, kind, HERE);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  API;
  const void *where = HERE;
  const auto act = [=] { return copy("cudaMemcpyAsync", to, from, bytes, kind, where); };
  return in_stream(stream, cudaGraphNodeTypeMemcpy, act, [&](CUgraphNode_st &node) {
    void *source = const_cast<void *>(from);
    node.copy.srcPtr = {source, bytes, bytes, 1}, node.copy.dstPtr = {to, bytes, bytes, 1};
    node.copy.extent = {bytes, 1, 1}, node.copy.kind = kind;
  });
}
cudaError_t cudaMemcpyPeer(void *to, int, const void *from, int, size_t bytes) {
  API;
  return copy("cudaMemcpyPeer", to, from, bytes, cudaMemcpyDeviceToDevice, HERE);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes,
                                cudaStream_t s) {
  API;
  const void *where = HERE;
  return in_stream(s, [=] {
    return copy("cudaMemcpyPeerAsync", to, from, bytes, cudaMemcpyDeviceToDevice, where);
  });
}
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  API;
  return copy_rows("cudaMemcpy2D", to, to_pitch, from, from_pitch, width, height, kind, HERE);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s) {
  API;
  const void *where = HERE;
  return in_stream(s, [=] {
    return copy_rows("cudaMemcpy2DAsync", to, to_pitch, from, from_pitch, width, height, kind,
                     where);
  });
}
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  API;
  void *to = static_cast<char *>(const_cast<void *>(symbol)) + offset;
  return copy("cudaMemcpyToSymbol", to, from, bytes, kind, HERE);
}
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  API;
  return copy("cudaMemcpyFromSymbol", to, static_cast<const char *>(symbol) + offset, bytes, kind,
              HERE);
}
cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes,
                                    size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  API;
  void *to = static_cast<char *>(const_cast<void *>(symbol)) + offset;
  return cudaMemcpyAsync(to, from, bytes, kind, stream);
}
cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  API;
  return cudaMemcpyAsync(to, static_cast<const char *>(symbol) + offset, bytes, kind, stream);
}
cudaError_t cudaGetSymbolAddress(void **p, const void *symbol) {
  API;
  *p = const_cast<void *>(symbol);
  return give(cudaSuccess);
}
cudaError_t cudaMemset(void *p, int value, size_t bytes) {
  API;
  return set("cudaMemset", p, value, bytes, HERE);
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
  API;
  const void *where = HERE;
  const auto act = [=] { return set("cudaMemsetAsync", p, value, bytes, where); };
  return in_stream(stream, cudaGraphNodeTypeMemset, act, [&](CUgraphNode_st &node) {
    node.set = {p, bytes, static_cast<unsigned>(value & 0xff), 1, bytes, 1};
  });
}
cudaError_t cudaMemset2D(void *p, size_t pitch, int value, size_t width, size_t height) {
  API;
  for (size_t y = 0; y < height; ++y)
    if (auto e = set("cudaMemset2D", static_cast<char *>(p) + y * pitch, value, width, HERE))
      return e;
  return give(cudaSuccess);
}
cudaError_t cudaMemPrefetchAsync(const void *, size_t, cudaMemLocation, unsigned, cudaStream_t) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaMemAdvise(const void *, size_t, cudaMemoryAdvise, cudaMemLocation) {
  API;
  return give(cudaSuccess);
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void *, size_t, unsigned) {
  API;
  return give(cudaSuccess);
}
}

// Operators, pairs of keys and values, shared memory of collectives.
#pragma once

namespace cub {

struct Sum {
  template <typename T> __forceinline__ auto operator()(const T &a, const T &b) const {
    return a + b;
  }
};
struct Difference {
  template <typename T> __forceinline__ auto operator()(const T &a, const T &b) const {
    return a - b;
  }
};
struct Max {
  template <typename T> __forceinline__ T operator()(const T &a, const T &b) const {
    return a < b ? b : a;
  }
};
struct Min {
  template <typename T> __forceinline__ T operator()(const T &a, const T &b) const {
    return b < a ? b : a;
  }
};
struct Equality {
  template <typename T> __forceinline__ bool operator()(const T &a, const T &b) const {
    return a == b;
  }
};
struct Inequality {
  template <typename T> __forceinline__ bool operator()(const T &a, const T &b) const {
    return a != b;
  }
};
template <typename Key_, typename Value_> struct KeyValuePair {
  using Key = Key_;
  using Value = Value_;
  Key key;
  Value value;
};
// If values are equal, the one with the smaller key.
struct ArgMax {
  template <typename P> __forceinline__ P operator()(const P &a, const P &b) const {
    return b.value > a.value || (b.value == a.value && b.key < a.key) ? b : a;
  }
};
struct ArgMin {
  template <typename P> __forceinline__ P operator()(const P &a, const P &b) const {
    return b.value < a.value || (b.value == a.value && b.key < a.key) ? b : a;
  }
};
struct NullType {};
template <int N> struct Int2Type {
  static constexpr int VALUE = N;
};
template <typename T> struct DoubleBuffer {
  T *d_buffers[2] = {nullptr, nullptr};
  int selector = 0;
  DoubleBuffer() = default;
  DoubleBuffer(T *current, T *alternate) : d_buffers{current, alternate} {}
  T *Current() { return d_buffers[selector]; }
  T *Alternate() { return d_buffers[selector ^ 1]; }
};

// Memory for values of a type that may have a constructor, which is not called in shared memory.
template <typename T, int N> struct KwRaw {
  alignas(T) unsigned char bytes[sizeof(T) * (N > 0 ? N : 1)];
  __forceinline__ T &operator[](int i) { return reinterpret_cast<T *>(bytes)[i]; }
};
__forceinline__ int KwThread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

inline cudaError_t Debug(cudaError_t e, const char *file, int line) {
  if (e) fprintf(stderr, "CUDA error %d [%s, %d]: %s\n", e, file, line, cudaGetErrorString(e));
  return e;
}
struct CachingDeviceAllocator {
  template <typename... A> explicit CachingDeviceAllocator(A...) {}
  cudaError_t DeviceAllocate(void **p, size_t bytes, cudaStream_t = nullptr) {
    return cudaMalloc(p, bytes);
  }
  cudaError_t DeviceAllocate(int, void **p, size_t bytes, cudaStream_t = nullptr) {
    return cudaMalloc(p, bytes);
  }
  cudaError_t DeviceFree(void *p) { return cudaFree(p); }
  cudaError_t DeviceFree(int, void *p) { return cudaFree(p); }
  cudaError_t FreeAllCached() { return cudaSuccess; }
};

}  // namespace cub
#define CubDebug(e) cub::Debug((cudaError_t)(e), __FILE__, __LINE__)
#define CubDebugExit(e) \
  if (cub::Debug((cudaError_t)(e), __FILE__, __LINE__)) exit(1)

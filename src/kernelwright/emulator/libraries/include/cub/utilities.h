// cub's utilities: numbers of threads and lanes, bits, loads and stores of one thread, arithmetic
// at compile time, properties of the device.
#pragma once

#define CUB_MAX(a, b) (((b) > (a)) ? (b) : (a))
#define CUB_MIN(a, b) (((b) < (a)) ? (b) : (a))
#define CUB_QUOTIENT_FLOOR(x, y) ((x) / (y))
#define CUB_QUOTIENT_CEILING(x, y) (((x) + (y) - 1) / (y))
#define CUB_ROUND_UP_NEAREST(x, y) (CUB_QUOTIENT_CEILING(x, y) * (y))
#define CUB_ROUND_DOWN_NEAREST(x, y) (((x) / (y)) * (y))
#define CUB_IS_INT_CONSTANT(x) true
#define CUB_STATIC_ASSERT(condition, text) static_assert(condition, text)
#define CUB_PTX_WARP_THREADS 32
#define CUB_PTX_LOG_WARP_THREADS 5
#define CUB_WARP_THREADS(arch) 32
#define CUB_LOG_WARP_THREADS(arch) 5

namespace cub {

// ---- threads and lanes

__forceinline__ unsigned LaneId() { return KwThread() % 32; }
__forceinline__ unsigned WarpId() { return KwThread() / 32; }
__forceinline__ unsigned LaneMaskLt() { return (1u << LaneId()) - 1; }
__forceinline__ unsigned LaneMaskLe() { return LaneMaskLt() << 1 | 1; }
__forceinline__ unsigned LaneMaskGe() { return ~LaneMaskLt(); }
__forceinline__ unsigned LaneMaskGt() { return ~LaneMaskLe(); }
__forceinline__ int RowMajorTid(int x, int y, int) {
  return threadIdx.x + x * (threadIdx.y + y * threadIdx.z);
}
template <int THREADS> __forceinline__ unsigned WarpMask(unsigned warp) {
  constexpr unsigned all = THREADS >= 32 ? ~0u : (1u << THREADS % 32) - 1;
  return THREADS >= 32 ? all : all << warp * THREADS % 32;
}
template <int X, int Y = 1, int Z = 1> __forceinline__ int RowMajorTid() {
  return RowMajorTid(X, Y, Z);
}
__forceinline__ void CTA_SYNC() { __syncthreads(); }
__forceinline__ int CTA_SYNC_AND(int p) { return __syncthreads_and(p); }
__forceinline__ int CTA_SYNC_OR(int p) { return __syncthreads_or(p); }
__forceinline__ void WARP_SYNC(unsigned mask) { __syncwarp(mask); }
__forceinline__ int WARP_ANY(int p, unsigned mask) { return __any_sync(mask, p); }
__forceinline__ int WARP_ALL(int p, unsigned mask) { return __all_sync(mask, p); }
__forceinline__ unsigned WARP_BALLOT(int p, unsigned mask) { return __ballot_sync(mask, p); }
template <int THREADS, typename T>
__forceinline__ T ShuffleUp(T x, int by, int first, unsigned mask) {
  const int lane = static_cast<int>(LaneId()) - by;
  return __shfl_sync(mask, x, lane < first ? LaneId() : lane);
}
template <int THREADS, typename T>
__forceinline__ T ShuffleDown(T x, int by, int last, unsigned mask) {
  const int lane = static_cast<int>(LaneId()) + by;
  return __shfl_sync(mask, x, lane > last ? LaneId() : lane);
}
template <int THREADS, typename T> __forceinline__ T ShuffleIndex(T x, int from, unsigned mask) {
  return __shfl_sync(mask, x, from, THREADS);
}
// The lanes whose label is this lane's.
template <int BITS> __forceinline__ unsigned MatchAny(unsigned label) {
  return __match_any_sync(~0u, label & ((BITS < 32 ? 1u << BITS % 32 : 0u) - 1));
}
__forceinline__ void ThreadExit() { __trap(); }
__forceinline__ void ThreadTrap() { __trap(); }

// ---- bits

template <typename T> __forceinline__ unsigned BFE(T x, unsigned first, unsigned bits) {
  const auto all = static_cast<unsigned long long>(static_cast<std::make_unsigned_t<T>>(x));
  return static_cast<unsigned>(all >> first & ((1ull << bits) - 1));
}
__forceinline__ void BFI(unsigned &to, unsigned x, unsigned y, unsigned first, unsigned bits) {
  const unsigned mask = static_cast<unsigned>(((1ull << bits) - 1) << first);
  to = (x & ~mask) | (y << first & mask);
}
__forceinline__ unsigned SHR_ADD(unsigned x, unsigned by, unsigned y) { return (x >> by) + y; }
__forceinline__ unsigned SHL_ADD(unsigned x, unsigned by, unsigned y) { return (x << by) + y; }
__forceinline__ int PRMT(unsigned a, unsigned b, unsigned how) { return __byte_perm(a, b, how); }
__forceinline__ unsigned IADD3(unsigned a, unsigned b, unsigned c) { return a + b + c; }
__forceinline__ float FMUL_RZ(float a, float b) { return __fmul_rz(a, b); }
__forceinline__ float FFMA_RZ(float a, float b, float c) { return __fmaf_rz(a, b, c); }

// ---- one thread

enum CacheStoreModifier { STORE_DEFAULT, STORE_WB, STORE_CG, STORE_CS, STORE_WT, STORE_VOLATILE };
template <CacheStoreModifier, typename Out, typename T>
__forceinline__ void ThreadStore(Out p, T value) {
  *p = value;
}
template <CacheStoreModifier, typename T, typename Offset = std::ptrdiff_t>
using CacheModifiedOutputIterator = T *;
template <int N, typename T, typename Op>
__forceinline__ T ThreadReduce(T *items, Op op, T prefix, Int2Type<N>) {
  for (int i = 0; i < N; ++i) prefix = op(prefix, items[i]);
  return prefix;
}
template <int N, typename T, typename Op>
__forceinline__ T ThreadReduce(T (&items)[N], Op op, T prefix) {
  return ThreadReduce(items, op, prefix, Int2Type<N>());
}
template <int N, typename T, typename Op> __forceinline__ T ThreadReduce(T (&items)[N], Op op) {
  T x = items[0];
  for (int i = 1; i < N; ++i) x = op(x, items[i]);
  return x;
}
template <int N, typename T, typename Op>
__forceinline__ T ThreadScanExclusive(T (&from)[N], T (&to)[N], Op op, T prefix, bool = true) {
  for (int i = 0; i < N; ++i) {
    const T next = op(prefix, from[i]);
    to[i] = prefix, prefix = next;
  }
  return prefix;
}
template <int N, typename T, typename Op>
__forceinline__ T ThreadScanInclusive(T (&from)[N], T (&to)[N], Op op) {
  to[0] = from[0];
  for (int i = 1; i < N; ++i) to[i] = op(to[i - 1], from[i]);
  return to[N - 1];
}
template <int N, typename T, typename Op>
__forceinline__ T ThreadScanInclusive(T (&from)[N], T (&to)[N], Op op, T prefix) {
  for (int i = 0; i < N; ++i) to[i] = prefix = op(prefix, from[i]);
  return prefix;
}
// The first place in sorted values where `key` may stand; the last one.
template <typename In, typename Offset, typename T>
__forceinline__ Offset LowerBound(In in, Offset n, T key) {
  Offset first = 0;
  while (n > 0) {
    const Offset half = n / 2;
    if (in[first + half] < key)
      first += half + 1, n -= half + 1;
    else
      n = half;
  }
  return first;
}
template <typename In, typename Offset, typename T>
__forceinline__ Offset UpperBound(In in, Offset n, T key) {
  Offset first = 0;
  while (n > 0) {
    const Offset half = n / 2;
    if (key < in[first + half])
      n = half;
    else
      first += half + 1, n -= half + 1;
  }
  return first;
}

// ---- at compile time

template <int N, int AT = N, int COUNT = 0> struct Log2 {
  static constexpr int VALUE = [] {
    int bits = 0;
    while ((1ll << bits) < N) ++bits;
    return bits;
  }();
};
template <int N> struct PowerOfTwo {
  static constexpr bool VALUE = (N & (N - 1)) == 0;
};
template <bool WHICH, typename A, typename B> struct If {
  using Type = std::conditional_t<WHICH, A, B>;
};
template <typename A, typename B> struct Equals {
  static constexpr bool VALUE = std::is_same_v<A, B>, NEGATE = !VALUE;
};
template <typename T> struct IsPointer {
  static constexpr bool VALUE = std::is_pointer_v<T>;
};
template <typename T> using RemoveQualifiers = std::remove_cv<T>;
template <typename A, typename B> constexpr auto DivideAndRoundUp(A a, B b) {
  return static_cast<A>((a + b - 1) / b);
}
enum Category { NOT_A_NUMBER, SIGNED_INTEGER, UNSIGNED_INTEGER, FLOATING_POINT };
template <typename T> struct Traits {
  static constexpr Category CATEGORY = std::is_floating_point_v<T> ? FLOATING_POINT
                                       : !std::is_integral_v<T>    ? NOT_A_NUMBER
                                       : std::is_signed_v<T>       ? SIGNED_INTEGER
                                                                   : UNSIGNED_INTEGER;
  static constexpr bool PRIMITIVE = std::is_arithmetic_v<T>;
  static T Max() { return std::numeric_limits<T>::max(); }
  static T Lowest() { return std::numeric_limits<T>::lowest(); }
};
template <typename T> using NumericTraits = Traits<T>;
template <typename T> using FpLimits = Traits<T>;
template <typename T> struct Uninitialized {
  alignas(T) unsigned char storage[sizeof(T)];
  __forceinline__ T &Alias() { return reinterpret_cast<T &>(storage); }
};

// ---- operators made of others

template <typename T> struct CastOp {
  template <typename A> __forceinline__ T operator()(const A &x) const { return static_cast<T>(x); }
};
template <typename Op> struct SwizzleScanOp {
  Op op;
  SwizzleScanOp(Op op) : op(op) {}
  template <typename T> __forceinline__ T operator()(const T &a, const T &b) const {
    return op(b, a);
  }
};
template <typename Op> struct InequalityWrapper {
  Op op;
  InequalityWrapper(Op op) : op(op) {}
  template <typename T> __forceinline__ bool operator()(const T &a, const T &b) {
    return !op(a, b);
  }
};
// Pairs of a number of segment heads and a value: the value restarts at a head.
template <typename Op> struct ReduceBySegmentOp {
  Op op;
  ReduceBySegmentOp(Op op = {}) : op(op) {}
  template <typename P> __forceinline__ P operator()(const P &a, const P &b) {
    return {a.key + b.key, b.key ? b.value : op(a.value, b.value)};
  }
};
template <typename Op> struct ReduceByKeyOp {
  Op op;
  ReduceByKeyOp(Op op = {}) : op(op) {}
  template <typename P> __forceinline__ P operator()(const P &a, const P &b) {
    return {b.key, a.key == b.key ? op(a.value, b.value) : b.value};
  }
};

// ---- the device

inline int CurrentDevice() {
  int device = -1;
  cudaGetDevice(&device);
  return device;
}
inline int DeviceCount() {
  int count = -1;
  cudaGetDeviceCount(&count);
  return count;
}
inline cudaError_t SmVersion(int &version, int device = 0) {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  const cudaError_t e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  version = major * 100 + minor * 10;
  return e;
}
inline cudaError_t PtxVersion(int &version, int device = 0) { return SmVersion(version, device); }
template <typename K>
inline cudaError_t MaxSmOccupancy(int &blocks, K kernel, int threads, int shared = 0) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared);
}

}  // namespace cub

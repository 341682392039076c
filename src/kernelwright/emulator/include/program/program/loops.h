// What the loops over a block's threads are made of, which program/loops writes beside the code of
// single threads.
#pragma once

#define KwVolatile  // `volatile` in a cast

namespace kw::loops {

template <typename T> struct Unrestricted {
  using Type = T;
};
template <typename T> struct Unrestricted<T *__restrict__> {
  using Type = T *;
};

// A value for each thread of the block, with no initial value. T may be an array.
template <typename T> class PerThread {
 public:
  using Value = typename Unrestricted<std::remove_cv_t<T>>::Type;
  explicit PerThread(unsigned count)
      : bytes_(count * sizeof(Value)), at_(static_cast<Value *>(kw_thread_values(bytes_))) {}
  ~PerThread() { kw_thread_values_free(bytes_); }
  PerThread(const PerThread &) = delete;
  __forceinline__ Value &operator[](size_t thread) const { return at_[thread]; }
  Value &any() const;

 private:
  unsigned long long bytes_;
  Value *at_;
};

// Which threads have returned before the others.
class Ended {
 public:
  explicit Ended(unsigned count) : ended_(count), count_(count), left_(count) {
    for (unsigned i = 0; i < count; ++i) ended_[i] = false;
  }
  // The first condition is the same for all threads: the compiler asks it outside of the loops.
  __forceinline__ bool operator[](size_t thread) const { return any_ && ended_[thread]; }
  void note(size_t thread) { ended_[thread] = true, --left_; }
  // Whether there are none that go on.
  bool all() {
    any_ = left_ < count_;
    return !left_;
  }

 private:
  PerThread<bool> ended_;
  unsigned count_, left_;
  bool any_ = false;
};

template <typename T, typename U> KW_BUILT_IN void set(T &to, const U &from) {
  if constexpr (std::is_array_v<T>)
    __builtin_memcpy(&to, &from, sizeof(T));
  else
    to = from;
}

// How many threads are taken at a time, so that x / n and x % n are simple among them.
template <typename... N> KW_BUILT_IN unsigned width(N... n) {
  return ((n % 32 == 0) && ...) ? 32 : ((n % 16 == 0) && ...) ? 16 : ((n % 8 == 0) && ...) ? 8 : 32;
}

// x / n and x % n of x = first + lane, where `width` divides `first` and `lane` is less than it.
template <typename X, typename N>
KW_BUILT_IN auto quotient(X x, unsigned first, unsigned, unsigned width, N n) -> decltype(x / n) {
  return n % static_cast<N>(width) == 0 ? static_cast<X>(first) / n : x / n;
}
template <typename X, typename N>
KW_BUILT_IN auto remainder(X x, unsigned first, unsigned lane, unsigned width, N n)
    -> decltype(x % n) {
  return n % static_cast<N>(width) == 0 ? static_cast<X>(first) % n + static_cast<X>(lane) : x % n;
}

}  // namespace kw::loops

// The bounds of the loops are known to be small, or the compiler would count on indices that wrap.
#define KW_BLOCK                                                                          \
  const uint3 blockIdx = ::blockIdx;                                                      \
  const dim3 blockDim = ::blockDim, gridDim = ::gridDim;                                  \
  if (blockDim.x > 1024 || blockDim.y > 1024 || blockDim.z > 64) __builtin_unreachable(); \
  const unsigned kw_count = blockDim.x * blockDim.y * blockDim.z;
#define KW_STEP ++*kw_loops->progress;
#define KW_EACH_ROW                                            \
  for (size_t kw_z = 0, kw_row = 0; kw_z < blockDim.z; ++kw_z) \
    for (unsigned kw_y = 0; kw_y < blockDim.y; ++kw_y, kw_row += blockDim.x)
#define KW_LANE                                                              \
  const uint3 threadIdx = {kw_x0 + kw_l, kw_y, static_cast<unsigned>(kw_z)}; \
  const size_t kw_t = kw_row + kw_x0 + kw_l;
#define KW_EACH_THREAD \
  KW_EACH_ROW          \
  for (unsigned kw_l = 0, kw_x0 = 0; kw_l < blockDim.x; ++kw_l)
// A strip of threads at a time.
#define KW_EACH_LANE                                              \
  KW_EACH_ROW                                                     \
  for (unsigned kw_x0 = 0; kw_x0 < blockDim.x; kw_x0 += kw_width) \
    for (unsigned kw_l = 0, kw_lanes = min(kw_width, blockDim.x - kw_x0); kw_l < kw_lanes; ++kw_l)
// Called functions may ask which thread calls.
#define KW_PRESENT                       \
  kw_current = kw_loops->threads + kw_t; \
  ::threadIdx = threadIdx;
#define KW_ABSENT kw_current = kw_loops->none;

// Reductions and scans of a warp, by shuffles among its lanes.
#pragma once

namespace cub {

// The lanes of a part of a warp.
template <int WIDTH> struct KwLanes {
  static_assert(WIDTH >= 1 && WIDTH <= 32, "a logical warp has 1 to 32 lanes");
  static __forceinline__ int lane() { return KwThread() % 32 % WIDTH; }
  static __forceinline__ unsigned mask() {
    if (WIDTH == 32) return ~0u;
    const int first = KwThread() % 32 / WIDTH * WIDTH;
    return static_cast<unsigned>(((1ull << WIDTH) - 1) << first);
  }
  // The value of a lane of the part, for any WIDTH.
  template <typename T> static __forceinline__ T at(const T &x, int lane) {
    return __shfl_sync(mask(), x, KwThread() % 32 / WIDTH * WIDTH + lane, 32);
  }
};

template <typename T, int WIDTH = 32, int = 0> class WarpReduce {
  using Lanes = KwLanes<WIDTH>;

 public:
  struct TempStorage {
    char unused;
  };
  __forceinline__ WarpReduce(TempStorage &) {}
  // Lane 0 gets the result.
  template <typename Op> __forceinline__ T Reduce(T x, Op op, int valid = WIDTH) {
    const int lane = Lanes::lane();
    for (int by = 1; by < WIDTH; by *= 2) {
      const bool reads = lane + by < valid && lane + by < WIDTH;
      const T other = Lanes::at(x, reads ? lane + by : lane);
      if (reads) x = op(x, other);
    }
    return x;
  }
  __forceinline__ T Sum(T x, int valid = WIDTH) { return Reduce(x, cub::Sum(), valid); }
  // A segment begins at each lane with a flag; the first lane of a segment gets its result.
  template <typename F, typename Op> __forceinline__ T HeadSegmentedReduce(T x, F flag, Op op) {
    const unsigned heads = __ballot_sync(Lanes::mask(), flag) >> (KwThread() % 32 / WIDTH * WIDTH);
    const int lane = Lanes::lane();
    const unsigned after = lane == 31 ? 0 : heads >> (lane + 1) << (lane + 1);
    const int end = after ? __builtin_ctz(after) : WIDTH;
    for (int by = 1; by < WIDTH; by *= 2) {
      const T other = Lanes::at(x, lane + by < end ? lane + by : lane);
      if (lane + by < end) x = op(x, other);
    }
    return x;
  }
  template <typename F> __forceinline__ T HeadSegmentedSum(T x, F flag) {
    return HeadSegmentedReduce(x, flag, cub::Sum());
  }
};

template <typename T, int WIDTH = 32, int = 0> class WarpScan {
  using Lanes = KwLanes<WIDTH>;

 public:
  struct TempStorage {
    char unused;
  };
  __forceinline__ WarpScan(TempStorage &) {}
  template <typename Op> __forceinline__ void InclusiveScan(T x, T &to, Op op) {
    const int lane = Lanes::lane();
    for (int by = 1; by < WIDTH; by *= 2) {
      const T other = Lanes::at(x, lane >= by ? lane - by : lane);
      if (lane >= by) x = op(other, x);
    }
    to = x;
  }
  template <typename Op> __forceinline__ void InclusiveScan(T x, T &to, Op op, T &total) {
    InclusiveScan(x, to, op);
    total = Lanes::at(to, WIDTH - 1);
  }
  // Lane 0 gets no value, because nothing precedes it.
  template <typename Op> __forceinline__ void ExclusiveScan(T x, T &to, Op op) {
    T all;
    InclusiveScan(x, all, op);
    const int lane = Lanes::lane();
    to = Lanes::at(all, lane ? lane - 1 : 0);
  }
  template <typename Op> __forceinline__ void ExclusiveScan(T x, T &to, T initial, Op op) {
    ExclusiveScan(x, to, op);
    to = Lanes::lane() ? op(initial, to) : initial;
  }
  template <typename Op>
  __forceinline__ void ExclusiveScan(T x, T &to, T initial, Op op, T &total) {
    T all;
    InclusiveScan(x, all, op, total);
    const int lane = Lanes::lane();
    const T before = Lanes::at(all, lane ? lane - 1 : 0);
    to = lane ? op(initial, before) : initial;
  }
  __forceinline__ void InclusiveSum(T x, T &to) { InclusiveScan(x, to, cub::Sum()); }
  __forceinline__ void InclusiveSum(T x, T &to, T &total) {
    InclusiveScan(x, to, cub::Sum(), total);
  }
  __forceinline__ void ExclusiveSum(T x, T &to) { ExclusiveScan(x, to, T{}, cub::Sum()); }
  __forceinline__ void ExclusiveSum(T x, T &to, T &total) {
    ExclusiveScan(x, to, T{}, cub::Sum(), total);
  }
  __forceinline__ T Broadcast(T x, unsigned lane) { return Lanes::at(x, static_cast<int>(lane)); }
};

}  // namespace cub

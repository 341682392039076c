// Reductions and scans of a block: of each warp by shuffles, then of the results of the warps.
#pragma once

namespace cub {

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

// Shared memory for a collective to which none is passed.
template <typename Storage> __forceinline__ Storage &KwPrivate() {
  __shared__ Storage storage;
  return storage;
}

template <typename T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1,
          int Z = 1, int = 0>
class BlockReduce {
  static constexpr int kThreads = X * Y * Z, kWarps = (kThreads + 31) / 32;

 public:
  struct TempStorage {
    KwRaw<T, kWarps> of;
  };
  __forceinline__ BlockReduce() : s_(KwPrivate<TempStorage>()) {}
  __forceinline__ BlockReduce(TempStorage &s) : s_(s) {}
  // Thread 0 gets the result of the first `valid` threads.
  template <typename Op> __forceinline__ T Reduce(T x, Op op, int valid) {
    const int warp = KwThread() / 32, first = warp * 32;
    typename WarpReduce<T>::TempStorage none;
    const int all = valid < kThreads ? valid : kThreads, here = all - first < 32 ? all - first : 32;
    x = WarpReduce<T>(none).Reduce(x, op, here);
    if (KwThread() % 32 == 0) s_.of[warp] = x;
    __syncthreads();
    if (KwThread() == 0)
      for (int i = 1; i < kWarps && i * 32 < all; ++i) x = op(x, s_.of[i]);
    return x;
  }
  template <typename Op> __forceinline__ T Reduce(T x, Op op) { return Reduce(x, op, kThreads); }
  template <int N, typename Op> __forceinline__ T Reduce(T (&items)[N], Op op) {
    T x = items[0];
    for (int i = 1; i < N; ++i) x = op(x, items[i]);
    return Reduce(x, op, kThreads);
  }
  __forceinline__ T Sum(T x) { return Reduce(x, cub::Sum(), kThreads); }
  __forceinline__ T Sum(T x, int valid) { return Reduce(x, cub::Sum(), valid); }
  template <int N> __forceinline__ T Sum(T (&items)[N]) { return Reduce(items, cub::Sum()); }

 private:
  TempStorage &s_;
};

template <typename T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
class BlockScan {
  static constexpr int kThreads = X * Y * Z, kWarps = (kThreads + 31) / 32;

 public:
  struct TempStorage {
    KwRaw<T, kWarps> of;
    KwRaw<T, 1> prefix;
  };
  __forceinline__ BlockScan() : s_(KwPrivate<TempStorage>()) {}
  __forceinline__ BlockScan(TempStorage &s) : s_(s) {}

  template <typename Op> __forceinline__ void InclusiveScan(T x, T &to, Op op, T &total) {
    T before;
    const bool any = scan(x, op, before, total);
    to = any ? op(before, x) : x;
  }
  template <typename Op> __forceinline__ void InclusiveScan(T x, T &to, Op op) {
    T total;
    InclusiveScan(x, to, op, total);
  }
  template <typename Op>
  __forceinline__ void ExclusiveScan(T x, T &to, T initial, Op op, T &total) {
    T before;
    const bool any = scan(x, op, before, total);
    to = any ? op(initial, before) : initial;
  }
  template <typename Op> __forceinline__ void ExclusiveScan(T x, T &to, T initial, Op op) {
    T total;
    ExclusiveScan(x, to, initial, op, total);
  }
  // Thread 0 gets no value, because nothing precedes it.
  template <typename Op> __forceinline__ void ExclusiveScan(T x, T &to, Op op) {
    T total;
    scan(x, op, to, total);
  }
  // A functor that the first warp calls converts the block's total to the prefix of the block.
  template <typename Op, typename Prefix,
            typename = decltype(std::declval<Prefix &>()(std::declval<T>()))>
  __forceinline__ void ExclusiveScan(T x, T &to, Op op, Prefix &prefix) {
    T before, total;
    const bool any = scan(x, op, before, total);
    const T start = prefixed(prefix, total);
    to = any ? op(start, before) : start;
  }
  template <typename Op, typename Prefix,
            typename = decltype(std::declval<Prefix &>()(std::declval<T>())), typename = void>
  __forceinline__ void InclusiveScan(T x, T &to, Op op, Prefix &prefix) {
    T own = x;
    ExclusiveScan(x, to, op, prefix);
    to = op(to, own);
  }
  __forceinline__ void InclusiveSum(T x, T &to) { InclusiveScan(x, to, cub::Sum()); }
  __forceinline__ void InclusiveSum(T x, T &to, T &total) {
    InclusiveScan(x, to, cub::Sum(), total);
  }
  __forceinline__ void ExclusiveSum(T x, T &to) { ExclusiveScan(x, to, T{}, cub::Sum()); }
  __forceinline__ void ExclusiveSum(T x, T &to, T &total) {
    ExclusiveScan(x, to, T{}, cub::Sum(), total);
  }
  template <typename Prefix, typename = decltype(std::declval<Prefix &>()(std::declval<T>()))>
  __forceinline__ void ExclusiveSum(T x, T &to, Prefix &prefix) {
    ExclusiveScan(x, to, cub::Sum(), prefix);
  }
  template <typename Prefix, typename = decltype(std::declval<Prefix &>()(std::declval<T>()))>
  __forceinline__ void InclusiveSum(T x, T &to, Prefix &prefix) {
    InclusiveScan(x, to, cub::Sum(), prefix);
  }

  // ---- N items per thread

  template <int N, typename Op, typename... More>
  __forceinline__ void ExclusiveScan(T (&in)[N], T (&to)[N], T initial, Op op, More &...more) {
    T sum;
    ExclusiveScan(folded(in, op), sum, initial, op, more...);
    for (int i = 0; i < N; ++i) {
      const T own = in[i];
      to[i] = sum;
      sum = op(sum, own);
    }
  }
  template <int N, typename Op>
  __forceinline__ void InclusiveScan(T (&in)[N], T (&to)[N], Op op, T &total) {
    T before;
    const bool any = scan(folded(in, op), op, before, total);
    for (int i = 0; i < N; ++i) to[i] = before = i || any ? op(before, in[i]) : in[i];
  }
  template <int N, typename Op> __forceinline__ void InclusiveScan(T (&in)[N], T (&to)[N], Op op) {
    T total;
    InclusiveScan(in, to, op, total);
  }
  template <int N, typename... More>
  __forceinline__ void ExclusiveSum(T (&in)[N], T (&to)[N], More &...more) {
    items_exclusive_sum(in, to, more...);
  }
  template <int N> __forceinline__ void InclusiveSum(T (&in)[N], T (&to)[N]) {
    InclusiveScan(in, to, cub::Sum());
  }
  template <int N> __forceinline__ void InclusiveSum(T (&in)[N], T (&to)[N], T &total) {
    InclusiveScan(in, to, cub::Sum(), total);
  }

 private:
  template <int N, typename Op> static __forceinline__ T folded(T (&in)[N], Op op) {
    T x = in[0];
    for (int i = 1; i < N; ++i) x = op(x, in[i]);
    return x;
  }
  template <int N> __forceinline__ void items_exclusive_sum(T (&in)[N], T (&to)[N]) {
    ExclusiveScan(in, to, T{}, cub::Sum());
  }
  template <int N> __forceinline__ void items_exclusive_sum(T (&in)[N], T (&to)[N], T &total) {
    ExclusiveScan(in, to, T{}, cub::Sum(), total);
  }
  template <int N, typename Prefix>
  __forceinline__ void items_exclusive_sum(T (&in)[N], T (&to)[N], Prefix &prefix) {
    T sum;
    ExclusiveSum(folded(in, cub::Sum()), sum, prefix);
    for (int i = 0; i < N; ++i) {
      const T own = in[i];
      to[i] = sum;
      sum = sum + own;
    }
  }
  // The result of the threads before this one, if any, and the sum of all.
  template <typename Op> __forceinline__ bool scan(T x, Op op, T &before, T &total) {
    const int thread = KwThread(), warp = thread / 32, lane = thread % 32;
    typename WarpScan<T>::TempStorage none;
    T all;
    WarpScan<T>(none).InclusiveScan(x, all, op);
    if (lane == 31 || thread == kThreads - 1) s_.of[warp] = all;
    const T previous = KwLanes<32>::at(all, lane ? lane - 1 : 0);
    __syncthreads();
    total = s_.of[0];
    for (int i = 1; i < kWarps; ++i) {
      if (i == warp) before = total;
      total = op(total, s_.of[i]);
    }
    if (lane) before = warp ? op(before, previous) : previous;
    return thread > 0;
  }
  template <typename Prefix> __forceinline__ T prefixed(Prefix &prefix, T total) {
    if (KwThread() < 32) {
      const T start = prefix(total);
      if (KwThread() == 0) s_.prefix[0] = start;
    }
    __syncthreads();
    return s_.prefix[0];
  }
  TempStorage &s_;
};

}  // namespace cub

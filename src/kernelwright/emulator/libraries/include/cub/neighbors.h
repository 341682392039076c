// For a block's items: flags where neighbors differ, differences of neighbors, histograms.
#pragma once

namespace cub {

// The last (`back`: the first) item of every thread, for the adjacent thread.
template <typename T, int X, int Y = 1, int Z = 1, int = 0> class BlockDiscontinuity {
  static constexpr int kThreads = X * Y * Z;

 public:
  struct TempStorage {
    KwRaw<T, kThreads> of;
  };
  __forceinline__ BlockDiscontinuity() : s_(KwPrivate<TempStorage>()) {}
  __forceinline__ BlockDiscontinuity(TempStorage &s) : s_(s) {}

  // The first item has no predecessor, unless one is given: its flag is 1.
  template <int N, typename Flag, typename Op>
  __forceinline__ void FlagHeads(Flag (&flags)[N], T (&items)[N], Op differs) {
    const T before = left(items[N - 1], T());
    heads(flags, items, differs, KwThread() == 0, before);
  }
  template <int N, typename Flag, typename Op>
  __forceinline__ void FlagHeads(Flag (&flags)[N], T (&items)[N], Op differs, T predecessor) {
    const T before = left(items[N - 1], predecessor);
    heads(flags, items, differs, false, before);
  }
  template <int N, typename Flag, typename Op>
  __forceinline__ void FlagTails(Flag (&flags)[N], T (&items)[N], Op differs) {
    const T after = right(items[0], T());
    tails(flags, items, differs, KwThread() == kThreads - 1, after);
  }
  template <int N, typename Flag, typename Op>
  __forceinline__ void FlagTails(Flag (&flags)[N], T (&items)[N], Op differs, T successor) {
    const T after = right(items[0], successor);
    tails(flags, items, differs, false, after);
  }

 private:
  __forceinline__ T left(T own, T otherwise) {
    s_.of[KwThread()] = own;
    __syncthreads();
    return KwThread() ? s_.of[KwThread() - 1] : otherwise;
  }
  __forceinline__ T right(T own, T otherwise) {
    s_.of[KwThread()] = own;
    __syncthreads();
    return KwThread() < kThreads - 1 ? s_.of[KwThread() + 1] : otherwise;
  }
  template <int N, typename Flag, typename Op>
  __forceinline__ void heads(Flag (&flags)[N], T (&items)[N], Op differs, bool alone, T before) {
    for (int i = 0; i < N; ++i) {
      flags[i] = (alone && i == 0) || differs(i ? items[i - 1] : before, items[i]);
    }
  }
  template <int N, typename Flag, typename Op>
  __forceinline__ void tails(Flag (&flags)[N], T (&items)[N], Op differs, bool alone, T after) {
    for (int i = 0; i < N; ++i) {
      const bool last = i == N - 1;
      flags[i] = (alone && last) || differs(items[i], last ? after : items[i + 1]);
    }
  }
  TempStorage &s_;
};

template <typename T, int X, int Y = 1, int Z = 1, int = 0> class BlockAdjacentDifference {
  static constexpr int kThreads = X * Y * Z;

 public:
  struct TempStorage {
    KwRaw<T, kThreads> of;
  };
  __forceinline__ BlockAdjacentDifference() : s_(KwPrivate<TempStorage>()) {}
  __forceinline__ BlockAdjacentDifference(TempStorage &s) : s_(s) {}

  // The first item (the last for SubtractRight) has no neighbor and is not changed.
  template <int N, typename Out, typename Op>
  __forceinline__ void SubtractLeft(T (&items)[N], Out (&to)[N], Op difference) {
    s_.of[KwThread()] = items[N - 1];
    __syncthreads();
    T results[N];
    for (int i = 0; i < N; ++i) {
      if (i)
        results[i] = difference(items[i], items[i - 1]);
      else
        results[i] = KwThread() ? difference(items[0], s_.of[KwThread() - 1]) : items[0];
    }
    for (int i = 0; i < N; ++i) to[i] = results[i];
  }
  template <int N, typename Out, typename Op>
  __forceinline__ void SubtractRight(T (&items)[N], Out (&to)[N], Op difference) {
    s_.of[KwThread()] = items[0];
    __syncthreads();
    T results[N];
    for (int i = 0; i < N; ++i) {
      if (i < N - 1)
        results[i] = difference(items[i], items[i + 1]);
      else
        results[i] =
            KwThread() < kThreads - 1 ? difference(items[i], s_.of[KwThread() + 1]) : items[i];
    }
    for (int i = 0; i < N; ++i) to[i] = results[i];
  }

 private:
  TempStorage &s_;
};

enum BlockHistogramAlgorithm { BLOCK_HISTO_ATOMIC, BLOCK_HISTO_SORT };

template <typename T, int X, int N, int BINS, BlockHistogramAlgorithm = BLOCK_HISTO_SORT, int Y = 1,
          int Z = 1, int = 0>
class BlockHistogram {
 public:
  struct TempStorage {
    char unused;
  };
  __forceinline__ BlockHistogram() {}
  __forceinline__ BlockHistogram(TempStorage &) {}
  template <typename Counter> __forceinline__ void InitHistogram(Counter (&counts)[BINS]) {
    for (int i = KwThread(); i < BINS; i += X * Y * Z) counts[i] = 0;
  }
  template <typename Counter>
  __forceinline__ void Histogram(T (&items)[N], Counter (&counts)[BINS]) {
    InitHistogram(counts);
    __syncthreads();
    Composite(items, counts);
  }
  template <typename Counter>
  __forceinline__ void Composite(T (&items)[N], Counter (&counts)[BINS]) {
    for (int i = 0; i < N; ++i) atomicAdd(counts + items[i], Counter(1));
    __syncthreads();
  }
};

}  // namespace cub

// Loads, stores and other arrangements of a block's items: blocked (a thread has adjacent items)
// and striped (adjacent items are in adjacent threads).
#pragma once

namespace cub {

enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT,
  BLOCK_LOAD_STRIPED,
  BLOCK_LOAD_VECTORIZE,
  BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT,
  BLOCK_STORE_STRIPED,
  BLOCK_STORE_VECTORIZE,
  BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

template <typename In, typename T, int N>
__forceinline__ void LoadDirectBlocked(int thread, In from, T (&items)[N]) {
  for (int i = 0; i < N; ++i) items[i] = from[thread * N + i];
}
template <int THREADS, typename In, typename T, int N>
__forceinline__ void LoadDirectStriped(int thread, In from, T (&items)[N]) {
  for (int i = 0; i < N; ++i) items[i] = from[thread + i * THREADS];
}
template <typename Out, typename T, int N>
__forceinline__ void StoreDirectBlocked(int thread, Out to, T (&items)[N]) {
  for (int i = 0; i < N; ++i) to[thread * N + i] = items[i];
}
template <int THREADS, typename Out, typename T, int N>
__forceinline__ void StoreDirectStriped(int thread, Out to, T (&items)[N]) {
  for (int i = 0; i < N; ++i) to[thread + i * THREADS] = items[i];
}

template <typename T, int X, int N, BlockLoadAlgorithm ALGORITHM = BLOCK_LOAD_DIRECT, int Y = 1,
          int Z = 1, int = 0>
class BlockLoad {
 public:
  struct TempStorage {
    char unused;
  };
  __forceinline__ BlockLoad() {}
  __forceinline__ BlockLoad(TempStorage &) {}
  template <typename In> __forceinline__ void Load(In from, T (&items)[N]) {
    for (int i = 0; i < N; ++i) items[i] = from[at(i)];
  }
  template <typename In> __forceinline__ void Load(In from, T (&items)[N], int valid) {
    for (int i = 0; i < N; ++i)
      if (at(i) < valid) items[i] = from[at(i)];
  }
  template <typename In, typename D>
  __forceinline__ void Load(In from, T (&items)[N], int valid, D otherwise) {
    for (int i = 0; i < N; ++i) items[i] = at(i) < valid ? T(from[at(i)]) : T(otherwise);
  }

 private:
  __forceinline__ int at(int i) {
    return ALGORITHM == BLOCK_LOAD_STRIPED ? KwThread() + i * X * Y * Z : KwThread() * N + i;
  }
};
template <typename T, int X, int N, BlockStoreAlgorithm ALGORITHM = BLOCK_STORE_DIRECT, int Y = 1,
          int Z = 1, int = 0>
class BlockStore {
 public:
  struct TempStorage {
    char unused;
  };
  __forceinline__ BlockStore() {}
  __forceinline__ BlockStore(TempStorage &) {}
  template <typename Out> __forceinline__ void Store(Out to, T (&items)[N]) {
    for (int i = 0; i < N; ++i) to[at(i)] = items[i];
  }
  template <typename Out> __forceinline__ void Store(Out to, T (&items)[N], int valid) {
    for (int i = 0; i < N; ++i)
      if (at(i) < valid) to[at(i)] = items[i];
  }

 private:
  __forceinline__ int at(int i) {
    return ALGORITHM == BLOCK_STORE_STRIPED ? KwThread() + i * X * Y * Z : KwThread() * N + i;
  }
};

template <typename T, int X, int N, bool = false, int Y = 1, int Z = 1, int = 0>
class BlockExchange {
  static constexpr int kThreads = X * Y * Z;

 public:
  struct TempStorage {
    KwRaw<T, kThreads * N> of;
  };
  __forceinline__ BlockExchange() : s_(KwPrivate<TempStorage>()) {}
  __forceinline__ BlockExchange(TempStorage &s) : s_(s) {}
  __forceinline__ void BlockedToStriped(T (&in)[N], T (&to)[N]) {
    const int thread = KwThread();
    for (int i = 0; i < N; ++i) s_.of[thread * N + i] = in[i];
    __syncthreads();
    for (int i = 0; i < N; ++i) to[i] = s_.of[thread + i * kThreads];
  }
  __forceinline__ void StripedToBlocked(T (&in)[N], T (&to)[N]) {
    const int thread = KwThread();
    for (int i = 0; i < N; ++i) s_.of[thread + i * kThreads] = in[i];
    __syncthreads();
    for (int i = 0; i < N; ++i) to[i] = s_.of[thread * N + i];
  }
  template <typename Rank>
  __forceinline__ void ScatterToBlocked(T (&in)[N], T (&to)[N], Rank (&ranks)[N]) {
    for (int i = 0; i < N; ++i) s_.of[ranks[i]] = in[i];
    __syncthreads();
    for (int i = 0; i < N; ++i) to[i] = s_.of[KwThread() * N + i];
  }
  __forceinline__ void BlockedToStriped(T (&items)[N]) { BlockedToStriped(items, items); }
  __forceinline__ void StripedToBlocked(T (&items)[N]) { StripedToBlocked(items, items); }

 private:
  TempStorage &s_;
};

}  // namespace cub

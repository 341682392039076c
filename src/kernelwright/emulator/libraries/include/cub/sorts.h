// Stable sorts of a block's items and of arrays.
#pragma once
#include <limits>

namespace cub {

// A key's bits `first` to `last` as an unsigned number, in the order of the keys.
template <typename K> KW_UNSEEN inline std::uint64_t KwRank(const K &key, int first, int last) {
  std::uint64_t u = 0;
  __builtin_memcpy(&u, &key, sizeof key);
  const std::uint64_t sign = std::uint64_t(1) << (sizeof(K) * 8 - 1), all = sign | (sign - 1);
  if constexpr (std::is_integral_v<K>)
    u ^= std::is_signed_v<K> ? sign : 0;
  else
    u = u & sign ? ~u & all : u ^ sign;
  if (last < 64) u &= (std::uint64_t(1) << last) - 1;
  return u >> first;
}

// Sorts `n` keys by some of their bits, together with their values if there are any.
template <bool DESCENDING, typename K, typename V>
void KwSort(const K *keys, K *sorted, const V *values, V *moved, long long n, int first, int last) {
  std::vector<long long> order(n);
  for (long long i = 0; i < n; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](long long a, long long b) {
    if (DESCENDING) std::swap(a, b);
    return KwRank(keys[a], first, last) < KwRank(keys[b], first, last);
  });
  std::vector<K> k(n);
  for (long long i = 0; i < n; ++i) k[i] = keys[order[i]];
  std::copy(k.begin(), k.end(), sorted);
  if (!values) return;
  std::vector<V> v(n);
  for (long long i = 0; i < n; ++i) v[i] = values[order[i]];
  std::copy(v.begin(), v.end(), moved);
}

struct DeviceRadixSort {
#define KW_SORT(suffix, DESCENDING)                                                               \
  template <typename K>                                                                           \
  static cudaError_t SortKeys##suffix(void *m, size_t &bytes, const K *in, K *out, long long n,   \
                                      int first = 0, int last = sizeof(K) * 8,                    \
                                      cudaStream_t = nullptr, bool = false) {                     \
    if (KwAsks(m, bytes)) return cudaSuccess;                                                     \
    KwSort<DESCENDING, K, char>(in, out, nullptr, nullptr, n, first, last);                       \
    KwWrote(out, n);                                                                              \
    return cudaSuccess;                                                                           \
  }                                                                                               \
  template <typename K>                                                                           \
  static cudaError_t SortKeys##suffix(void *m, size_t &bytes, DoubleBuffer<K> &keys, long long n, \
                                      int first = 0, int last = sizeof(K) * 8,                    \
                                      cudaStream_t = nullptr, bool = false) {                     \
    if (KwAsks(m, bytes)) return cudaSuccess;                                                     \
    const auto e =                                                                                \
        SortKeys##suffix<K>(m, bytes, keys.Current(), keys.Alternate(), n, first, last);          \
    keys.selector ^= 1;                                                                           \
    return e;                                                                                     \
  }                                                                                               \
  template <typename K, typename V>                                                               \
  static cudaError_t SortPairs##suffix(                                                           \
      void *m, size_t &bytes, const K *in, K *out, const V *from, V *to, long long n,             \
      int first = 0, int last = sizeof(K) * 8, cudaStream_t = nullptr, bool = false) {            \
    if (KwAsks(m, bytes)) return cudaSuccess;                                                     \
    KwSort<DESCENDING>(in, out, from, to, n, first, last);                                        \
    KwWrote(out, n), KwWrote(to, n);                                                              \
    return cudaSuccess;                                                                           \
  }                                                                                               \
  template <typename K, typename V>                                                               \
  static cudaError_t SortPairs##suffix(                                                           \
      void *m, size_t &bytes, DoubleBuffer<K> &keys, DoubleBuffer<V> &values, long long n,        \
      int first = 0, int last = sizeof(K) * 8, cudaStream_t = nullptr, bool = false) {            \
    if (KwAsks(m, bytes)) return cudaSuccess;                                                     \
    const auto e = SortPairs##suffix<K, V>(m, bytes, keys.Current(), keys.Alternate(),            \
                                           values.Current(), values.Alternate(), n, first, last); \
    keys.selector ^= 1, values.selector ^= 1;                                                     \
    return e;                                                                                     \
  }
  KW_SORT(, false)
  KW_SORT(Descending, true)
#undef KW_SORT
};

template <typename K, int X, int N, typename V = NullType, int = 4, bool = true, int = 0, int = 0,
          int Y = 1, int Z = 1, int = 0>
class BlockRadixSort {
  static constexpr int kThreads = X * Y * Z, kBits = sizeof(K) * 8;

 public:
  struct TempStorage {
    KwRaw<K, kThreads * N> keys;
    KwRaw<V, kThreads * N> values;
    typename BlockScan<int, X, BLOCK_SCAN_WARP_SCANS, Y, Z>::TempStorage counts;
  };
  __forceinline__ BlockRadixSort() : s_(KwPrivate<TempStorage>()) {}
  __forceinline__ BlockRadixSort(TempStorage &s) : s_(s) {}
  __forceinline__ void Sort(K (&keys)[N], int first = 0, int last = kBits) {
    sort<false, false>(keys, (V(*)[N]) nullptr, first, last);
  }
  __forceinline__ void Sort(K (&keys)[N], V (&values)[N], int first = 0, int last = kBits) {
    sort<false, false>(keys, &values, first, last);
  }
  __forceinline__ void SortDescending(K (&keys)[N], int first = 0, int last = kBits) {
    sort<true, false>(keys, (V(*)[N]) nullptr, first, last);
  }
  __forceinline__ void SortDescending(K (&keys)[N], V (&values)[N], int first = 0,
                                      int last = kBits) {
    sort<true, false>(keys, &values, first, last);
  }
  __forceinline__ void SortBlockedToStriped(K (&keys)[N], int first = 0, int last = kBits) {
    sort<false, true>(keys, (V(*)[N]) nullptr, first, last);
  }
  __forceinline__ void SortBlockedToStriped(K (&keys)[N], V (&values)[N], int first = 0,
                                            int last = kBits) {
    sort<false, true>(keys, &values, first, last);
  }

 private:
  template <bool DESCENDING, bool STRIPED>
  __forceinline__ void sort(K (&keys)[N], V (*values)[N], int first, int last) {
    const int thread = KwThread();
    for (int i = 0; i < N; ++i) {
      s_.keys[thread * N + i] = keys[i];
      s_.values[thread * N + i] = values ? (*values)[i] : V();
    }
    __syncthreads();
    // one pass per bit: items with a 0 come before items with a 1; the order within each is kept
    for (int bit = first; bit < last; ++bit) {
      K own[N];
      V its[N];
      int zeros = 0, at[N];
      for (int i = 0; i < N; ++i) {
        own[i] = s_.keys[thread * N + i];
        its[i] = s_.values[thread * N + i];
        at[i] = static_cast<int>(KwRank(own[i], bit, bit + 1)) ^ DESCENDING;
        zeros += !at[i];
      }
      int before, all;
      BlockScan<int, X, BLOCK_SCAN_WARP_SCANS, Y, Z>(s_.counts).ExclusiveSum(zeros, before, all);
      __syncthreads();
      for (int i = 0; i < N; ++i) {
        const int to = at[i] ? all + thread * N + i - before : before;
        before += !at[i];
        s_.keys[to] = own[i];
        s_.values[to] = its[i];
      }
      __syncthreads();
    }
    for (int i = 0; i < N; ++i) {
      const int at = STRIPED ? thread + i * kThreads : thread * N + i;
      keys[i] = s_.keys[at];
      if (values) (*values)[i] = s_.values[at];
    }
  }
  TempStorage &s_;
};

}  // namespace cub

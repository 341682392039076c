// Device-wide sorts by comparison and of segments, scans by key, loops over indices.
#pragma once

namespace cub {

struct DeviceMergeSort {
  template <typename Keys, typename Less>
  static cudaError_t StableSortKeys(void *m, size_t &bytes, Keys keys, long long n, Less less,
                                    cudaStream_t = nullptr, bool = false) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    std::stable_sort(keys, keys + n, less);
    KwWrote(keys, n);
    return cudaSuccess;
  }
  template <typename Keys, typename Less>
  static cudaError_t SortKeys(void *m, size_t &bytes, Keys keys, long long n, Less less,
                              cudaStream_t = nullptr, bool = false) {
    return StableSortKeys(m, bytes, keys, n, less);
  }
  template <typename Keys, typename Values, typename Less>
  static cudaError_t StableSortPairs(void *m, size_t &bytes, Keys keys, Values values, long long n,
                                     Less less, cudaStream_t = nullptr, bool = false) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    std::vector<long long> order(n);
    for (long long i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](long long a, long long b) { return less(keys[a], keys[b]); });
    const std::vector<KwValue<Keys>> k(keys, keys + n);
    const std::vector<KwValue<Values>> v(values, values + n);
    for (long long i = 0; i < n; ++i) keys[i] = k[order[i]], values[i] = v[order[i]];
    KwWrote(keys, n), KwWrote(values, n);
    return cudaSuccess;
  }
  template <typename Keys, typename Values, typename Less>
  static cudaError_t SortPairs(void *m, size_t &bytes, Keys keys, Values values, long long n,
                               Less less, cudaStream_t = nullptr, bool = false) {
    return StableSortPairs(m, bytes, keys, values, n, less);
  }
};

// Each segment is sorted separately. Elements outside all segments are not written.
#define KW_SEGMENTS(name, DESCENDING, ...)                                                        \
  template <typename K, typename Begin, typename End>                                             \
  static cudaError_t name##Keys##__VA_ARGS__(                                                     \
      void *m, size_t &bytes, const K *in, K *out, long long, int segments, Begin begin, End end, \
      int first = 0, int last = sizeof(K) * 8, cudaStream_t = nullptr, bool = false) {            \
    if (KwAsks(m, bytes)) return cudaSuccess;                                                     \
    for (int s = 0; s < segments; ++s)                                                            \
      KwSort<DESCENDING, K, char>(in + begin[s], out + begin[s], nullptr, nullptr,                \
                                  end[s] - begin[s], first, last),                                \
          KwWrote(out + begin[s], end[s] - begin[s]);                                             \
    return cudaSuccess;                                                                           \
  }                                                                                               \
  template <typename K, typename V, typename Begin, typename End>                                 \
  static cudaError_t name##Pairs##__VA_ARGS__(                                                    \
      void *m, size_t &bytes, const K *in, K *out, const V *from, V *to, long long, int segments, \
      Begin begin, End end, int first = 0, int last = sizeof(K) * 8, cudaStream_t = nullptr,      \
      bool = false) {                                                                             \
    if (KwAsks(m, bytes)) return cudaSuccess;                                                     \
    for (int s = 0; s < segments; ++s)                                                            \
      KwSort<DESCENDING>(in + begin[s], out + begin[s], from + begin[s], to + begin[s],           \
                         end[s] - begin[s], first, last),                                         \
          KwWrote(out + begin[s], end[s] - begin[s]), KwWrote(to + begin[s], end[s] - begin[s]);  \
    return cudaSuccess;                                                                           \
  }
struct DeviceSegmentedRadixSort {
  KW_SEGMENTS(Sort, false)
  KW_SEGMENTS(Sort, true, Descending)
};
struct DeviceSegmentedSort {
  KW_SEGMENTS(Sort, false)
  KW_SEGMENTS(Sort, true, Descending)
  KW_SEGMENTS(StableSort, false)
  KW_SEGMENTS(StableSort, true, Descending)
};
#undef KW_SEGMENTS

struct DeviceFor {
  template <typename N, typename F> static cudaError_t Bulk(N n, F f, cudaStream_t = nullptr) {
    for (N i = 0; i < n; ++i) f(i);
    return cudaSuccess;
  }
  template <typename In, typename N, typename F>
  static cudaError_t ForEachN(In in, N n, F f, cudaStream_t = nullptr) {
    for (N i = 0; i < n; ++i) f(in[i]);
    KwWrote(in, n);
    return cudaSuccess;
  }
  template <typename In, typename F>
  static cudaError_t ForEach(In first, In last, F f, cudaStream_t = nullptr) {
    return ForEachN(first, last - first, f);
  }
};

}  // namespace cub

// Device-wide functions. The first call, without memory, returns the number of bytes needed.
#pragma once

namespace cub {

template <typename Out> void KwWrote(Out to, size_t n) {
  if constexpr (std::is_pointer_v<Out>) kw::program::wrote(to, n * sizeof(*to));
}
// Whether a call only requests the number of bytes.
inline bool KwAsks(void *memory, size_t &bytes) {
  if (!memory) bytes = 1;
  return !memory;
}

struct DeviceReduce {
  template <typename In, typename Out, typename Op, typename T>
  static cudaError_t Reduce(void *m, size_t &bytes, In in, Out out, long long n, Op op, T initial,
                            cudaStream_t = nullptr, bool = false) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    auto sum = initial;
    for (long long i = 0; i < n; ++i) sum = op(sum, in[i]);
    *out = sum;
    KwWrote(out, 1);
    return cudaSuccess;
  }
  template <typename In, typename Out>
  static cudaError_t Sum(void *m, size_t &bytes, In in, Out out, long long n,
                         cudaStream_t = nullptr, bool = false) {
    return Reduce(m, bytes, in, out, n, cub::Sum(), KwValue<In>{});
  }
#define KW_BEST(name)                                                               \
  template <typename In, typename Out>                                              \
  static cudaError_t name(void *m, size_t &bytes, In in, Out out, long long n,      \
                          cudaStream_t = nullptr, bool = false) {                   \
    if (KwAsks(m, bytes) || n < 1) return cudaSuccess;                              \
    return Reduce(m, bytes, in + 1, out, n - 1, cub::name(), KwValue<In>(in[0]));   \
  }                                                                                 \
  template <typename In, typename Out>                                              \
  static cudaError_t Arg##name(void *m, size_t &bytes, In in, Out out, long long n, \
                               cudaStream_t = nullptr, bool = false) {              \
    if (KwAsks(m, bytes) || n < 1) return cudaSuccess;                              \
    const ArgIndexInputIterator<In, int> both(in);                                  \
    return Reduce(m, bytes, both + 1, out, n - 1, cub::Arg##name(), both[0]);       \
  }
  KW_BEST(Max)
  KW_BEST(Min)
#undef KW_BEST
  template <typename Keys, typename Unique, typename Values, typename Sums, typename Count,
            typename Op>
  static cudaError_t ReduceByKey(void *m, size_t &bytes, Keys keys, Unique unique, Values values,
                                 Sums sums, Count count, Op op, long long n, cudaStream_t = nullptr,
                                 bool = false) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    long long runs = 0;
    for (long long i = 0; i < n; ++i) {
      if (i && keys[i] == keys[i - 1]) {
        sums[runs - 1] = op(sums[runs - 1], values[i]);
        continue;
      }
      unique[runs] = keys[i], sums[runs++] = values[i];
    }
    *count = runs;
    KwWrote(unique, runs), KwWrote(sums, runs), KwWrote(count, 1);
    return cudaSuccess;
  }
};

struct DeviceSegmentedReduce {
  template <typename In, typename Out, typename Begin, typename End, typename Op, typename T>
  static cudaError_t Reduce(void *m, size_t &bytes, In in, Out out, int segments, Begin begin,
                            End end, Op op, T initial, cudaStream_t = nullptr, bool = false) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    for (int s = 0; s < segments; ++s) {
      T sum = initial;
      for (auto i = begin[s]; i < end[s]; ++i) sum = op(sum, in[i]);
      out[s] = sum;
    }
    KwWrote(out, segments);
    return cudaSuccess;
  }
  template <typename In, typename Out, typename Begin, typename End>
  static cudaError_t Sum(void *m, size_t &bytes, In in, Out out, int segments, Begin begin, End end,
                         cudaStream_t = nullptr, bool = false) {
    return Reduce(m, bytes, in, out, segments, begin, end, cub::Sum(), KwValue<In>{});
  }
  template <typename In, typename Out, typename Begin, typename End>
  static cudaError_t Max(void *m, size_t &bytes, In in, Out out, int segments, Begin begin, End end,
                         cudaStream_t = nullptr, bool = false) {
    using T = KwValue<In>;
    return Reduce(m, bytes, in, out, segments, begin, end, cub::Max(),
                  std::numeric_limits<T>::lowest());
  }
  template <typename In, typename Out, typename Begin, typename End>
  static cudaError_t Min(void *m, size_t &bytes, In in, Out out, int segments, Begin begin, End end,
                         cudaStream_t = nullptr, bool = false) {
    using T = KwValue<In>;
    return Reduce(m, bytes, in, out, segments, begin, end, cub::Min(),
                  std::numeric_limits<T>::max());
  }
};

struct DeviceScan {
  template <typename In, typename Out, typename Op, typename T>
  static cudaError_t ExclusiveScan(void *m, size_t &bytes, In in, Out out, Op op, T initial,
                                   long long n, cudaStream_t = nullptr, bool = false) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    auto sum = initial;
    for (long long i = 0; i < n; ++i) {
      const auto own = in[i];
      out[i] = sum;
      sum = op(sum, own);
    }
    KwWrote(out, n);
    return cudaSuccess;
  }
  template <typename In, typename Out, typename Op>
  static cudaError_t InclusiveScan(void *m, size_t &bytes, In in, Out out, Op op, long long n,
                                   cudaStream_t = nullptr, bool = false) {
    if (KwAsks(m, bytes) || n < 1) return cudaSuccess;
    KwValue<In> sum = in[0];
    for (long long i = 0; i < n; ++i) out[i] = sum = i ? KwValue<In>(op(sum, in[i])) : sum;
    KwWrote(out, n);
    return cudaSuccess;
  }
  template <typename In, typename Out>
  static cudaError_t ExclusiveSum(void *m, size_t &bytes, In in, Out out, long long n,
                                  cudaStream_t = nullptr, bool = false) {
    return ExclusiveScan(m, bytes, in, out, cub::Sum(), KwValue<In>{}, n);
  }
  template <typename In, typename Out>
  static cudaError_t InclusiveSum(void *m, size_t &bytes, In in, Out out, long long n,
                                  cudaStream_t = nullptr, bool = false) {
    return InclusiveScan(m, bytes, in, out, cub::Sum(), n);
  }
  // For each run of equal keys.
  template <typename Keys, typename In, typename Out, typename Op>
  static cudaError_t InclusiveScanByKey(void *m, size_t &bytes, Keys keys, In in, Out out, Op op,
                                        long long n) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    KwValue<In> sum{};
    for (long long i = 0; i < n; ++i) {
      const bool first = !i || !(keys[i] == keys[i - 1]);
      out[i] = sum = first ? in[i] : KwValue<In>(op(sum, in[i]));
    }
    KwWrote(out, n);
    return cudaSuccess;
  }
  template <typename Keys, typename In, typename Out>
  static cudaError_t InclusiveSumByKey(void *m, size_t &bytes, Keys keys, In in, Out out,
                                       long long n) {
    return InclusiveScanByKey(m, bytes, keys, in, out, cub::Sum(), n);
  }
  template <typename Keys, typename In, typename Out>
  static cudaError_t ExclusiveSumByKey(void *m, size_t &bytes, Keys keys, In in, Out out,
                                       long long n) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    KwValue<In> sum{};
    for (long long i = 0; i < n; ++i) {
      if (i && !(keys[i] == keys[i - 1])) sum = {};
      const KwValue<In> own = in[i];
      out[i] = sum;
      sum = sum + own;
    }
    KwWrote(out, n);
    return cudaSuccess;
  }
  template <typename T>
  static cudaError_t ExclusiveSum(void *m, size_t &bytes, T *data, long long n) {
    return ExclusiveSum(m, bytes, data, data, n);
  }
  template <typename T>
  static cudaError_t InclusiveSum(void *m, size_t &bytes, T *data, long long n) {
    return InclusiveSum(m, bytes, data, data, n);
  }
};

struct DeviceSelect {
  template <typename In, typename Out, typename Count, typename F>
  static cudaError_t If(void *m, size_t &bytes, In in, Out out, Count count, long long n, F wanted,
                        cudaStream_t = nullptr, bool = false) {
    return chosen(m, bytes, in, out, count, n, [&](long long i) { return wanted(in[i]); });
  }
  template <typename In, typename Flags, typename Out, typename Count>
  static cudaError_t Flagged(void *m, size_t &bytes, In in, Flags flags, Out out, Count count,
                             long long n, cudaStream_t = nullptr, bool = false) {
    return chosen(m, bytes, in, out, count, n, [&](long long i) { return bool(flags[i]); });
  }
  template <typename In, typename Out, typename Count>
  static cudaError_t Unique(void *m, size_t &bytes, In in, Out out, Count count, long long n,
                            cudaStream_t = nullptr, bool = false) {
    return chosen(m, bytes, in, out, count, n,
                  [&](long long i) { return !i || !(in[i] == in[i - 1]); });
  }

 private:
  template <typename In, typename Out, typename Count, typename F>
  static cudaError_t chosen(void *m, size_t &bytes, In in, Out out, Count count, long long n, F f) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    std::vector<KwValue<In>> results;  // in and out may be the same
    for (long long i = 0; i < n; ++i)
      if (f(i)) results.push_back(in[i]);
    for (size_t i = 0; i < results.size(); ++i) out[i] = results[i];
    *count = results.size();
    KwWrote(out, results.size()), KwWrote(count, 1);
    return cudaSuccess;
  }
};

struct DevicePartition {
  template <typename In, typename Out, typename Count, typename F>
  static cudaError_t If(void *m, size_t &bytes, In in, Out out, Count count, long long n, F wanted,
                        cudaStream_t = nullptr, bool = false) {
    return parted(m, bytes, in, out, count, n, [&](long long i) { return wanted(in[i]); });
  }
  template <typename In, typename Flags, typename Out, typename Count>
  static cudaError_t Flagged(void *m, size_t &bytes, In in, Flags flags, Out out, Count count,
                             long long n, cudaStream_t = nullptr, bool = false) {
    return parted(m, bytes, in, out, count, n, [&](long long i) { return bool(flags[i]); });
  }

 private:  // items that are not selected follow in reverse order
  template <typename In, typename Out, typename Count, typename F>
  static cudaError_t parted(void *m, size_t &bytes, In in, Out out, Count count, long long n, F f) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    long long first = 0, last = n;
    for (long long i = 0; i < n; ++i) out[f(i) ? first++ : --last] = in[i];
    *count = first;
    KwWrote(out, n), KwWrote(count, 1);
    return cudaSuccess;
  }
};

struct DeviceRunLengthEncode {
  template <typename In, typename Unique, typename Lengths, typename Count>
  static cudaError_t Encode(void *m, size_t &bytes, In in, Unique unique, Lengths lengths,
                            Count count, long long n, cudaStream_t = nullptr, bool = false) {
    return DeviceReduce::ReduceByKey(m, bytes, in, unique, ConstantInputIterator<int>(1), lengths,
                                     count, cub::Sum(), n);
  }
};

struct DeviceHistogram {
  template <typename In, typename Counter, typename Level>
  static cudaError_t HistogramEven(void *m, size_t &bytes, In in, Counter *counts, int levels,
                                   Level low, Level high, long long n, cudaStream_t = nullptr,
                                   bool = false) {
    if (KwAsks(m, bytes)) return cudaSuccess;
    const int bins = levels - 1;
    std::fill(counts, counts + bins, Counter(0));
    for (long long i = 0; i < n; ++i) {
      const auto x = in[i];
      if (!(x < low) && x < high)
        ++counts[std::min(bins - 1, int(double(x - low) * bins / double(high - low)))];
    }
    KwWrote(counts, bins);
    return cudaSuccess;
  }
};

}  // namespace cub

// Rows as the kernels of this folder walk them: positions count in the scan's direction.
#pragma once
#include <kw/accumulate.cuh>
#include <kw/scan.cuh>

namespace kw {

// What totals within a tile are added in, and what is carried from tile to tile: twice the digits,
// so that a long row's running total keeps those of float.
template <typename T> struct Precision {
  using Local = float;
  using Carried = double;
};
template <> struct Precision<double> {
  using Local = double;
  using Carried = double;
};
template <> struct Precision<long long> {
  using Local = long long;
  using Carried = long long;
};
template <typename T> using local_t = typename Precision<T>::Local;
template <typename T> using carried_t = typename Precision<T>::Carried;

template <typename L, typename T> __device__ __forceinline__ L as(T x) {
  if constexpr (sizeof(T) == 8)
    return L(x);
  else
    return L(to_float(x));
}
template <typename T, typename L> __device__ __forceinline__ T stored(L x) {
  if constexpr (sizeof(T) == 8)
    return T(x);
  else
    return from_float<T>(float(x));
}

// What a running state is the result of.
template <typename S> __device__ __forceinline__ S value_of(S x) { return x; }
template <typename S> __device__ __forceinline__ S value_of(Segment<S> x) { return x.sum; }
// The same before its own element is added; a segment's first has nothing before it.
template <typename S> __device__ __forceinline__ S value_before(S x, S) { return x; }
template <typename S> __device__ __forceinline__ S value_before(Segment<S> x, Segment<S> own) {
  return own.begins != S(0) ? S(0) : x.sum;
}

// Where position p of a row of n lies in memory.
template <bool REVERSE> __device__ __forceinline__ long long place(long long p, long long n) {
  return REVERSE ? n - 1 - p : p;
}

// WIDTH elements from position p on, in the scan's order. WIDTH divides n if a vector may not end
// past a row: backwards, or where another row follows; what lies past the end comes as 0.
template <bool REVERSE, int WIDTH, typename T>
__device__ __forceinline__ Vec<T, WIDTH> load_positions(const T *row, long long p, long long n) {
  Vec<T, WIDTH> v{};
  if (p + WIDTH <= n) {
    v = load<T, WIDTH>(row + (REVERSE ? n - WIDTH - p : p));
    if constexpr (REVERSE) {
      const Vec<T, WIDTH> turned = v;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) v[i] = turned[WIDTH - 1 - i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
      if (p + i < n) v[i] = row[place<REVERSE>(p + i, n)];
  }
  return v;
}
template <bool REVERSE, int WIDTH, typename T>
__device__ __forceinline__ void store_positions(T *row, long long p, long long n, Vec<T, WIDTH> v) {
  if (p + WIDTH <= n) {
    if constexpr (REVERSE) {
      const Vec<T, WIDTH> turned = v;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) v[i] = turned[WIDTH - 1 - i];
    }
    store(row + (REVERSE ? n - WIDTH - p : p), v);
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
      if (p + i < n) row[place<REVERSE>(p + i, n)] = v[i];
  }
}

}  // namespace kw

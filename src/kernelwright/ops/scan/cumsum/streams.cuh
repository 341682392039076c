// The operators of this folder: how they make states from their arguments, and results from states.
// Each has an operation in two precisions, Local and Carried, with the scalars L and C; `load(k, p,
// n)` loads the thread's k-th vector, at position p; `state(k, i)` is the state of its element i;
// `result(s, k, i)` its result; `forget(k)`, called between two passes over the states, prevents
// the compiler from keeping them unpacked from one pass to the other.
#pragma once
#include <kw/row.cuh>

#include "positions.cuh"

namespace kw {

template <template <typename> class Op, typename Scalar, typename T, int WIDTH, int VECS,
          bool REVERSE>
struct Plain {
  using L = Scalar;
  using C = carried_t<T>;
  using Local = Op<L>;
  using Carried = Op<C>;
  const T *x;
  Vec<T, WIDTH> v[VECS];

  __device__ __forceinline__ void load(int k, long long p, long long n) {
    v[k] = load_positions<REVERSE, WIDTH>(x, p, n);
  }
  __device__ __forceinline__ void forget(int k) {
    if constexpr (sizeof(T) == 2) v[k] = opaque(v[k]);
  }
  __device__ __forceinline__ L state(int k, int i) const { return as<L>(v[k][i]); }
  __device__ __forceinline__ T result(L s, int, int) const { return stored<T>(s); }
};
template <typename T, int WIDTH, int VECS, bool REVERSE>
using Sums = Plain<Adding, local_t<T>, T, WIDTH, VECS, REVERSE>;
// Partial products may overflow where the whole product does not: double has enough range.
template <typename T, int WIDTH, int VECS, bool REVERSE>
using Products = Plain<Multiplying, carried_t<T>, T, WIDTH, VECS, REVERSE>;

// Sums that restart where `starts` marks the first element of a segment.
template <typename T, int WIDTH, int VECS, bool REVERSE> struct SegmentSums {
  using L = local_t<T>;
  using C = carried_t<T>;
  using Local = Segmented<L>;
  using Carried = Segmented<C>;
  const T *x;
  const unsigned char *starts;
  Vec<T, WIDTH> v[VECS];
  bool begins[VECS][WIDTH];

  __device__ __forceinline__ void load(int k, long long p, long long n) {
    v[k] = load_positions<REVERSE, WIDTH>(x, p, n);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {  // in reverse, a segment begins where the next one starts
      const long long at = place<REVERSE>(p + i, n) + REVERSE;
      begins[k][i] = at >= 0 && at < n && starts[at];
    }
  }
  __device__ __forceinline__ void forget(int) {}
  __device__ __forceinline__ Segment<L> state(int k, int i) const {
    return {as<L>(v[k][i]), L(begins[k][i])};
  }
  __device__ __forceinline__ T result(Segment<L> s, int, int) const { return stored<T>(s.sum); }
};

// The gradients of a product's factors, without a division: gx_i = y_{i-1} r_i, where r_i = gy_i +
// x_{i+1} r_{i+1} is a linear recurrence from the end of the row.
template <typename T, int WIDTH, int VECS, bool REVERSE> struct Factors {
  static_assert(REVERSE, "from the row's end");
  using L = carried_t<T>;
  using C = L;
  using Local = Composing<L>;
  using Carried = Composing<L>;
  const T *gy, *x, *y;
  Vec<T, WIDTH> g[VECS];
  L next[VECS][WIDTH], before[VECS][WIDTH];

  __device__ __forceinline__ void load(int k, long long p, long long n) {
    g[k] = load_positions<true, WIDTH>(gy, p, n);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      const long long at = n - 1 - p - i;
      next[k][i] = at >= 0 && at + 1 < n ? as<L>(x[at + 1]) : L(0);
      before[k][i] = at > 0 ? as<L>(y[at - 1]) : L(1);
    }
  }
  __device__ __forceinline__ void forget(int) {}
  __device__ __forceinline__ Line<L> state(int k, int i) const {
    return {next[k][i], as<L>(g[k][i])};
  }
  __device__ __forceinline__ T result(Line<L> s, int k, int i) const {
    return stored<T>(before[k][i] * s.shift);
  }
};

}  // namespace kw

// Shared by the norm kernels: the formulas of layer_norm and rms_norm over vectors of a row.
#pragma once
#include "kw/async.cuh"
#include "kw/row.cuh"

namespace kw {

// Which norm: T is the type of the rows, W that of the parameters. CENTER: layer_norm, which
// subtracts the mean and may add a bias. ADD: forward, a residual is added first; backward, a
// gradient is added last.
template <typename T_, typename W_, bool CENTER, bool ADD> struct Norm {
  using T = T_;
  using W = W_;
  static constexpr bool kCenter = CENTER, kAdd = ADD;
};

// Bits of a kernel's argument `given`: which parameters are passed. A missing weight counts as 1, a
// missing bias as 0; one kernel per combination would save very little.
constexpr int kWeight = 1, kBias = 2;

// Loads N parameters as floats and adds `offset`; `other` if the parameter is missing.
template <int N, typename W>
__device__ __forceinline__ void load_or(const W *p, bool given, float offset, float other,
                                        float (&out)[N]) {
  constexpr int kPiece = N < kVecWidth<W> ? N : kVecWidth<W>;
#pragma unroll
  for (int i = 0; i < N; i++) out[i] = other;
  if (!given) return;
#pragma unroll
  for (int i = 0; i < N; i += kPiece) {
    float piece[kPiece];
    to_float(load<W, kPiece>(p + i), piece);
#pragma unroll
    for (int j = 0; j < kPiece; j++) out[i + j] = piece[j] + offset;
  }
}

// VEC parameters in their own dtype: if loaded early, they occupy few registers until they are
// used.
template <typename W, int VEC> struct Raw {
  static constexpr int kPiece = VEC < kVecWidth<W> ? VEC : kVecWidth<W>;
  Vec<W, kPiece> pieces[VEC / kPiece];

  __device__ __forceinline__ void read(const W *p, bool given) {
#pragma unroll
    for (int i = 0; i < VEC / kPiece; i++)
      pieces[i] = load_or<W, kPiece>(p + i * kPiece, given, 0.0f);
  }
  // Converts to float and adds `offset`; `other` if the parameter is missing.
  __device__ __forceinline__ void get(bool given, float offset, float other,
                                      float (&out)[VEC]) const {
#pragma unroll
    for (int i = 0; i < VEC; i += kPiece) {
      float piece[kPiece];
      to_float(opaque(pieces[i / kPiece]), piece);
#pragma unroll
      for (int j = 0; j < kPiece; j++) out[i + j] = given ? piece[j] + offset : other;
    }
  }
};

// Forward.

// The number of threads per multiprocessor for which the registers suffice if each holds VECS
// vectors; threads that unpack 16-bit values need more registers.
template <typename N, int VEC, int VECS> __device__ constexpr int resident() {
  constexpr int kBytes = sizeof(typename N::T) * VEC < 4 ? 4 : sizeof(typename N::T) * VEC;
  constexpr int kWords = VECS * kBytes / 4 * (N::kAdd ? 2 : 1);
  return kWords > 32 ? 512 : kWords > 16 && sizeof(typename N::T) == 2 ? 768 : 1024;
}

// Loads a thread's part of a row of h: VECS vectors, STEP vectors apart, from vector `first` on,
// with zeros past the end. With a residual, h is x + r, rounded, and is also stored.
template <typename N, int STEP, int VEC, int VECS>
__device__ __forceinline__ void load_row(Vec<typename N::T, VEC> (&row)[VECS],
                                         const typename N::T *x, const typename N::T *r,
                                         typename N::T *h, int first, int n_cols,
                                         bool live = true) {
  using T = typename N::T;
  Vec<T, VEC> more[VECS];
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * STEP + first) * VEC;
    row[v] = load_or<T, VEC>(x + col, live && col < n_cols, 0.0f);
    if constexpr (N::kAdd) more[v] = load_or<T, VEC>(r + col, live && col < n_cols, 0.0f);
  }
  if constexpr (N::kAdd) {
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const int col = (v * STEP + first) * VEC;
      float a[VEC], b[VEC];
      to_float(row[v], a);
      to_float(more[v], b);
#pragma unroll
      for (int i = 0; i < VEC; i++) a[i] += b[i];
      row[v] = from_float<T>(a);
      store_if(h + col, live && col < n_cols, row[v]);
    }
  }
}

// Sum of a thread's elements, with a partial sum per vector to keep chains of additions short.
template <typename T, int VEC, int VECS>
__device__ __forceinline__ float sum_of(const Vec<T, VEC> (&x)[VECS]) {
  float sum = 0.0f;
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    float f[VEC], of_vector = 0.0f;
    to_float(x[v], f);
#pragma unroll
    for (int i = 0; i < VEC; i++) of_vector += f[i];
    sum += of_vector;
  }
  return sum;
}

// Sums over elements of a row of x - mean, which is 0 but for rounding, and of its square.
struct Deviations {
  float sum, squares;
};

// Those of a thread's elements that lie inside the row.
template <int STEP, typename T, int VEC, int VECS>
__device__ __forceinline__ Deviations deviations_from(float mean, const Vec<T, VEC> (&x)[VECS],
                                                      int first, int n_cols) {
  Deviations all = {0.0f, 0.0f};
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    float f[VEC];
    Deviations of_vector = {0.0f, 0.0f};
    to_float(opaque(x[v]), f);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      f[i] -= mean;
      of_vector.sum += f[i];
      of_vector.squares += f[i] * f[i];
    }
    const bool inside = (v * STEP + first) * VEC < n_cols;
    all.sum += inside ? of_vector.sum : 0.0f;
    all.squares += inside ? of_vector.squares : 0.0f;
  }
  return all;
}

// Mean of a part of a row, and the sum of squared deviations from it (from zero for rms_norm).
struct Moments {
  float mean, squares;
};

// The moments of `count` elements, given their deviations from `mean` in each of LANES lanes. Of
// equal elements the rounding error of the mean is all that is left; it is subtracted again. In
// other rows the error of that sum is as large as the sum: nothing is corrected below 1e-5 standard
// deviations.
template <typename N, int LANES = 32>
__device__ __forceinline__ Moments moments_about(float mean, Deviations mine, float count) {
  const float squares = warp_reduce<Sum, LANES>(mine.squares);
  if constexpr (!N::kCenter) return {0.0f, squares};
  const float error = warp_reduce<Sum, LANES>(mine.sum) / count;
  const float of_error = error * error * count;
  if (!(of_error > 1e-10f * squares)) return {mean, squares};
  return {mean + error, fmaxf(squares - of_error, 0.0f)};
}

// Number of row elements in a warp whose first lane starts at vector `first`.
template <int STEP, int VEC, int VECS> __device__ __forceinline__ int held(int first, int n_cols) {
  int count = 0;
#pragma unroll
  for (int v = 0; v < VECS; v++) count += min(max(n_cols - (v * STEP + first) * VEC, 0), 32 * VEC);
  return count;
}

// The moments of a warp's part. WHOLE: all of it lies inside the row.
template <typename N, int STEP, bool WHOLE = false, int VEC, int VECS>
__device__ __forceinline__ Moments moments(const Vec<typename N::T, VEC> (&x)[VECS], int first,
                                           int n_cols) {
  if constexpr (!N::kCenter)
    return moments_about<N>(0.0f, deviations_from<STEP>(0.0f, x, first, n_cols), 1.0f);
  const float sum = warp_reduce<Sum>(sum_of(x));
  const int inside = held<STEP, VEC, VECS>(first - threadIdx.x % 32, n_cols);
  const int count = WHOLE ? 32 * VEC * VECS : inside;
  const float mean = count ? sum / count : 0.0f;
  return moments_about<N>(mean, deviations_from<STEP>(mean, x, first, n_cols), count);
}

struct Statistics {
  float mean, rstd;
};

// Number of elements in each of a row's N parts that this lane merges; the same for every row.
// Part i starts at vector `start(i)`. WHOLE: all parts lie inside the row.
template <int N, int STEP, int VEC, int VECS, bool WHOLE = false> struct Counts {
  static constexpr int kEach = N < 32 ? 1 : N / 32;
  float count[kEach];

  template <typename Start> __device__ __forceinline__ Counts(int n_cols, Start start) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int inside = held<STEP, VEC, VECS>(start(lane % N + 32 * i), n_cols);
      count[i] = WHOLE ? 32 * VEC * VECS : inside;
    }
  }
};

// Statistics of the whole row from the moments of its N parts, computed by every warp (Chan, Golub
// and LeVeque 1979): each part adds its squared deviations and count * (part's mean - mean)^2.
template <typename Norm, int N, int STEP, int VEC, int VECS, bool WHOLE>
__device__ __forceinline__ Statistics merge(const Moments *parts,
                                            const Counts<N, STEP, VEC, VECS, WHOLE> &counts,
                                            int n_cols, float eps) {
  const int lane = threadIdx.x % 32;
  constexpr int kEach = Counts<N, STEP, VEC, VECS, WHOLE>::kEach, kLanes = N < 32 ? N : 32;
  Moments mine[kEach];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    mine[i] = parts[lane % N + 32 * i];
    sum += counts.count[i] * mine[i].mean;
  }
  if constexpr (Norm::kCenter) sum = warp_reduce<Sum, kLanes>(sum);
  const float mean = sum / n_cols;
  Deviations all = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    all.squares += mine[i].squares;
    if constexpr (Norm::kCenter) {
      const float distance = mine[i].mean - mean;
      all.sum += counts.count[i] * distance;
      all.squares += counts.count[i] * (distance * distance);
    }
  }
  const Moments of_row = moments_about<Norm, kLanes>(mean, all, n_cols);
  return {of_row.mean, rsqrtf(of_row.squares / n_cols + eps)};
}

// y for one vector.
template <typename N, int VEC>
__device__ __forceinline__ Vec<typename N::T, VEC> normalise(const Vec<typename N::T, VEC> &x,
                                                             Statistics s, const float (&w)[VEC],
                                                             const float (&b)[VEC]) {
  float y[VEC];
  to_float(x, y);
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    y[i] = (N::kCenter ? y[i] - s.mean : y[i]) * s.rstd * w[i];
    if constexpr (N::kCenter) y[i] += b[i];
  }
  return from_float<typename N::T>(y);
}

// Weight (with its offset) and bias of a vector's columns.
template <typename N, int VEC>
__device__ __forceinline__ void parameters(const typename N::W *w, const typename N::W *b,
                                           int given, int col, int n_cols, float offset,
                                           float (&wf)[VEC], float (&bf)[VEC]) {
  load_or(w + col, (given & kWeight) && col < n_cols, offset, 1.0f, wf);
  if constexpr (N::kCenter) load_or(b + col, (given & kBias) && col < n_cols, 0.0f, 0.0f, bf);
}

// Parameters of a thread's columns. With EARLY, `read` loads them in their own dtype together with
// the row; without it, `get` loads them after the row's reduction.
template <typename N, int VEC, int VECS, bool EARLY> struct Early {
  using W = typename N::W;
  const W *const w, *const b;
  const int given, n_cols;
  const float offset;
  Raw<W, VEC> weight[EARLY ? VECS : 1], bias[EARLY && N::kCenter ? VECS : 1];

  __device__ __forceinline__ Early(const W *w, const W *b, int given, int n_cols, float offset)
      : w(w), b(b), given(given), n_cols(n_cols), offset(offset) {}

  __device__ __forceinline__ void read(int v, int col) {
    if constexpr (EARLY) {
      weight[v].read(w + col, (given & kWeight) && col < n_cols);
      if constexpr (N::kCenter) bias[v].read(b + col, (given & kBias) && col < n_cols);
    }
  }
  __device__ __forceinline__ void get(int v, int col, float (&wf)[VEC], float (&bf)[VEC]) const {
    if constexpr (EARLY) {
      weight[v].get(given & kWeight, offset, 1.0f, wf);
      if constexpr (N::kCenter) bias[v].get(given & kBias, 0.0f, 0.0f, bf);
    } else {
      parameters<N>(w, b, given, col, n_cols, offset, wf, bf);
    }
  }
};

}  // namespace kw

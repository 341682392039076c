// Shared by norms whose mean and variance are those of a set of rows, with the elements of a
// channel contiguous (NCHW): a group of channels (group_norm) or a channel of all samples
// (batch_norm).
#pragma once
#include "../../elementwise/activations.cuh"
#include "../norm.cuh"

namespace kw {

// T: type of the elements, W: type of the parameters. SILU: silu follows. PER_SET: a set has one
// weight and bias (batch_norm); otherwise each of its rows has its own (group_norm).
template <typename T_, typename W_, bool SILU, bool PER_SET> struct SetNorm {
  using T = T_;
  using W = W_;
  static constexpr bool kSilu = SILU, kPerSet = PER_SET;
};

// The memory layout of a set: `rows` rows of `length` contiguous elements. Rows are divided into
// pieces of at most `piece` elements, each processed by one warp; the blocks of a set share its
// pieces.
struct Sets {
  long long outer_step, set_step, row_step;  // element distance between samples, sets, rows
  int per;                                   // sets per sample
  int rows, length, pieces, piece;           // pieces: per row

  __device__ __forceinline__ long long base(long long set) const {
    return set / per * outer_step + set % per * set_step;
  }
  __device__ __forceinline__ int items() const { return rows * pieces; }
  // The number of elements before a piece.
  __device__ __forceinline__ long long before(int item) const {
    return item / pieces * static_cast<long long>(length) + item % pieces * piece;
  }
  // The channel whose parameters apply to a row.
  __device__ __forceinline__ int channel(long long set, int row, bool per_set) const {
    return static_cast<int>(set % per) * (per_set ? 1 : rows) + (per_set ? 0 : row);
  }
};

// One piece: its row, its first element (relative to the start of the set), its number of elements.
struct Item {
  int row, part, count;
  long long at;
  __device__ __forceinline__ Item(const Sets &sets, int item) {
    row = item / sets.pieces, part = item - row * sets.pieces;
    count = min(sets.piece, sets.length - part * sets.piece);
    at = row * sets.row_step + part * sets.piece;
  }
};

// The pieces of a set that one of its `blocks` blocks processes.
struct Share {
  int first, last;
  float count;  // elements
  __device__ __forceinline__ Share(const Sets &sets, int blocks, int block) {
    const int each = (sets.items() + blocks - 1) / blocks;
    first = min(block * each, sets.items());
    last = min(first + each, sets.items());
    count = static_cast<float>(sets.before(last) - sets.before(first));
  }
};

// Count, mean and sum of squared deviations of some elements.
struct Welford {
  float count, mean, squares;

  // Merges with those of other elements (Chan, Golub and LeVeque 1979).
  __device__ __forceinline__ void add(const Welford &o) {
    const float total = count + o.count, share = total > 0.0f ? o.count / total : 0.0f;
    const float distance = o.mean - mean;
    // one rounding of the size of the mean; an infinite mean does not give NaN
    mean = fabsf(distance) < kInfinity ? fmaf(distance, share, mean)
                                       : mean * (1.0f - share) + o.mean * share;
    squares += o.squares + distance * distance * (count * share);
    count = total;
  }
};

// Merged pairwise: the errors grow with the levels. N: a power of two.
template <int N> __device__ __forceinline__ Welford merged(Welford (&parts)[N]) {
#pragma unroll
  for (int step = N / 2; step > 0; step /= 2)
#pragma unroll
    for (int i = 0; i < step; i++) parts[i].add(parts[i + step]);
  return parts[0];
}

// Merged over a block; every thread receives the result. `scratch` holds 32 elements.
__device__ __forceinline__ Welford block_welford(Welford x, Welford *scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const auto of_warp = [](Welford x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      x.add({__shfl_xor_sync(0xffffffffu, x.count, step),
             __shfl_xor_sync(0xffffffffu, x.mean, step),
             __shfl_xor_sync(0xffffffffu, x.squares, step)});
    return x;
  };
  x = of_warp(x);
  __syncthreads();
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  return of_warp(lane < warps ? scratch[lane] : Welford{0.0f, 0.0f, 0.0f});
}

// A sum and the total of its rounding errors (Knuth 1997, section 4.2.2, theorem B).
struct Compensated {
  float sum = 0.0f, low = 0.0f;

  __device__ __forceinline__ void add(float x) {
    const float total = sum + x, added = total - sum;
    low += (sum - (total - added)) + (x - added);
    sum = total;
  }
  // 0 if the sum is infinite or NaN: the errors are NaN then.
  __device__ __forceinline__ float error() const { return fabsf(sum) < kInfinity ? low : 0.0f; }
};

// Sums relative to a thread's first element, which is as good a reference as the mean for the
// squares: cancellation is limited to the deviation of one of the elements that are added. The sum
// drifts with the distance of that element from the mean, so it is compensated.
struct Shifted {
  float count = 0.0f, shift = 0.0f, squares = 0.0f;
  Compensated sum;

  template <typename T, int VEC> __device__ __forceinline__ void add(const Vec<T, VEC> &x) {
    float f[VEC], of_vector = 0.0f;
    to_float(x, f);
    if (count == 0.0f) shift = fabsf(f[0]) < kInfinity ? f[0] : 0.0f;
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      const float d = f[i] - shift;
      of_vector += d;
      squares = fmaf(d, d, squares);
    }
    sum.add(of_vector);
    count += VEC;
  }
  // The quotient is rounded by u of the shift; `rest` is what the rounding leaves.
  __device__ __forceinline__ Welford moments() const {
    if (count == 0.0f) return {0.0f, 0.0f, 0.0f};
    const float mean = sum.sum / count;
    const float rest = fabsf(mean) < kInfinity ? fmaf(-mean, count, sum.sum) + sum.error() : 0.0f;
    const float about = squares - sum.sum * mean;
    return {count, shift + mean + rest / count, about < 0.0f ? 0.0f : about};
  }
};

// Weight and bias of a row, or the values that replace missing ones.
struct Affine {
  float weight, bias;
  template <typename W>
  __device__ __forceinline__ Affine(const W *w, const W *b, int given, int channel)
      : weight(given & kWeight ? to_float(w[channel]) : 1.0f),
        bias(given & kBias ? to_float(b[channel]) : 0.0f) {}
};

// Stores a vector in one instruction. The compiler splits a plain assignment into several stores if
// the words come from a loop that it has transformed.
template <typename T, int N>
__device__ __forceinline__ void store_whole(T *p, bool inside, const Vec<T, N> &x) {
  if constexpr (sizeof(x) < 4) {
    if (inside) *p = x[0];
  } else {
    typename Words<sizeof(x)>::type words;
    memcpy(&words, &x, sizeof(x));
    if (inside) __stwb(reinterpret_cast<decltype(words) *>(p), words);
  }
}

// y for one vector.
template <typename N, int VEC>
__device__ __forceinline__ Vec<typename N::T, VEC> normalised(const Vec<typename N::T, VEC> &x,
                                                              Statistics s, const Affine &of) {
  const float scale = s.rstd * of.weight;
  float y[VEC];
  to_float(x, y);
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    y[i] = fmaf(y[i] - s.mean, scale, of.bias);
    if constexpr (N::kSilu) y[i] = silu<typename N::T>(y[i]);
  }
  return from_float<typename N::T>(y);
}

// The gradient of the input of silu, and the normalised x, for one vector.
template <typename N, int VEC>
__device__ __forceinline__ void gradients(const Vec<typename N::T, VEC> &gy,
                                          const Vec<typename N::T, VEC> &x, Statistics s,
                                          const Affine &of, float (&g)[VEC], float (&xhat)[VEC]) {
  to_float(gy, g);
  to_float(x, xhat);
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    xhat[i] = (xhat[i] - s.mean) * s.rstd;
    if constexpr (N::kSilu)
      g[i] *= silu_and_slope<typename N::T>(fmaf(xhat[i], of.weight, of.bias)).slope;
  }
}

// Sums of g and of g xhat: those of a row are the gradients of its bias and weight.
struct alignas(8) Sums {
  float sum, dot;
  template <int VEC>
  __device__ __forceinline__ void add(const float (&g)[VEC], const float (&xhat)[VEC]) {
    float a = 0.0f, b = 0.0f;
#pragma unroll
    for (int i = 0; i < VEC; i++) a += g[i], b = fmaf(g[i], xhat[i], b);
    sum += a, dot += b;
  }
};

// Added pairwise: the errors grow with the levels. N: a power of two.
template <int N> __device__ __forceinline__ Sums added(Sums (&parts)[N]) {
#pragma unroll
  for (int step = N / 2; step > 0; step /= 2)
#pragma unroll
    for (int i = 0; i < step; i++)
      parts[i].sum += parts[i + step].sum, parts[i].dot += parts[i + step].dot;
  return parts[0];
}

// Writes the sums of a piece to its row of `parts`, for the gradients of weight and bias.
__device__ __forceinline__ void leave(Sums *parts, const Sets &sets, long long set,
                                      const Item &item, int given, Sums sums) {
  if (!given) return;
  const long long row = set / sets.per * sets.pieces + item.part;
  parts[row * sets.per * sets.rows + sets.channel(set, item.row, false)] = sums;
}

// gx for one vector, from the means of g and g xhat over the set, both times the weight.
template <typename N, int VEC>
__device__ __forceinline__ Vec<typename N::T, VEC> gradient(const Vec<typename N::T, VEC> &gy,
                                                            const Vec<typename N::T, VEC> &x,
                                                            Statistics s, const Affine &of,
                                                            Sums mean) {
  float g[VEC], xhat[VEC];
  gradients<N>(gy, x, s, of, g, xhat);
#pragma unroll
  for (int i = 0; i < VEC; i++) g[i] = s.rstd * (g[i] * of.weight - mean.sum - xhat[i] * mean.dot);
  return from_float<typename N::T>(g);
}

}  // namespace kw

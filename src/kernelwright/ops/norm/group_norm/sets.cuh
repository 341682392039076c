// Shared by norms whose mean and variance are of a set of rows: a group of channels (group_norm) or
// a channel of all samples (batch_norm), with the elements of a channel side by side (NCHW).
#pragma once
#include "../../elementwise/activations.cuh"
#include "../norm.cuh"

namespace kw {

// T: the elements' type, W the parameters'. SILU: silu follows. PER_SET: a set has one weight and
// bias (batch_norm), else each of its rows (group_norm).
template <typename T_, typename W_, bool SILU, bool PER_SET> struct SetNorm {
  using T = T_;
  using W = W_;
  static constexpr bool kSilu = SILU, kPerSet = PER_SET;
};

// Where a set's elements lie: `rows` rows of `length` contiguous elements. Rows are cut into pieces
// of up to `piece` elements, a warp's unit of work; a set's blocks share its pieces.
struct Sets {
  long long outer_step, set_step, row_step;  // elements between samples, sets, rows
  int per;                                   // sets of a sample
  int rows, length, pieces, piece;           // pieces of a row

  __device__ __forceinline__ long long base(long long set) const {
    return set / per * outer_step + set % per * set_step;
  }
  __device__ __forceinline__ int items() const { return rows * pieces; }
  // Elements in front of a piece.
  __device__ __forceinline__ long long before(int item) const {
    return item / pieces * static_cast<long long>(length) + item % pieces * piece;
  }
  // The parameter of a row.
  __device__ __forceinline__ int channel(long long set, int row, bool per_set) const {
    return static_cast<int>(set % per) * (per_set ? 1 : rows) + (per_set ? 0 : row);
  }
};

// One piece: its row, its first element (from the set's base), its elements.
struct Item {
  int row, part, count;
  long long at;
  __device__ __forceinline__ Item(const Sets &sets, int item) {
    row = item / sets.pieces, part = item - row * sets.pieces;
    count = min(sets.piece, sets.length - part * sets.piece);
    at = row * sets.row_step + part * sets.piece;
  }
};

// The pieces of a set that one of its `blocks` blocks takes.
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

  // Those of both (Chan, Golub and LeVeque 1979).
  __device__ __forceinline__ void add(const Welford &o) {
    const float total = count + o.count, share = total > 0.0f ? o.count / total : 0.0f;
    const float distance = o.mean - mean;
    mean = mean * (1.0f - share) + o.mean * share;  // of an infinite mean no NaN
    squares += o.squares + distance * distance * (count * share);
    count = total;
  }
};

// Of a whole block, to every thread; `scratch` holds 32.
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

// Sums about a thread's first element, which is as good as its mean is: what cancels is at most the
// deviation of one of the elements that are added up.
struct Shifted {
  float count = 0.0f, shift = 0.0f, sum = 0.0f, squares = 0.0f;

  template <typename T, int VEC> __device__ __forceinline__ void add(const Vec<T, VEC> &x) {
    float f[VEC];
    to_float(x, f);
    if (count == 0.0f) shift = fabsf(f[0]) < kInfinity ? f[0] : 0.0f;
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      const float d = f[i] - shift;
      sum += d;
      squares = fmaf(d, d, squares);
    }
    count += VEC;
  }
  __device__ __forceinline__ Welford moments() const {
    const float mean = count > 0.0f ? sum / count : 0.0f;
    const float about = squares - sum * mean;
    return {count, shift + mean, about < 0.0f ? 0.0f : about};
  }
};

// Weight and bias of a row, or what stands for them.
struct Affine {
  float weight, bias;
  template <typename W>
  __device__ __forceinline__ Affine(const W *w, const W *b, int given, int channel)
      : weight(given & kWeight ? to_float(w[channel]) : 1.0f),
        bias(given & kBias ? to_float(b[channel]) : 0.0f) {}
};

// Stores a vector in one instruction: of a plain assignment the compiler makes several where the
// words come from a loop that it has transformed.
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

// The gradient of what silu receives, and the normalised x, of one vector.
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

// Leaves a piece's sums in its row of `parts`, for the gradients of weight and bias.
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

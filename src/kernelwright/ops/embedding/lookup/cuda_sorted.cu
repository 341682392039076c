// A row's gradient by adding its run of positions, in order.
//
// Idea: after positions are sorted by index (`cuda_order.cu`), the rows of gy that belong to a row
// are consecutive: they are added in registers, and the row is written once, including zeros. A row
// of PIECE or more look-ups would occupy one thread for long, so runs are also divided into pieces
// of PIECE positions: embedding_bwd_pieces adds those in long runs, and the row adds its pieces.
// Traffic: gy read once, the gradient written once.
// Compared with `cuda_atomics`: that rung zeroes the gradient, then reads and writes it.
// Deterministic: every sum is in the order of positions.
// Limit: DRAM bandwidth, and some nine launches that sort.
#include "kw/launch.cuh"
#include "table.cuh"

using Pair = unsigned long long;  // as in cuda_order.cu

// The number of floats that one instruction moves, out of VEC.
template <int VEC> constexpr int kFloats = VEC < 4 ? VEC : 4;

// Adds the vector at `column` of the rows of gy in pairs[first, last) to acc; UNROLL in flight.
template <int UNROLL, typename T, int VEC>
__device__ __forceinline__ void add_rows(const T *gy, long long stride, const Pair *pairs,
                                         int first, int last, float (&acc)[VEC]) {
  for (int i = first; i < last; i += UNROLL) {
    kw::Vec<T, VEC> v[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; ++k)
      v[k] =
          i + k < last ? kw::load<T, VEC>(gy + unsigned(pairs[i + k]) * stride) : kw::Vec<T, VEC>{};
    float x[UNROLL][VEC];
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) kw::to_float(v[k], x[k]);
#pragma unroll
    for (int half = UNROLL / 2; half > 0; half /= 2)
#pragma unroll
      for (int k = 0; k < half; ++k)
#pragma unroll
        for (int j = 0; j < VEC; ++j) x[k][j] += x[k + half][j];
#pragma unroll
    for (int j = 0; j < VEC; ++j) acc[j] += x[0][j];
  }
}

// partials[piece][0]: the sum for the run in which the piece begins; [1]: for the run in which it
// ends, if that is a different one. Only for runs longer than a piece: a piece overlaps at most
// two.
template <typename T, int VEC, int PIECE, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_bwd_pieces(const T *gy, const Pair *pairs, const int *starts, float *partials, int n,
                         int pieces, int vectors, int chunk, long long stride) {
  kw::in_turn();
  constexpr int W = kFloats<VEC>;
  const kw::Cell at(blockIdx.x * BLOCK + threadIdx.x, vectors, chunk, pieces);
  if (!at.inside) return;
  const int first = int(at.row) * PIECE, last = min(first + PIECE, n);
  const unsigned begins = unsigned(pairs[first] >> 32), ends = unsigned(pairs[last - 1] >> 32);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const unsigned row = side ? ends : begins;
    const int start = starts[row], stop = starts[row + 1];
    if (stop - start <= PIECE || (side && begins == ends)) continue;
    float acc[VEC] = {};
    add_rows<UNROLL, T, VEC>(gy + at.vector * VEC, stride, pairs, max(start, first),
                             min(stop, last), acc);
    float *to = partials + ((at.row * 2 + side) * vectors + at.vector) * VEC;
#pragma unroll
    for (int j = 0; j < VEC; j += W) {
      kw::Vec<float, W> v;
#pragma unroll
      for (int i = 0; i < W; ++i) v[i] = acc[j + i];
      kw::store(to + j, v);
    }
  }
}

template <typename T, int VEC, int PIECE, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_bwd_rows(const T *gy, const Pair *pairs, const int *starts, const float *partials,
                       T *gweight, long long rows, int vectors, int chunk, long long stride,
                       long long padding) {
  kw::wait_for_launch_before();
  constexpr int W = kFloats<VEC>;
  const kw::Cell at(blockIdx.x * BLOCK + threadIdx.x, vectors, chunk, rows);
  if (!at.inside) return;
  const int start = starts[at.row], stop = at.row == padding ? start : starts[at.row + 1];
  float acc[VEC] = {};
  if (stop - start <= PIECE) {
    add_rows<UNROLL, T, VEC>(gy + at.vector * VEC, stride, pairs, start, stop, acc);
  } else {
    const int end = (stop - 1) / PIECE;
#pragma unroll 4
    for (int piece = start / PIECE; piece <= end; ++piece) {
      const int side = start > piece * PIECE;  // the run begins inside its first piece
      const float *from = partials + ((piece * 2ll + side) * vectors + at.vector) * VEC;
#pragma unroll
      for (int j = 0; j < VEC; j += W) {
        const kw::Vec<float, W> v = kw::load<float, W>(from + j);
#pragma unroll
        for (int i = 0; i < W; ++i) acc[j + i] += v[i];
      }
    }
  }
  kw::store_once(gweight + (at.row * vectors + at.vector) * VEC, kw::from_float<T, VEC>(acc));
}

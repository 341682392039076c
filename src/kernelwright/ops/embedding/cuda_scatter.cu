// Each row of the table read once, and written wherever it is looked up.
//
// Idea: turned around. A row that is looked up k times is read from DRAM up to k times if look-ups
// go by position; here they go by row. Which positions want a row is what `cuda_runs.cu` finds, as
// for the gradient; a thread loads a vector of the row and stores it at each of them. Runs longer
// than PIECE are cut, so that a frequent row is many threads' work.
// Traffic: the rows that are looked up read once, in the table's order; N rows written, each
// whole. Over `cuda_sliced`: no line is read in parts, no index once a slice, and the table may
// have any size. Limit: DRAM, and four launches ahead of the copy, which short rows do not repay.
#include "kw/table.cuh"

enum { kPlaced, kListed, kPieces };  // cursors, as in cuda_runs.cu

// The vector at `from`, to column `to` of y at each of the positions.
template <typename T, int VEC>
__device__ __forceinline__ void scatter(const T *from, T *to, long long cols, const int *positions,
                                        int count) {
  const kw::Vec<T, VEC> v = kw::load<T, VEC>(from);
#pragma unroll 4
  for (int j = 0; j < count; ++j) kw::store_once(to + positions[j] * cols, v);
}

template <typename T, int VEC, int PIECE, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_fwd_scatter_rows(const T *weight, const int2 *runs, const int *positions, T *y,
                               long long rows, int vectors, int chunk, long long stride) {
  const kw::Cell at(blockIdx.x * BLOCK + threadIdx.x, vectors, chunk, rows);
  if (!at.inside) return;
  const int2 run = runs[at.row];
  if (run.y == 0 || run.y > PIECE) return;
  const int column = at.vector * VEC;
  scatter<T, VEC>(weight + at.row * stride + column, y + column, (long long)vectors * VEC,
                  positions + run.x, run.y);
}

template <typename T, typename Index, int VEC, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_fwd_scatter_pieces(const T *weight, const Index *indices, const int *cursors,
                                 const int2 *pieces, const int *positions, T *y, long long most,
                                 int vectors, int chunk, long long stride) {
  const kw::Cell at(blockIdx.x * BLOCK + threadIdx.x, vectors, chunk, most);
  if (!at.inside || at.row >= cursors[kPieces]) return;
  const int2 piece = pieces[at.row];
  const long long row = indices[positions[piece.x]];
  const int column = at.vector * VEC;
  scatter<T, VEC>(weight + row * stride + column, y + column, (long long)vectors * VEC,
                  positions + piece.x, piece.y);
}

// Each row of the table is read once, and written to every position that looks it up.
//
// Idea: in the order of positions, a row that is looked up k times is read from DRAM up to k times;
// here the work is ordered by row. `cuda_runs.cu` finds the positions of each row, as for the
// gradient; a thread loads a vector of the row and stores it at each of the positions in its
// bucket. A frequent row does not fit in a bucket: its pieces are distributed over many threads.
// Traffic: the rows that are looked up are read once, in the order of the table; N rows written.
// Compared with `cuda_sliced`: no line is read in parts, no index once per slice, and the table may
// have any size.
// Limit: L2, and four launches before the copy, which do not pay for short rows.
#include "kw/launch.cuh"
#include "runs.cuh"
#include "table.cuh"

// Stores the vector at `from` to column `to` of y at each of the positions.
template <typename T, int VEC>
__device__ __forceinline__ void scatter(const T *from, T *to, long long cols, const int *positions,
                                        int count) {
  const kw::Vec<T, VEC> v = kw::load<T, VEC>(from);
#pragma unroll 4
  for (int j = 0; j < count; ++j) kw::store_once(to + positions[j] * cols, v);
}

template <typename T, int VEC, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_fwd_scatter_rows(const T *weight, const kw::Bucket *buckets, T *y, long long rows,
                               int vectors, int chunk, long long stride) {
  kw::wait_for_launch_before();
  const kw::Cell at(blockIdx.x * BLOCK + threadIdx.x, vectors, chunk, rows);
  if (!at.inside) return;
  const int count = buckets[at.row].count;
  if (count == 0 || count > kw::kShort) return;
  const int column = at.vector * VEC;
  scatter<T, VEC>(weight + at.row * stride + column, y + column, (long long)vectors * VEC,
                  buckets[at.row].positions, count);
}

template <typename T, typename Index, int VEC, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_fwd_scatter_pieces(const T *weight, const Index *indices, const unsigned *cursors,
                                 const int2 *pieces, const int *positions, T *y, int vectors,
                                 long long stride) {
  kw::in_turn();
  const long long items = (long long)cursors[kw::kPieces] * vectors;
  for (long long item = blockIdx.x * BLOCK + threadIdx.x; item < items; item += gridDim.x * BLOCK) {
    const int2 piece = pieces[item / vectors];
    const long long row = indices[positions[piece.x]];
    const int column = item % vectors * VEC;
    scatter<T, VEC>(weight + row * stride + column, y + column, (long long)vectors * VEC,
                    positions + piece.x, piece.y);
  }
}

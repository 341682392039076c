// A row's gradient by adding its run of positions, which are ordered where they are added.
//
// Idea: a sum does not need a complete sort. `cuda_runs.cu` finds runs in any order; then the order
// of the additions is made deterministic: the thread that adds a bucket orders its positions in
// registers; longer runs are ordered in shared memory, as a bit set (embedding_order). Runs longer
// than PIECE are added by pieces, and the row adds those.
// Traffic: gy read once, the gradient written once; also some 16 bytes per position and 130 per
// row.
// Compared with `cuda_sorted`: no position is moved except those of long runs, for any number of
// rows.
// Limit: DRAM bandwidth, and five launches before the sums; a run with most of the positions is
// ordered by a single block.
#include "kw/launch.cuh"
#include "runs.cuh"
#include "table.cuh"

constexpr int kBatch = 4;          // positions that a thread has in flight
constexpr int kNone = 0x7fffffff;  // no position

// Adds the vectors of gy at these positions to acc, with all of them in flight.
template <typename T, int VEC>
__device__ __forceinline__ void add_batch(const T *gy, long long stride, const int (&at)[kBatch],
                                          float (&acc)[VEC]) {
  kw::Vec<T, VEC> v[kBatch];
#pragma unroll
  for (int k = 0; k < kBatch; ++k)
    v[k] = at[k] == kNone ? kw::Vec<T, VEC>{} : kw::load<T, VEC>(gy + at[k] * stride);
  float x[kBatch][VEC];
#pragma unroll
  for (int k = 0; k < kBatch; ++k) kw::to_float(v[k], x[k]);
#pragma unroll
  for (int half = kBatch / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k)
#pragma unroll
      for (int j = 0; j < VEC; ++j) x[k][j] += x[k + half][j];
#pragma unroll
  for (int j = 0; j < VEC; ++j) acc[j] += x[0][j];
}

template <typename T, int VEC>
__device__ __forceinline__ void add_ordered(const T *gy, long long stride, const int *ordered,
                                            int count, float (&acc)[VEC]) {
  for (int i = 0; i < count; i += kBatch) {
    int at[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) at[k] = i + k < count ? ordered[i + k] : kNone;
    add_batch<T, VEC>(gy, stride, at, acc);
  }
}

// A short run: inserting all its positions gives the next kBatch of them in order.
template <typename T, int VEC>
__device__ __forceinline__ void add_short(const T *gy, long long stride, const int *positions,
                                          int count, float (&acc)[VEC]) {
  int last = -1;
  for (int i = 0; i < count; i += kBatch) {
    int at[kBatch];
#pragma unroll
    for (int &p : at) p = kNone;
#pragma unroll 4
    for (int j = 0; j < count; ++j) {
      int p = positions[j];
      if (p <= last) p = kNone;
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int low = min(at[k], p);
        p = max(at[k], p);
        at[k] = low;
      }
    }
    add_batch<T, VEC>(gy, stride, at, acc);
    last = at[kBatch - 1];
  }
}

// The number of floats that one instruction moves, out of VEC.
template <int VEC> constexpr int kFloats = VEC < 4 ? VEC : 4;

template <typename T, int VEC, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    embedding_bwd_slots_pieces(const T *gy, const unsigned *cursors, const int2 *pieces,
                               const int *ordered, float *partials, int vectors, long long stride) {
  kw::in_turn();
  constexpr int W = kFloats<VEC>;
  const long long items = (long long)cursors[kw::kPieces] * vectors;
  for (long long item = blockIdx.x * BLOCK + threadIdx.x; item < items; item += gridDim.x * BLOCK) {
    const int2 piece = pieces[item / vectors];
    float acc[VEC] = {};
    add_ordered<T, VEC>(gy + item % vectors * VEC, stride, ordered + piece.x, piece.y, acc);
#pragma unroll
    for (int j = 0; j < VEC; j += W) {
      kw::Vec<float, W> v;
#pragma unroll
      for (int i = 0; i < W; ++i) v[i] = acc[j + i];
      kw::store(partials + item * VEC + j, v);
    }
  }
}

template <typename T, int VEC, int PIECE, int EACH, int RESIDENT, int BLOCK>
__global__ void __launch_bounds__(BLOCK, RESIDENT / BLOCK)
    embedding_bwd_slots_rows(const T *gy, const kw::Bucket *buckets, const int2 *places,
                             const int *ordered, const float *partials, T *gweight, long long rows,
                             int vectors, int step, int chunk, long long stride) {
  kw::wait_for_launch_before();
  constexpr int W = kFloats<VEC>;
  const kw::Cell at(blockIdx.x * BLOCK + threadIdx.x, step, chunk, rows);
  if (!at.inside) return;
  const int count = buckets[at.row].count;
#pragma unroll 1
  for (int k = 0; k < EACH; ++k) {
    const int vector = at.vector + k * step;
    if (EACH > 1 && vector >= vectors) return;
    float acc[VEC] = {};
    if (count <= kw::kShort) {
      add_short<T, VEC>(gy + vector * VEC, stride, buckets[at.row].positions, count, acc);
    } else if (count <= PIECE) {
      add_ordered<T, VEC>(gy + vector * VEC, stride, ordered + places[at.row].x, count, acc);
    } else {
      const int first = places[at.row].y, many = (count - 1) / PIECE + 1;
#pragma unroll 8
      for (int p = 0; p < many; ++p) {
        const float *from = partials + ((first + (long long)p) * vectors + vector) * VEC;
#pragma unroll
        for (int j = 0; j < VEC; j += W) {
          const kw::Vec<float, W> v = kw::load<float, W>(from + j);
#pragma unroll
          for (int i = 0; i < W; ++i) acc[j + i] += v[i];
        }
      }
    }
    kw::store_once(gweight + (at.row * vectors + vector) * VEC, kw::from_float<T, VEC>(acc));
  }
}

// Each row of the result adds its run of positions, in order, to the row of x.
//
// Idea: the kernels of embedding's gradient find runs of positions by counting and order them
// (cuda_runs.cu there); here a row adds its run in registers, then x, and is written once.
// Traffic: x and source read once, the result written once; also some 16 bytes per position and 130
// per row.
// Compared with `cuda_atomics`: no additions in memory, no copy before; deterministic.
// Limit: DRAM bandwidth, and five launches before the sums.
#include "../../embedding/lookup/cuda_slots.cu"

template <typename T, int VEC, int PIECE, int EACH, int RESIDENT, int BLOCK>
__global__ void __launch_bounds__(BLOCK, RESIDENT / BLOCK)
    index_add_rows(const T *x, const T *source, const kw::Bucket *buckets, const int2 *places,
                   const int *ordered, const float *partials, T *y, long long rows, int vectors,
                   int step, int chunk, long long x_stride, long long stride, float alpha) {
  kw::wait_for_launch_before();
  constexpr int W = kFloats<VEC>;
  const kw::Cell at(blockIdx.x * BLOCK + threadIdx.x, step, chunk, rows);
  if (!at.inside) return;
  const int count = buckets[at.row].count;
#pragma unroll 1
  for (int k = 0; k < EACH; ++k) {
    const int vector = at.vector + k * step;
    if (EACH > 1 && vector >= vectors) return;
    const kw::Vec<T, VEC> own = kw::load<T, VEC>(x + at.row * x_stride + vector * VEC);
    float acc[VEC] = {};
    if (count <= kw::kShort) {
      add_short<T, VEC>(source + vector * VEC, stride, buckets[at.row].positions, count, acc);
    } else if (count <= PIECE) {
      add_ordered<T, VEC>(source + vector * VEC, stride, ordered + places[at.row].x, count, acc);
    } else {
      const int first = places[at.row].y, many = (count - 1) / PIECE + 1;
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
    float sum[VEC];
    kw::to_float(own, sum);
#pragma unroll
    for (int i = 0; i < VEC; ++i) sum[i] = count ? sum[i] + alpha * acc[i] : sum[i];
    kw::store_once(y + (at.row * vectors + vector) * VEC, kw::from_float<T, VEC>(sum));
  }
}

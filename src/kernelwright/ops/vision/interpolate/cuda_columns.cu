// Planes: a thread computes several results of a column.
//
// Idea: a thread processes a column of the result for ROWS rows: it computes the two pixels of its
// column, or in the backward the outputs and weights of its column, once for all of them.
// Traffic: as `cuda_naive`.
// Compared with `cuda_naive`: coordinates by multiplications that ROWS rows share, and loads of
// several rows in flight.
// Limit: loads of single elements; L1's rate for 16-bit types.
#include "bilinear.cuh"

template <typename T, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    bilinear_fwd_columns(const T *x, T *y, unsigned count, kw::Divisor across, kw::Divisor down,
                         kw::Sizes sizes, float scale_h, float scale_w) {
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  const kw::Axis h = kw::rows_of(sizes, scale_h), w = kw::columns_of(sizes, scale_w);
  unsigned plane = i;
  const int column = across.divide(plane), first = down.divide(plane) * ROWS;
  const kw::Mean right = w.of(column);
  T pixels[ROWS][4];
  float weight[ROWS];
#pragma unroll
  for (int k = 0; k < ROWS; ++k) {
    const kw::Mean of = h.of(min(first + k, h.to - 1));
    const T *top = x + ((long long)plane * h.from + of.first) * w.from;
    const T *bottom = x + ((long long)plane * h.from + of.second) * w.from;
    pixels[k][0] = top[right.first], pixels[k][1] = top[right.second];
    pixels[k][2] = bottom[right.first], pixels[k][3] = bottom[right.second];
    weight[k] = of.weight;
  }
#pragma unroll
  for (int k = 0; k < ROWS; ++k) {
    if (first + k >= h.to) return;
    y[((long long)plane * h.to + first + k) * w.to + column] = kw::from_float<T>(
        kw::mean(kw::to_float(pixels[k][0]), kw::to_float(pixels[k][1]), kw::to_float(pixels[k][2]),
                 kw::to_float(pixels[k][3]), right.weight, weight[k]));
  }
}

// MOST: maximum outputs of a column whose weights are kept in registers.
template <typename T, int MOST, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    bilinear_bwd_columns(const T *gy, T *gx, unsigned count, kw::Divisor across, kw::Divisor down,
                         kw::Sizes sizes, float scale_h, float scale_w) {
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  const kw::Axis h = kw::rows_of(sizes, scale_h), w = kw::columns_of(sizes, scale_w);
  unsigned plane = i;
  const int column = across.divide(plane), first = down.divide(plane) * ROWS;
  const int left = w.first_of(column - 1), end = w.first_of(column + 1);
  float share[MOST];
#pragma unroll
  for (int k = 0; k < MOST; ++k) share[k] = left + k < end ? w.weight(left + k, column) : 0.0f;
  for (int row = first; row < min(first + ROWS, h.from); ++row) {
    const int bottom = h.first_of(row + 1);
    float sum = 0;
    for (int o = h.first_of(row - 1); o < bottom; ++o) {
      const T *from = gy + ((long long)plane * h.to + o) * w.to + left;
      float values[MOST], along = 0;
#pragma unroll
      for (int k = 0; k < MOST; ++k) values[k] = left + k < end ? kw::to_float(from[k]) : 0.0f;
#pragma unroll
      for (int k = 0; k < MOST; ++k) along += share[k] * values[k];
      sum += h.weight(o, row) * along;
    }
    gx[((long long)plane * h.from + row) * w.from + column] = kw::from_float<T>(sum);
  }
}

// One thread per pixel: of the result, or of the gradient.
//
// Idea: a thread computes its coordinates by divisions, and the four pixels of its mean. In the
// backward it iterates over the rectangle of outputs that use its pixel, recomputes their weights,
// and adds up the weighted gradients in float, row by row: no atomics.
// Traffic: x (gy) read once from DRAM, the result written once.
// Compared with `manual`: no means along columns are written to memory.
// Limit: 2 or 4 bytes per thread in flight, with three 64-bit divisions for each of them.
#include "../../layout/permute_copy/places.cuh"
#include "bilinear.cuh"

// `pixel`: elements between two pixels of the tensor that is read.
template <typename T>
__global__ void bilinear_fwd_naive(const T *x, T *y, long long count, long long channels,
                                   long long pixel, kw::Sizes sizes, float scale_h, float scale_w) {
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const kw::Axis h = kw::rows_of(sizes, scale_h), w = kw::columns_of(sizes, scale_w);
  long long image = i;
  const long long c = kw::divide(image, channels);
  const kw::Mean right = w.of(kw::divide(image, w.to)), down = h.of(kw::divide(image, h.to));
  const T *top = x + (image * h.from + down.first) * w.from * pixel + c;
  const T *bottom = x + (image * h.from + down.second) * w.from * pixel + c;
  y[i] = kw::from_float<T>(
      kw::mean(kw::to_float(top[right.first * pixel]), kw::to_float(top[right.second * pixel]),
               kw::to_float(bottom[right.first * pixel]),
               kw::to_float(bottom[right.second * pixel]), right.weight, down.weight));
}

template <typename T>
__global__ void bilinear_bwd_naive(const T *gy, T *gx, long long count, long long channels,
                                   long long pixel, kw::Sizes sizes, float scale_h, float scale_w) {
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const kw::Axis h = kw::rows_of(sizes, scale_h), w = kw::columns_of(sizes, scale_w);
  long long image = i;
  const long long c = kw::divide(image, channels);
  const int column = kw::divide(image, w.from), row = kw::divide(image, h.from);
  const int left = w.first_of(column - 1), end = w.first_of(column + 1);
  const int bottom = h.first_of(row + 1);
  float sum = 0;
  for (int o = h.first_of(row - 1); o < bottom; ++o) {
    const T *from = gy + (image * h.to + o) * w.to * pixel + c;
    float across = 0;
    for (int p = left; p < end; ++p) across += w.weight(p, column) * kw::to_float(from[p * pixel]);
    sum += h.weight(o, row) * across;
  }
  gx[i] = kw::from_float<T>(sum);
}

// One thread per pixel: of the result, or of the gradient.
//
// Idea: a thread computes its coordinates by divisions, and copies the pixel of x. In the backward
// it adds up the rectangle of outputs that copy its pixel, in float, row by row: no atomics.
// Traffic: x (gy) read once from DRAM, the result written once.
// Compared with `manual`: one selection instead of one per dimension.
// Limit: 2 or 4 bytes per thread in flight, with three 64-bit divisions for each of them.
#include <kw/types.cuh>

#include "../../layout/permute_copy/places.cuh"
#include "nearest.cuh"

// `pixel`: elements between two pixels of the tensor that is read.
template <typename T>
__global__ void nearest_fwd_naive(const T *x, T *y, long long count, long long channels,
                                  long long pixel, kw::Sizes sizes, float scale_h, float scale_w) {
  const kw::Axis<0> h{sizes.from_h, sizes.to_h, scale_h}, w{sizes.from_w, sizes.to_w, scale_w};
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long image = i;
  const long long c = kw::divide(image, channels);
  const int right = kw::divide(image, w.to), down = kw::divide(image, h.to);
  y[i] = x[((image * h.from + h.source(down)) * w.from + w.source(right)) * pixel + c];
}

template <typename T>
__global__ void nearest_bwd_naive(const T *gy, T *gx, long long count, long long channels,
                                  long long pixel, kw::Sizes sizes, float scale_h, float scale_w) {
  const kw::Axis<0> h{sizes.from_h, sizes.to_h, scale_h}, w{sizes.from_w, sizes.to_w, scale_w};
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long image = i;
  const long long c = kw::divide(image, channels);
  const int right = kw::divide(image, w.from), down = kw::divide(image, h.from);
  const int top = h.first_of(down), bottom = h.first_of(down + 1);
  const int left = w.first_of(right), end = w.first_of(right + 1);
  float sum = 0;
  for (int o = top; o < bottom; ++o)
    for (int p = left; p < end; ++p)
      sum += kw::to_float(gy[((image * h.to + o) * w.to + p) * pixel + c]);
  gx[i] = kw::from_float<T>(sum);
}

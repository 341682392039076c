// One thread per pixel: of the result, or of the gradient.
//
// Idea: a thread iterates over its window and adds up the pixels. In the backward it iterates over
// the windows that contain its pixel, and adds up their parts: no atomics.
// Traffic: x (gy) read once from DRAM, the result written once.
// Compared with `manual`: the windows are not written to memory.
// Limit: 2 or 4 bytes per thread in flight, with three 64-bit divisions for each of them.
#include "../../layout/permute_copy/places.cuh"
#include "averages.cuh"

// `pixel`: elements between two pixels of the tensor that is read.
template <typename T>
__global__ void avg_fwd_naive(const T *x, T *y, long long count, long long channels,
                              long long pixel, kw::Windows of, kw::Average average) {
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long image = i;
  const long long c = kw::divide(image, channels);
  const int p = kw::divide(image, of.w.to), o = kw::divide(image, of.h.to);
  const int left = max(of.w.first(p), 0), right = min(of.w.first(p) + of.w.kernel, of.w.from);
  const int top = max(of.h.first(o), 0), bottom = min(of.h.first(o) + of.h.kernel, of.h.from);
  float sum = 0;
  for (int row = top; row < bottom; ++row)
    for (int column = left; column < right; ++column)
      sum += kw::to_float(x[((image * of.h.from + row) * of.w.from + column) * pixel + c]);
  y[i] = kw::from_float<T>(sum * average.share(of, o, p));
}

template <typename T>
__global__ void avg_bwd_naive(const T *gy, T *gx, long long count, long long channels,
                              long long pixel, kw::Windows of, kw::Average average) {
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long image = i;
  const long long c = kw::divide(image, channels);
  const int column = kw::divide(image, of.w.from), row = kw::divide(image, of.h.from);
  float sum = 0;
  for (int o = of.h.begin(row); o < of.h.end(row); ++o)
    for (int p = of.w.begin(column); p < of.w.end(column); ++p) {
      const long long window = (image * of.h.to + o) * of.w.to + p;
      sum += kw::to_float(gy[window * pixel + c]) * average.share(of, o, p);
    }
  gx[i] = kw::from_float<T>(sum);
}

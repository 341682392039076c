// One thread per pixel: of the result, or of the gradient.
//
// Idea: a thread iterates over its window and keeps the greatest pixel and its index in the window.
// In the backward it iterates over the windows that contain its pixel, and adds up the gradients of
// those that selected it: no atomics.
// Traffic: x (gy, at) read once from DRAM, the results written once; an index is one byte instead
// of the eight of PyTorch's indices.
// Compared with `manual`: the windows are not written to memory.
// Limit: 2 or 4 bytes per thread in flight, with three 64-bit divisions for each of them.
#include "../../layout/permute_copy/places.cuh"
#include "maximum.cuh"

// `pixel`: elements between two pixels of the tensor that is read; `pixel_at`: of the indices.
template <typename T, typename INDEX>
__global__ void max_fwd_naive(const T *x, T *y, INDEX *at, long long count, long long channels,
                              long long pixel, kw::Windows of) {
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long image = i;
  const long long c = kw::divide(image, channels);
  const int left = of.w.first(kw::divide(image, of.w.to)),
            top = of.h.first(kw::divide(image, of.h.to));
  float most = -kw::kInfinity;
  int number = -1;
  for (int j = 0; j < of.h.kernel; ++j) {
    const int row = top + j * of.h.dilation;
    if (!of.h.inside(row)) continue;
    for (int k = 0; k < of.w.kernel; ++k) {
      const int column = left + k * of.w.dilation;
      if (!of.w.inside(column)) continue;
      const float of_x =
          kw::to_float(x[((image * of.h.from + row) * of.w.from + column) * pixel + c]);
      if (kw::exceeds(of_x, most) || number < 0) most = of_x, number = j * of.w.kernel + k;
    }
  }
  y[i] = kw::from_float<T>(most);
  if (at) at[i] = max(number, 0);
}

template <typename T, typename INDEX>
__global__ void max_bwd_naive(const T *gy, const INDEX *at, T *gx, long long count,
                              long long channels, long long pixel, long long pixel_at,
                              kw::Windows of) {
  const long long i = kw::block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long image = i;
  const long long c = kw::divide(image, channels);
  const int column = kw::divide(image, of.w.from), row = kw::divide(image, of.h.from);
  float sum = 0;
  for (int o = of.h.begin(row); o < of.h.end(row); ++o)
    for (int p = of.w.begin(column); p < of.w.end(column); ++p) {
      const long long window = (image * of.h.to + o) * of.w.to + p;
      const int number = at[window * pixel_at + c];
      const int j = number / of.w.kernel, k = number - j * of.w.kernel;
      if (of.h.first(o) + j * of.h.dilation == row && of.w.first(p) + k * of.w.dilation == column)
        sum += kw::to_float(gy[window * pixel + c]);
    }
  gx[i] = kw::from_float<T>(sum);
}

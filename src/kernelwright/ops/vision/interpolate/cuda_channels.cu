// Images with channels last, by 16-byte vectors of channels.
//
// Idea: the coordinates, computed by multiplications, and weights of a vector are used for 4 or 8
// channels. In the forward, the four vectors are loaded before the first is used.
// Traffic: as `cuda_naive`, in 16-byte accesses; pixels that neighbors share come from L1.
// Compared with `cuda_naive`: coordinates and weights once per vector.
// Limit: DRAM bandwidth; in the backward the weights of outputs, which are recomputed for every
// vector.
#include "bilinear.cuh"

template <typename T, int WIDTH, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    bilinear_fwd_channels(const T *x, T *y, unsigned count, long long pixel, kw::Divisor channels,
                          kw::Divisor across, kw::Divisor down, kw::Sizes sizes, float scale_h,
                          float scale_w) {
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  const kw::Axis h = kw::rows_of(sizes, scale_h), w = kw::columns_of(sizes, scale_w);
  unsigned image = i;
  const unsigned c = channels.divide(image) * WIDTH;
  const kw::Mean right = w.of(across.divide(image)), of = h.of(down.divide(image));
  const T *top = x + ((long long)image * h.from + of.first) * w.from * pixel + c;
  const T *bottom = x + ((long long)image * h.from + of.second) * w.from * pixel + c;
  const auto a = kw::load<T, WIDTH>(top + right.first * pixel);
  const auto b = kw::load<T, WIDTH>(top + right.second * pixel);
  const auto p = kw::load<T, WIDTH>(bottom + right.first * pixel);
  const auto q = kw::load<T, WIDTH>(bottom + right.second * pixel);
  float found[WIDTH];
#pragma unroll
  for (int e = 0; e < WIDTH; ++e)
    found[e] = kw::mean(kw::to_float(a[e]), kw::to_float(b[e]), kw::to_float(p[e]),
                        kw::to_float(q[e]), right.weight, of.weight);
  kw::store(y + (long long)i * WIDTH, kw::from_float<T, WIDTH>(found));
}

template <typename T, int WIDTH, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    bilinear_bwd_channels(const T *gy, T *gx, unsigned count, long long pixel, kw::Divisor channels,
                          kw::Divisor across, kw::Divisor down, kw::Sizes sizes, float scale_h,
                          float scale_w) {
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  const kw::Axis h = kw::rows_of(sizes, scale_h), w = kw::columns_of(sizes, scale_w);
  unsigned image = i;
  const unsigned c = channels.divide(image) * WIDTH;
  const int column = across.divide(image), row = down.divide(image);
  const int left = w.first_of(column - 1), end = w.first_of(column + 1);
  const int bottom = h.first_of(row + 1);
  float sum[WIDTH] = {};
  for (int o = h.first_of(row - 1); o < bottom; ++o) {
    const T *from = gy + ((long long)image * h.to + o) * w.to * pixel + c;
    const float down_share = h.weight(o, row);
    for (int p = left; p < end; ++p) {
      const float share = down_share * w.weight(p, column);
      float of[WIDTH];
      kw::to_float(kw::load<T, WIDTH>(from + p * pixel), of);
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) sum[e] += share * of[e];
    }
  }
  kw::store(gx + (long long)i * WIDTH, kw::from_float<T, WIDTH>(sum));
}

// A thread has a column of windows: single pixels of planes, or 16-byte vectors of channels.
//
// Idea: the window's size is a constant, so that its pixels are registers, all loaded before the
// first is added. Neighbouring threads have neighbouring windows (or channels), whose common pixels
// come from L1; ROWS windows below each other share the coordinates of their columns.
// Traffic: that of `cuda_naive`. Over it: a window in flight instead of a pixel, and
// multiplications in place of divisions. Limit: DRAM; for planes of 16-bit types, loads of 2 bytes.
#include "averages.cuh"

template <typename T, int WIDTH, int HIGH, int WIDE, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    avg_fwd_rows(const T *x, T *y, unsigned count, long long pixel, kw::Divisor channels,
                 kw::Divisor across, kw::Divisor down, kw::Windows of, kw::Average average) {
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned image = i;
  const unsigned c = channels.divide(image) * WIDTH, column = across.divide(image);
  const int first = down.divide(image) * ROWS, left = of.w.first(column);
  kw::Vec<T, WIDTH> none;
#pragma unroll
  for (int e = 0; e < WIDTH; ++e) none[e] = kw::from_float<T>(0.0f);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int row = first + r, top = of.h.first(row);
    if (row >= of.h.to) return;
    kw::Vec<T, WIDTH> v[HIGH][WIDE];
#pragma unroll
    for (int j = 0; j < HIGH; ++j) {
      const bool inside = of.h.inside(top + j);
      const T *from = x + ((long long)image * of.h.from + top + j) * of.w.from * pixel + c;
#pragma unroll
      for (int k = 0; k < WIDE; ++k)
        v[j][k] =
            inside && of.w.inside(left + k) ? kw::load<T, WIDTH>(from + (left + k) * pixel) : none;
    }
    float sum[WIDTH] = {};
#pragma unroll
    for (int n = 0; n < HIGH * WIDE; ++n) {
      float pixels[WIDTH];
      kw::to_float(v[n / WIDE][n % WIDE], pixels);
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) sum[e] += pixels[e];
    }
    const float share = average.share(of, row, column);
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) sum[e] *= share;
    const long long to = ((long long)image * of.h.to + row) * of.w.to + column;
    kw::store(y + to * channels.by * WIDTH + c, kw::from_float<T, WIDTH>(sum));
  }
}

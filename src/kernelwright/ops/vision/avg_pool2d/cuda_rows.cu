// A thread processes a column of windows: single pixels of planes, or 16-byte vectors of channels.
//
// Idea: size and stride are constants, so that the pixels of ROWS vertically adjacent windows are
// in registers, all loaded before the first is added. The sum of a line of WIDE pixels is used by
// every window that contains the line. Adjacent threads process adjacent windows (or channels).
// Traffic: as `cuda_naive`; pixels that threads share come from L1.
// Compared with `cuda_naive`: several windows in flight, and multiplications instead of divisions.
// Limit: DRAM bandwidth; for planes of 16-bit types, instructions.
#include "averages.cuh"

// `line`: elements between two rows of x; `pixel`: between two pixels.
template <typename T, int WIDTH, int HIGH, int WIDE, int STRIDE, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    avg_fwd_rows(const T *x, T *y, unsigned count, int line, int pixel, kw::Divisor channels,
                 kw::Divisor across, kw::Divisor down, kw::Windows of, kw::Average average) {
  constexpr int LINES = (ROWS - 1) * STRIDE + HIGH;
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned image = i;
  const unsigned c = channels.divide(image) * WIDTH, column = across.divide(image);
  const int first = down.divide(image) * ROWS, left = of.w.first(column), top = of.h.first(first);
  const T *from = x + (long long)image * of.h.from * line + (left * pixel + (int)c);
  const int wide = average.length(of.w, column);
  kw::Vec<T, WIDTH> none;
#pragma unroll
  for (int e = 0; e < WIDTH; ++e) none[e] = kw::from_float<T>(0.0f);
  kw::Vec<T, WIDTH> v[LINES][WIDE];
#pragma unroll
  for (int r = 0; r < LINES; ++r) {
    if (STRIDE > HIGH && r % STRIDE >= HIGH) continue;  // between two windows
    const bool inside = of.h.inside(top + r);
    const T *row = from + (long long)(top + r) * line;
#pragma unroll
    for (int k = 0; k < WIDE; ++k)
      v[r][k] = inside && of.w.inside(left + k) ? kw::load<T, WIDTH>(row + k * pixel) : none;
  }
  float sums[LINES][WIDTH] = {};
#pragma unroll
  for (int r = 0; r < LINES; ++r) {
    if (STRIDE > HIGH && r % STRIDE >= HIGH) continue;
#pragma unroll
    for (int k = 0; k < WIDE; ++k) {
      float pixels[WIDTH];
      kw::to_float(v[r][k], pixels);
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) sums[r][e] += pixels[e];
    }
  }
#pragma unroll
  for (int o = 0; o < ROWS; ++o) {
    if (first + o >= of.h.to) return;
    const float share = average.share(average.length(of.h, first + o), wide);
    float mean[WIDTH] = {};
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
#pragma unroll
      for (int j = 0; j < HIGH; ++j) mean[e] += sums[o * STRIDE + j][e];
      mean[e] *= share;
    }
    const long long to = ((long long)image * of.h.to + first + o) * of.w.to + column;
    kw::store(y + to * channels.by * WIDTH + c, kw::from_float<T, WIDTH>(mean));
  }
}

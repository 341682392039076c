// A thread has a column of windows: single pixels of planes, or 16-byte vectors of channels.
//
// Idea: the window's size is a constant, so that its pixels are registers, all loaded before the
// first is compared. Neighbouring threads have neighbouring windows (or channels), whose common
// pixels come from L1; ROWS windows below each other share the coordinates of their columns.
// Traffic: that of `cuda_naive`. Over it: a window in flight instead of a pixel, multiplications in
// place of divisions, no comparison of coordinates where a pixel is compared.
// Limit: DRAM; for planes of 16-bit types with numbers, comparisons.
#include "maximum.cuh"

template <typename T, typename INDEX, int WIDTH, int HIGH, int WIDE, bool KEEP, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    max_fwd_rows(const T *x, T *y, INDEX *at, unsigned count, long long pixel, kw::Divisor channels,
                 kw::Divisor across, kw::Divisor down, kw::Windows of) {
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned image = i;
  const unsigned c = channels.divide(image) * WIDTH, column = across.divide(image);
  const int first = down.divide(image) * ROWS, left = of.w.first(column);
  int start = 0;  // the first column of the window that lies inside
#pragma unroll
  for (int k = WIDE - 1; k >= 0; --k)
    if (of.w.inside(left + k * of.w.dilation)) start = k;
  kw::Vec<T, WIDTH> none;
#pragma unroll
  for (int e = 0; e < WIDTH; ++e) none[e] = kw::from_float<T>(-kw::kInfinity);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int row = first + r, top = of.h.first(row);
    if (row >= of.h.to) return;
    kw::Vec<T, WIDTH> v[HIGH][WIDE];
    int number = 0;
#pragma unroll
    for (int j = HIGH - 1; j >= 0; --j) {
      const int down_to = top + j * of.h.dilation;
      const bool inside = of.h.inside(down_to);
      if (inside) number = j * WIDE + start;
      const T *from = x + ((long long)image * of.h.from + down_to) * of.w.from * pixel + c;
#pragma unroll
      for (int k = 0; k < WIDE; ++k) {
        const int right = left + k * of.w.dilation;
        v[j][k] = inside && of.w.inside(right) ? kw::load<T, WIDTH>(from + right * pixel) : none;
      }
    }
    float most[WIDTH];
    kw::Vec<INDEX, WIDTH> numbers;
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) most[e] = -kw::kInfinity, numbers[e] = number;
#pragma unroll
    for (int n = 0; n < HIGH * WIDE; ++n) {
      float pixels[WIDTH];
      kw::to_float(v[n / WIDE][n % WIDE], pixels);
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        if (KEEP && kw::exceeds(pixels[e], most[e])) numbers[e] = n;
        most[e] = kw::max_nan(pixels[e], most[e]);
      }
    }
    const long long to =
        (((long long)image * of.h.to + row) * of.w.to + column) * channels.by * WIDTH + c;
    kw::store(y + to, kw::from_float<T, WIDTH>(most));
    if (KEEP) kw::store(at + to, numbers);
  }
}

// A thread processes a column of windows: single pixels of planes, or 16-byte vectors of channels.
//
// Idea: size and stride are constants, so that the pixels of ROWS vertically adjacent windows are
// in registers, all loaded before the first comparison. The maximum of a line of WIDE pixels is
// used by every window that contains the line. A pixel outside is replaced by the nearest one of
// the window, which changes no maximum. Adjacent threads process adjacent windows (or channels).
// Traffic: as `cuda_naive`; pixels that threads share come from L1.
// Compared with `cuda_naive`: several windows in flight; no divisions or comparisons of
// coordinates.
// Limit: DRAM bandwidth; for planes of 16-bit types with indices, instructions.
#include "maximum.cuh"

// `line`: elements between two rows of x; `pixel`: between two pixels.
template <typename T, int WIDTH, int HIGH, int WIDE, int STRIDE, bool KEEP, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    max_fwd_rows(const T *x, T *y, unsigned char *at, unsigned count, int line, int pixel,
                 kw::Divisor channels, kw::Divisor across, kw::Divisor down, kw::Windows of) {
  constexpr int LINES = (ROWS - 1) * STRIDE + HIGH;
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned image = i;
  const unsigned c = channels.divide(image) * WIDTH, column = across.divide(image);
  const int first = down.divide(image) * ROWS, left = of.w.first(column), top = of.h.first(first);
  const T *from[WIDE];
  int in_line[WIDE], rows[LINES];
#pragma unroll
  for (int k = 0; k < WIDE; ++k) {
    const int inside = min(max(left + k, 0), of.w.from - 1);
    from[k] = x + (long long)image * of.h.from * line + (inside * pixel + c);
    in_line[k] = inside - left;
  }
  kw::Vec<T, WIDTH> v[LINES][WIDE];
#pragma unroll
  for (int r = 0; r < LINES; ++r) {
    rows[r] = min(max(top + r, 0), of.h.from - 1);
    if (STRIDE > HIGH && r % STRIDE >= HIGH) continue;  // between two windows
#pragma unroll
    for (int k = 0; k < WIDE; ++k)
      v[r][k] = kw::load<T, WIDTH>(from[k] + (long long)rows[r] * line);
  }
  float most_of[LINES][WIDTH];
  int place[LINES][WIDTH];
#pragma unroll
  for (int r = 0; r < LINES; ++r) {
    if (STRIDE > HIGH && r % STRIDE >= HIGH) continue;
#pragma unroll
    for (int k = 0; k < WIDE; ++k) {
      float pixels[WIDTH];
      kw::to_float(v[r][k], pixels);
#pragma unroll
      for (int e = 0; e < WIDTH; ++e)
        kw::take(pixels[e], in_line[k], k == 0, most_of[r][e], place[r][e]);
    }
  }
#pragma unroll
  for (int o = 0; o < ROWS; ++o) {
    if (first + o >= of.h.to) return;
    float most[WIDTH];
    kw::Vec<unsigned char, WIDTH> numbers;
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      int number;
#pragma unroll
      for (int j = 0; j < HIGH; ++j) {
        const int r = o * STRIDE + j, before = (rows[r] - top - o * STRIDE) * WIDE;
        kw::take(most_of[r][e], before + place[r][e], j == 0, most[e], number);
      }
      if (KEEP && most[e] != most[e]) {  // the last NaN
#pragma unroll
        for (int n = 0; n < HIGH * WIDE; ++n) {
          const int r = o * STRIDE + n / WIDE;
          const float found = kw::to_float(v[r][n % WIDE][e]);
          if (found != found) number = (rows[r] - top - o * STRIDE) * WIDE + in_line[n % WIDE];
        }
      }
      numbers[e] = number;
    }
    const long long to = ((long long)image * of.h.to + first + o) * of.w.to + column;
    kw::store(y + to * channels.by * WIDTH + c, kw::from_float<T, WIDTH>(most));
    if (KEEP) kw::store(at + to * channels.by * WIDTH + c, numbers);
  }
}

// Operands that broadcast, in 16-byte vectors of the result.
//
// Idea: the result is one line of vectors, wherever its rows end. An operand of the result's size
// is read as it lies; a row for all rows, or an element for all of a row, comes out of the caches:
// at once where no vector crosses the end of a row (WHOLE), else element by element. Backward, of
// one row for all rows: a block is a strip of columns, keeps the row in registers, walks down, and
// adds up what the row's gradient gets; a second kernel adds the blocks' rows. Traffic: operands of
// the result's size read once, the result written once; backward a row a block more. PyTorch's
// backward writes and reads the products before it sums them. Over `cuda_grid2d`: vectors for rows
// of any length, several in flight; columns and single elements. Limit: DRAM; a row's end inside
// vectors costs a read out of L1 an element.
#include "formulas.cuh"
#include "kw/parts.cuh"

enum class Along { kFlat, kRow, kElement };  // tiling.py

// The operand's element at row `row`, column `col`, which is number i of the result.
template <Along A, typename T>
__device__ __forceinline__ T *element(T *p, long long i, long long row, unsigned col,
                                      long long stride) {
  return p + (A == Along::kFlat ? i : row * stride + (A == Along::kRow ? col : 0));
}

// The same for the vector that begins there.
template <Along A, bool WHOLE, bool STREAM, typename T>
__device__ __forceinline__ auto vector(T *p, long long i, long long row, unsigned col,
                                       unsigned cols, long long stride) {
  constexpr int WIDTH = kw::kVecWidth<T>;
  if constexpr (A == Along::kFlat) {
    return kw::read<STREAM>(p + i);
  } else if constexpr (A == Along::kRow && WHOLE) {
    return kw::load<T, WIDTH>(p + row * stride + col);
  } else {
    kw::Vec<T, WIDTH> x;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      x[j] = *element<A>(p, i, row, col, stride);
      if (!WHOLE && ++col == cols) col = 0, ++row;
    }
    return x;
  }
}

template <typename F, typename T, Along X, Along OTHER, bool WHOLE, int BLOCK, int UNROLL,
          bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    elementwise_broadcast(T *x, T *other, T *y, long long rows, int cols, long long x_stride,
                          long long other_stride) {
  constexpr int WIDTH = kw::kVecWidth<T>, STEP = BLOCK * WIDTH, TILE = STEP * UNROLL;
  const long long start = (long long)blockIdx.x * TILE, row = start / cols;
  const unsigned first = start - row * cols;
  const int left = min(rows * cols - start, (long long)TILE);
  kw::Vec<T, WIDTH> in[UNROLL][2], out[1];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const int at = threadIdx.x * WIDTH + k * STEP;
    if (at + WIDTH > left) continue;
    const unsigned down = (first + at) / cols, col = first + at - down * cols;
    in[k][0] = vector<X, WHOLE, STREAM>(x, start + at, row + down, col, cols, x_stride);
    in[k][1] = vector<OTHER, WHOLE, STREAM>(other, start + at, row + down, col, cols, other_stride);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const int at = threadIdx.x * WIDTH + k * STEP;
    if (at + WIDTH > left) continue;
    kw::map_vector<F, T, WIDTH>(in[k], out);
    kw::write<STREAM>(y + start + at, out[0]);
  }
  const int at = left - left % WIDTH + threadIdx.x;  // the last block's, short of a vector
  if (at >= left) return;
  const unsigned down = (first + at) / cols, col = first + at - down * cols;
  T *const from[] = {element<X>(x, start + at, row + down, col, x_stride),
                     element<OTHER>(other, start + at, row + down, col, other_stride)};
  T *const to[] = {y + start + at};
  kw::map_element<F, T>(from, to);
}

// Result 0 is that of x; result 1 is added up over the rows. DOWN rows of 32 threads, a vector
// each.
template <typename F, typename T, int WIDTH, int DOWN, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(32 * DOWN)
    elementwise_broadcast_backward(const T *gy, const T *x, const T *other, T *gx, float *part,
                                   long long rows, int cols, long long share) {
  const int col = (blockIdx.x * 32 + threadIdx.x) * WIDTH;
  const long long end = min(rows, (blockIdx.y + 1) * share);
  float sum[WIDTH] = {};
  if (col < cols) {
    const auto shared = kw::load<T, WIDTH>(other + col);
    for (long long top = blockIdx.y * share + threadIdx.y; top < end; top += DOWN * UNROLL) {
      kw::Vec<T, WIDTH> in[UNROLL][3];
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        const long long row = top + k * DOWN;
        if (row >= end) continue;
        in[k][0] = kw::read<STREAM, T, WIDTH>(gy + row * cols + col);
        in[k][1] = kw::read<STREAM, T, WIDTH>(x + row * cols + col);
        in[k][2] = shared;
      }
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        const long long row = top + k * DOWN;
        if (row >= end) continue;
        float g[2][WIDTH];
        kw::map_floats<F, T, WIDTH>(in[k], g);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sum[i] += g[1][i];
        kw::write<STREAM>(gx + row * cols + col, kw::from_float<T, WIDTH>(g[0]));
      }
    }
  }
  kw::write_part<DOWN>(sum, part + blockIdx.y * (long long)cols + col, col < cols);
}

template <typename T>
__global__ void elementwise_broadcast_parts(const float *part, T *sum, int parts, int cols) {
  kw::add_parts(part, sum, parts, cols);
}

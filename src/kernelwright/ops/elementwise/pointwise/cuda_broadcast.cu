// Operands that broadcast, in 16-byte vectors of the result.
//
// Idea: the result is one sequence of vectors, independent of row ends. A row that is common to all
// rows, or an element common to a row, is read from the caches: as a vector if no vector crosses
// the end of a row (WHOLE), else element by element. Backward, for a common row: a block is a strip
// of columns, keeps the row in registers, iterates over rows and accumulates the row's gradient; a
// second kernel adds the rows of the blocks.
// Traffic: operands of the result's size read once, the result written once; in the backward also
// one row per block. PyTorch's backward writes and reads the products before it sums them.
// Compared with `cuda_grid2d`: several vectors in flight for rows of any length; columns and
// scalars.
// Limit: DRAM bandwidth; a row that ends inside a vector costs one L1 read per element.
#include "formulas.cuh"
#include "kw/parts.cuh"

enum class Along { kFlat, kRow, kElement };  // tiling.py

// The operand's element at row `row` and column `col`, for element i of the result.
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
  const int at = left - left % WIDTH + threadIdx.x;  // the rest of the last block
  if (at >= left) return;
  const unsigned down = (first + at) / cols, col = first + at - down * cols;
  T *const from[] = {element<X>(x, start + at, row + down, col, x_stride),
                     element<OTHER>(other, start + at, row + down, col, other_stride)};
  T *const to[] = {y + start + at};
  kw::map_element<F, T>(from, to);
}

// Result 0 is the gradient of x; result 1 is summed over the rows. DOWN rows of 32 threads, with
// one vector each.
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

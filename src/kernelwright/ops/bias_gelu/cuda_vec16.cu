// 16-byte vectors; the bias's gradient in one partial row a block, added up in a fixed order.
//
// Idea: the bias is a row that all rows share, and stays in the caches. In the backward a block is
// a strip of 32 vectors of columns by DOWN rows: a thread walks down its columns, writes the
// gradient of x and adds it up in registers; the block adds its DOWN rows of threads and writes
// one partial row, and a second kernel adds the partial rows.
// Traffic: x read once, y written once; backward gy and x read, gx written once, and a partial row
// a block, about a hundredth of that. PyTorch writes and reads the sum, and reads gx again.
// Over `triton_rows`: a thread's loads are in flight together, and gx is summed unrounded.
// Limit: DRAM; rows of a whole number of vectors.
#include "kw/bias_gelu.cuh"
#include "kw/launch.cuh"
#include "kw/parts.cuh"

template <typename T, bool TANH, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    bias_gelu_fwd_vec16(T *x, T *bias, T *y, long long rows, int cols, long long stride) {
  kw::map_rows<kw::BiasGelu<TANH>, T, BLOCK, UNROLL, STREAM, 1>({x, bias, y}, {stride, 0}, rows,
                                                                cols);
}

template <typename T, bool TANH, int DOWN, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(32 * DOWN)
    bias_gelu_bwd_vec16(const T *gy, const T *x, const T *bias, T *gx, float *part, long long rows,
                        int cols, long long gy_stride, long long x_stride, long long share) {
  constexpr int WIDTH = kw::kVecWidth<T>;
  using Vec = kw::Vec<T, WIDTH>;
  using F = kw::BiasGeluBackward<TANH>;
  const int col = (blockIdx.x * 32 + threadIdx.x) * WIDTH;
  const long long end = min(rows, (blockIdx.y + 1) * share);
  float sum[WIDTH] = {};
  if (col < cols) {
    const Vec b = kw::load<T, WIDTH>(bias + col);
    for (long long first = blockIdx.y * share + threadIdx.y; first < end; first += DOWN * UNROLL) {
      Vec in[UNROLL][3], out[1];
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        const long long row = first + k * DOWN;
        if (row >= end) continue;
        in[k][0] = kw::read<STREAM>(gy + row * gy_stride + col);
        in[k][1] = kw::read<STREAM>(x + row * x_stride + col);
        in[k][2] = b;
      }
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        const long long row = first + k * DOWN;
        if (row >= end) continue;
        float g[1][WIDTH];
        kw::map_floats<F, T, WIDTH>(in[k], g);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sum[i] += g[0][i];
        out[0] = kw::from_float<T, WIDTH>(g[0]);
        kw::write<STREAM>(gx + row * cols + col, out[0]);
      }
    }
  }
  kw::let_next_launch_start();
  kw::write_part<DOWN>(sum, part + blockIdx.y * (long long)cols + col, col < cols);
}

template <typename T>
__global__ void bias_gelu_bwd_parts(const float *part, T *gbias, int parts, int cols) {
  kw::wait_for_launch_before();  // for the parts
  kw::add_parts(part, gbias, parts, cols);
}

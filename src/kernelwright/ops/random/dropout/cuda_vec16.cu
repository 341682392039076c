// 16-byte vectors; random words are generated while they are loaded.
//
// Idea: dropout(x + bias) + residual and every part of it is one kernel with flags. A thread starts
// the loads of all its vectors, then computes the random words. With a bias the backward iterates
// over strips of 32 vectors of columns and accumulates the gradient as it writes it: one partial
// row per block, which a second kernel adds in a fixed order.
// Traffic: x and residual read once, y written once, and an eighth of a byte per element for a
// stored mask; backward: gy read once, gx written once, and partial rows of about a hundredth of
// that.
// Compared with `triton_octets`: several loads in flight, and no index computation per element.
// Limit: DRAM bandwidth; in 16-bit dtypes nearly issue slots. Rows of a whole number of octets.
#include "kw/dropout.cuh"
#include "kw/launch.cuh"
#include "kw/parts.cuh"

template <typename T, kw::Draw DRAW, bool BIAS, bool ADD, bool KEEP, int BLOCK, int UNROLL,
          bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    dropout_vec16(const T *x, const T *bias, const T *residual, const long long *seed,
                  const unsigned char *mask, T *y, unsigned char *kept, long long rows,
                  long long cols, long long x_stride, long long residual_stride, double p) {
  using Piece = kw::Piece<T>;
  constexpr int N = kw::kVecWidth<T>;
  const kw::Dropout<DRAW, N> dropout(seed, mask, p);
  const unsigned across = cols / N;  // pieces per row
  const long long start = (long long)blockIdx.x * (BLOCK * UNROLL);
  const long long row = start / across, left = rows * across - start;
  const unsigned first = start - row * across;
  Piece in[UNROLL], more[UNROLL], row_bias[UNROLL];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const unsigned v = threadIdx.x + k * BLOCK;
    if (v >= left) continue;
    const unsigned down = (first + v) / across;
    const long long col = (first + v - down * across) * (long long)N;
    in[k] = kw::read<STREAM>(x + (row + down) * x_stride + col);
    if constexpr (ADD) more[k] = kw::read<STREAM>(residual + (row + down) * residual_stride + col);
    if constexpr (BIAS) row_bias[k] = kw::read<false>(bias + col);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const unsigned v = threadIdx.x + k * BLOCK;
    if (v >= left) continue;
    const unsigned bits = dropout.bits(start + v);
    float out[N], b[N], r[N];
    kw::to_float(in[k], out);
    if constexpr (BIAS) kw::to_float(row_bias[k], b);
    if constexpr (ADD) kw::to_float(more[k], r);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (BIAS) out[i] += b[i];
      out[i] *= dropout.factor(bits, i);
      if constexpr (ADD) out[i] += r[i];
    }
    kw::write<STREAM>(y + (start + v) * N, kw::from_float<T>(out));
    if constexpr (KEEP) kw::keep_bits<N>(kept, start + v, start + left, bits);
  }
}

template <typename T, kw::Draw DRAW, int DOWN, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(32 * DOWN)
    dropout_bwd_vec16(const T *gy, const long long *seed, const unsigned char *mask, T *gx,
                      float *part, long long rows, int cols, long long stride, long long share,
                      double p) {
  using Piece = kw::Piece<T>;
  constexpr int N = kw::kVecWidth<T>;
  const kw::Dropout<DRAW, N> dropout(seed, mask, p);
  const int piece = blockIdx.x * 32 + threadIdx.x, across = cols / N;
  const long long end = min(rows, (blockIdx.y + 1) * share);
  float sum[N] = {};
  if (piece < across) {
    for (long long first = blockIdx.y * share + threadIdx.y; first < end; first += DOWN * UNROLL) {
      Piece in[UNROLL];
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        const long long row = first + k * DOWN;
        if (row < end) in[k] = kw::read<STREAM>(gy + row * stride + piece * N);
      }
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        const long long row = first + k * DOWN;
        if (row >= end) continue;
        const unsigned bits = dropout.bits(row * across + piece);
        float g[N];
        kw::to_float(in[k], g);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          g[i] *= dropout.factor(bits, i);
          sum[i] += g[i];
        }
        kw::write<STREAM>(gx + row * cols + piece * N, kw::from_float<T>(g));
      }
    }
  }
  kw::let_next_launch_start();
  kw::write_part<DOWN>(sum, part + blockIdx.y * (long long)cols + piece * N, piece < across);
}

template <typename T>
__global__ void dropout_bwd_parts(const float *part, T *gbias, int parts, int cols) {
  kw::wait_for_launch_before();  // for the partial sums
  kw::add_parts(part, gbias, parts, cols);
}

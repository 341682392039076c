// A row in the registers of a block, 16 bytes at a time.
//
// Idea: a thread holds PIECES vectors of its row and of the residual, loaded together; mean and
// squared deviations are reduced over the block, and random words are generated while other warps
// wait. In the backward a fixed number of blocks iterate over the rows: the next row is loaded
// before this row's barrier, both sums are reduced together, weight and bias are floats in shared
// memory, and parts of gweight and gbias stay in registers. A second kernel adds them in a fixed
// order.
// Traffic: forward: x and residual read once, y written once; backward: gy, x and residual read
// once, gx and gresidual written once, and partial sums of blocks x columns.
// Compared with `triton_row`: 16-byte vectors in flight while a row is processed.
// Limit: the registers of one multiprocessor; rows of a whole number of octets.
#include "chain.cuh"
#include "kw/launch.cuh"
#include "kw/parts.cuh"

template <typename C, int PIECES, int THREADS>
__global__ void __launch_bounds__(THREADS)
    chain_fwd_block(const typename C::T *x, const typename C::T *residual, const typename C::W *w,
                    const typename C::W *b, const long long *seed, typename C::T *y, float *means,
                    float *rstds, long long n_rows, long long n_cols_, long long x_stride,
                    long long residual_stride, double p, float eps, int given) {
  using T = typename C::T;
  using Piece = kw::Piece<T>;
  constexpr int N = kw::kVecWidth<T>, kWarps = THREADS / 32;
  __shared__ float parts[2][kWarps];
  const int n_cols = static_cast<int>(n_cols_);
  const long long row = blockIdx.x;
  const kw::Dropout<C::kDraw, N> dropout(seed, nullptr, p);

  Piece held[PIECES], more[PIECES];
  float sum = 0.0f;
#pragma unroll
  for (int v = 0; v < PIECES; ++v) {
    const int col = (v * THREADS + threadIdx.x) * N;
    if (col >= n_cols) continue;
    held[v] = kw::read<false>(x + row * x_stride + col);
    more[v] = kw::read<false>(residual + row * residual_stride + col);
  }
#pragma unroll
  for (int v = 0; v < PIECES; ++v) {
    if ((v * THREADS + threadIdx.x) * N >= n_cols) continue;
    float f[N], of_piece = 0.0f;
    kw::to_float(held[v], f);
#pragma unroll
    for (int i = 0; i < N; ++i) of_piece += f[i];
    sum += of_piece;
  }
  sum = kw::warp_reduce<kw::Sum>(sum);
  if (threadIdx.x % 32 == 0) parts[0][threadIdx.x / 32] = sum;
  __syncthreads();
  const float mean = kw::reduce_parts<kWarps>(parts[0]) / n_cols;

  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < PIECES; ++v) {
    if ((v * THREADS + threadIdx.x) * N >= n_cols) continue;
    float f[N], of_piece = 0.0f;
    kw::to_float(held[v], f);
#pragma unroll
    for (int i = 0; i < N; ++i) of_piece += (f[i] - mean) * (f[i] - mean);
    squares += of_piece;
  }
  squares = kw::warp_reduce<kw::Sum>(squares);
  if (threadIdx.x % 32 == 0) parts[1][threadIdx.x / 32] = squares;
  __syncthreads();
  const float rstd = rsqrtf(kw::reduce_parts<kWarps>(parts[1]) / n_cols + eps);
  if (threadIdx.x == 0) means[row] = mean, rstds[row] = rstd;

#pragma unroll
  for (int v = 0; v < PIECES; ++v) {
    const int piece = v * THREADS + threadIdx.x, col = piece * N;
    if (col >= n_cols) continue;
    const unsigned bits = dropout.bits(row * (n_cols / N) + piece);
    float f[N], r[N], wf[N], bf[N];
    kw::to_float(held[v], f);
    kw::to_float(more[v], r);
    kw::piece_parameters(w, b, given, col, wf, bf);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float s = (f[i] - mean) * rstd * wf[i] + bf[i] + r[i];
      f[i] = kw::gelu<T, C::kTanh>(s * dropout.factor(bits, i));
    }
    kw::write<false>(y + row * n_cols + col, kw::from_float<T>(f));
  }
}

// WHOLE: a row fills the pieces of its threads. DENSE: no gaps between rows. BLOCKS: per
// multiprocessor. `share` is 1 / n_cols.
template <typename C, int PIECES, int THREADS, int BLOCKS, bool WHOLE, bool DENSE>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    chain_bwd_block(const typename C::T *gy, const typename C::T *x, const typename C::T *residual,
                    const typename C::W *w, const typename C::W *b, const float *means,
                    const float *rstds, const long long *seed, typename C::T *gx, typename C::T *gr,
                    float *gw_parts, float *gb_parts, long long n_rows, long long n_cols_,
                    long long gy_stride, long long x_stride, long long residual_stride, double p,
                    int given, float share) {
  using T = typename C::T;
  using Piece = kw::Piece<T>;
  constexpr int N = kw::kVecWidth<T>, kApart = THREADS * N;  // distance of a thread's pieces
  extern __shared__ uint4 dynamic_shared[];
  __shared__ float parts[2][2 * (THREADS / 32)];
  const int n_cols = static_cast<int>(n_cols_), across = n_cols / N, lane = threadIdx.x;
  const auto missing = [&](int v) { return !WHOLE && v * THREADS + lane >= across; };
  const kw::WarpFactors<C::kDraw, N> dropout(seed, nullptr, p);
  const float scale = dropout.scale;
  float gw[PIECES][N] = {}, gb[PIECES][N] = {};

  // weight and bias, times the scale of dropout
  using Planes = kw::Planes<N, THREADS>;
  auto *const planes = reinterpret_cast<typename Planes::Quad *>(dynamic_shared) + lane;
  const Planes weights{planes}, biases{planes + Planes::kQuads * PIECES * THREADS};
  kw::keep_parameters<PIECES>(w, b, given, scale, weights, biases, missing);

  const unsigned rows = n_rows, step = gridDim.x;
  unsigned row = blockIdx.x;
  const long long apart = step * n_cols_;
  long long at = row * n_cols_ + lane * N;  // of the thread in this row, if rows are dense
  // Even lanes hold the mean, odd lanes rstd. If all lanes read the same address, the compiler
  // would load it to a uniform register, which it would have to wait for immediately.
  const float *const statistics = lane % 2 ? rstds : means;
  float next_statistic;
  Piece next[3][PIECES];
  const auto fetch = [&](unsigned row, long long at) {
    next_statistic = statistics[row];
#pragma unroll
    for (int v = 0; v < PIECES; ++v) {
      if (missing(v)) continue;
      const int col = lane * N + v * kApart;
      const auto place = [&](long long stride) {
        return DENSE ? at + v * kApart : row * stride + col;
      };
      next[0][v] = kw::read<true>(gy + place(gy_stride));
      next[1][v] = kw::read<true>(x + place(x_stride));
      next[2][v] = kw::read<true>(residual + place(residual_stride));
    }
  };
  fetch(row, at);
  for (int turn = 0; row < rows; row += step, at += apart, turn ^= 1) {
    const float mean = __shfl_sync(0xffffffffu, next_statistic, 0);
    const float rstd = __shfl_sync(0xffffffffu, next_statistic, 1);
    float g[PIECES][N], xhat[PIECES][N], dot = 0.0f, sum = 0.0f;
#pragma unroll
    for (int v = 0; v < PIECES; ++v) {
      if (missing(v)) continue;
      float gs[N], r[N], wf[N], bf[N];
      kw::to_float(next[0][v], gs);
      dropout.drop(row * across + lane + v * THREADS, gs);
      kw::to_float(next[1][v], xhat[v]);
      kw::to_float(next[2][v], r);
      weights.get(v, wf), biases.get(v, bf);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        xhat[v][i] = (xhat[v][i] - mean) * rstd;
        const float d = fmaf(r[i], scale, fmaf(xhat[v][i], wf[i], bf[i]));
        // float32's slope: the differences below would amplify the error of a 16-bit one
        const float of_s = gs[i] * kw::gelu_slope<float, C::kTanh>(d);
        gs[i] = of_s * scale, g[v][i] = of_s * wf[i];
        gw[v][i] += gs[i] * xhat[v][i];
        gb[v][i] += gs[i];
        dot += g[v][i] * xhat[v][i];
        sum += g[v][i];
      }
      kw::write<true>(gr + at + v * kApart, kw::from_float<T>(gs));
    }
    if (row + step < rows) fetch(row + step, at + apart);
    const float2 sums = kw::block_sums<THREADS>(dot, sum, parts[turn]);
    dot = rstd * (sums.x * share), sum = rstd * (sums.y * share);
#pragma unroll
    for (int v = 0; v < PIECES; ++v) {
      if (missing(v)) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) g[v][i] = fmaf(rstd, g[v][i], -fmaf(xhat[v][i], dot, sum));
      kw::write<true>(gx + at + v * kApart, kw::from_float<T>(g[v]));
    }
  }
  kw::let_next_launch_start();
#pragma unroll
  for (int v = 0; v < PIECES; ++v) {
    if (missing(v)) continue;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const long long at = blockIdx.x * n_cols_ + lane * N + v * kApart + i;
      const kw::Vec<float, 4> a = {gw[v][i], gw[v][i + 1], gw[v][i + 2], gw[v][i + 3]};
      const kw::Vec<float, 4> c = {gb[v][i], gb[v][i + 1], gb[v][i + 2], gb[v][i + 3]};
      if (given & kw::kWeight) kw::store(gw_parts + at, a);
      if (given & kw::kBias) kw::store(gb_parts + at, c);
    }
  }
}

// blockIdx.y selects the parameter.
template <typename W>
__global__ void __launch_bounds__(1024)
    chain_bwd_parts(const float *first_parts, const float *last_parts, W *first_sum, W *last_sum,
                    int parts, int cols) {
  kw::wait_for_launch_before();  // for the partial sums
  kw::add_parts<32>(blockIdx.y ? last_parts : first_parts, blockIdx.y ? last_sum : first_sum, parts,
                    cols);
}

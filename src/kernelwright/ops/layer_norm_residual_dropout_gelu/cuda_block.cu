// A row in a block's registers, eight neighbours at a time.
//
// Idea: a thread holds OCTETS octets of its row and of the residual, loaded together; the row's
// mean and its squares about that mean cross the block, and the random words are drawn while others
// wait. Backward: a fixed number of blocks walk over the rows; the next row's vectors are loaded
// before this row's barrier, both sums cross the block at once, and a thread keeps its columns'
// part of gweight and gbias in registers. A second kernel adds the parts in a fixed order.
// Traffic: forward x, residual read, y written once; backward gy, x, residual read, gx and
// gresidual written once, and parts of blocks x columns. Over `triton_row`: 16-byte vectors on
// their way while a row is in work. Limit: the registers of one multiprocessor; rows of a whole
// number of octets.
#include "kw/chain.cuh"
#include "kw/parts.cuh"

template <typename C, int OCTETS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    chain_fwd_block(const typename C::T *x, const typename C::T *residual, const typename C::W *w,
                    const typename C::W *b, const long long *seed, typename C::T *y, float *means,
                    float *rstds, long long n_rows, long long n_cols_, long long x_stride,
                    long long residual_stride, double p, float eps, int given) {
  using T = typename C::T;
  using Octet = kw::Octet<T>;
  constexpr int kWarps = THREADS / 32;
  __shared__ float parts[2][kWarps];
  const int n_cols = static_cast<int>(n_cols_);
  const long long row = blockIdx.x;
  const kw::Dropout<C::kDraw> dropout(seed, nullptr, p);

  Octet held[OCTETS], more[OCTETS];
  float sum = 0.0f;
#pragma unroll
  for (int v = 0; v < OCTETS; ++v) {
    const int col = (v * THREADS + threadIdx.x) * kw::kOctet;
    if (col >= n_cols) continue;
    held[v] = Octet::template read<false>(x + row * x_stride + col);
    more[v] = Octet::template read<false>(residual + row * residual_stride + col);
  }
#pragma unroll
  for (int v = 0; v < OCTETS; ++v) {
    if ((v * THREADS + threadIdx.x) * kw::kOctet >= n_cols) continue;
    float f[kw::kOctet], of_octet = 0.0f;
    held[v].floats(f);
#pragma unroll
    for (int i = 0; i < kw::kOctet; ++i) of_octet += f[i];
    sum += of_octet;
  }
  sum = kw::warp_reduce<kw::Sum>(sum);
  if (threadIdx.x % 32 == 0) parts[0][threadIdx.x / 32] = sum;
  __syncthreads();
  const float mean = kw::reduce_parts<kWarps>(parts[0]) / n_cols;

  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < OCTETS; ++v) {
    if ((v * THREADS + threadIdx.x) * kw::kOctet >= n_cols) continue;
    float f[kw::kOctet], of_octet = 0.0f;
    held[v].floats(f);
#pragma unroll
    for (int i = 0; i < kw::kOctet; ++i) of_octet += (f[i] - mean) * (f[i] - mean);
    squares += of_octet;
  }
  squares = kw::warp_reduce<kw::Sum>(squares);
  if (threadIdx.x % 32 == 0) parts[1][threadIdx.x / 32] = squares;
  __syncthreads();
  const float rstd = rsqrtf(kw::reduce_parts<kWarps>(parts[1]) / n_cols + eps);
  if (threadIdx.x == 0) means[row] = mean, rstds[row] = rstd;

#pragma unroll
  for (int v = 0; v < OCTETS; ++v) {
    const int octet = v * THREADS + threadIdx.x, col = octet * kw::kOctet;
    if (col >= n_cols) continue;
    const unsigned bits = dropout.bits(row * (n_cols / kw::kOctet) + octet);
    float f[kw::kOctet], r[kw::kOctet], wf[kw::kOctet], bf[kw::kOctet];
    held[v].floats(f);
    more[v].floats(r);
    kw::octet_parameters(w, b, given, col, wf, bf);
#pragma unroll
    for (int i = 0; i < kw::kOctet; ++i) {
      const float s = (f[i] - mean) * rstd * wf[i] + bf[i] + r[i];
      f[i] = kw::gelu<T, C::kTanh>(s * dropout.factor(bits, i));
    }
    Octet::template write<false>(y + row * n_cols + col, f);
  }
}

template <typename C, int OCTETS, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    chain_bwd_block(const typename C::T *gy, const typename C::T *x, const typename C::T *residual,
                    const typename C::W *w, const typename C::W *b, const float *means,
                    const float *rstds, const long long *seed, typename C::T *gx, typename C::T *gr,
                    float *gw_parts, float *gb_parts, long long n_rows, long long n_cols_,
                    long long gy_stride, long long x_stride, long long residual_stride, double p,
                    int given) {
  using T = typename C::T;
  using Octet = kw::Octet<T>;
  constexpr int N = kw::kOctet;
  __shared__ float parts[2][2 * (THREADS / 32)];
  const int n_cols = static_cast<int>(n_cols_), across = n_cols / N;
  const kw::Factors factors(kw::Dropout<C::kDraw>(seed, nullptr, p));
  const float share = 1.0f / n_cols;
  float gw[OCTETS][N] = {}, gb[OCTETS][N] = {};

  Octet next[3][OCTETS];
  // Even lanes hold the mean, odd ones rstd: of an address that a warp shares the compiler would
  // want the value at once, in a register of the warp.
  const float *const statistics = threadIdx.x % 2 ? rstds : means;
  float next_statistic = 0.0f;
  const auto fetch = [&](long long row) {
    if (row >= n_rows) return;
    next_statistic = statistics[row];
#pragma unroll
    for (int v = 0; v < OCTETS; ++v) {
      const int col = (v * THREADS + threadIdx.x) * N;
      if (col >= n_cols) continue;
      next[0][v] = Octet::template read<true>(gy + row * gy_stride + col);
      next[1][v] = Octet::template read<true>(x + row * x_stride + col);
      next[2][v] = Octet::template read<true>(residual + row * residual_stride + col);
    }
  };
  fetch(blockIdx.x);
  int turn = 0;
  for (long long row = blockIdx.x; row < n_rows; row += gridDim.x, turn ^= 1) {
    const float mean = __shfl_sync(0xffffffffu, next_statistic, 0);
    const float rstd = __shfl_sync(0xffffffffu, next_statistic, 1);
    float g[OCTETS][N], xhat[OCTETS][N], dot = 0.0f, sum = 0.0f;
#pragma unroll
    for (int v = 0; v < OCTETS; ++v) {
      const int octet = v * THREADS + threadIdx.x, col = octet * N;
      if (octet >= across) continue;
      float factor[N], r[N], wf[N], bf[N];
      factors.get(row * across + octet, factor);
      next[0][v].floats(g[v]);
      next[1][v].floats(xhat[v]);
      next[2][v].floats(r);
      kw::octet_parameters(w, b, given, col, wf, bf);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        xhat[v][i] = (xhat[v][i] - mean) * rstd;
        const float f = factor[i], s = xhat[v][i] * wf[i] + bf[i] + r[i];
        // float32's slope: the differences below would bring out a 16-bit one's error
        g[v][i] *= f * kw::gelu_slope<float, C::kTanh>(s * f);
        gw[v][i] += g[v][i] * xhat[v][i];
        gb[v][i] += g[v][i];
      }
      Octet::template write<true>(gr + row * n_cols + col, g[v]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        g[v][i] *= wf[i];
        dot += g[v][i] * xhat[v][i];
        sum += g[v][i];
      }
    }
    fetch(row + gridDim.x);
    const float2 sums = kw::block_sums<THREADS>(dot, sum, parts[turn]);
    dot = sums.x * share, sum = sums.y * share;
#pragma unroll
    for (int v = 0; v < OCTETS; ++v) {
      const int col = (v * THREADS + threadIdx.x) * N;
      if (col >= n_cols) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) g[v][i] = rstd * (g[v][i] - xhat[v][i] * dot - sum);
      Octet::template write<true>(gx + row * n_cols + col, g[v]);
    }
  }
#pragma unroll
  for (int v = 0; v < OCTETS; ++v) {
    const int col = (v * THREADS + threadIdx.x) * N;
    if (col >= n_cols) continue;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const long long at = blockIdx.x * n_cols_ + col + i;
      const kw::Vec<float, 4> a = {gw[v][i], gw[v][i + 1], gw[v][i + 2], gw[v][i + 3]};
      const kw::Vec<float, 4> c = {gb[v][i], gb[v][i + 1], gb[v][i + 2], gb[v][i + 3]};
      if (given & kw::kWeight) kw::store(gw_parts + at, a);
      if (given & kw::kBias) kw::store(gb_parts + at, c);
    }
  }
}

// blockIdx.y: which parameter.
template <typename W>
__global__ void __launch_bounds__(1024)
    chain_bwd_parts(const float *first_parts, const float *last_parts, W *first_sum, W *last_sum,
                    int parts, int cols) {
  kw::add_parts<32>(blockIdx.y ? last_parts : first_parts, blockIdx.y ? last_sum : first_sum, parts,
                    cols);
}

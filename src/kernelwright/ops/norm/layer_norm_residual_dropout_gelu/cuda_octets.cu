// Several vectors per thread, for fewer instructions per element.
//
// Idea: in the time in which three 16-bit tensors are copied there are 46 issue slots per element,
// and ten rounds of Philox with a gelu take some 20. Everything else is therefore done once: a
// thread holds PIECES vectors, unpacks each value once and keeps its distance from the mean;
// reductions, seed and dropout's parameters are shared by its vectors; a random word is compared as
// it is generated, and no bits are packed. Rows of at most 32 threads need no barrier; ROWS of them
// share a block.
// Traffic: x and residual read once, y written once.
// Compared with `cuda_block`: half as many instructions, and more bytes per thread in flight.
// Limit: nearly issue slots in 16-bit dtypes; DRAM bandwidth in float32.
#include "chain.cuh"

// WHOLE: a row fills the pieces of its threads. `share` is 1 / n_cols.
template <typename C, int PIECES, int THREADS, int ROWS, bool WHOLE>
__global__ void __launch_bounds__(THREADS *ROWS)
    chain_fwd_octets(const typename C::T *x, const typename C::T *residual, const typename C::W *w,
                     const typename C::W *b, const long long *seed, typename C::T *y, float *means,
                     float *rstds, long long n_rows, long long n_cols_, long long x_stride,
                     long long residual_stride, double p, float eps, int given, float share) {
  using T = typename C::T;
  using Piece = kw::Piece<T>;
  constexpr int N = kw::kVecWidth<T>;
  __shared__ float parts[2][THREADS / 32];
  const int n_cols = static_cast<int>(n_cols_), across = n_cols / N;
  const long long row = (long long)blockIdx.x * ROWS + threadIdx.y;
  if (ROWS > 1 && row >= n_rows) return;
  const kw::Factors factors(kw::Dropout<C::kDraw, N>(seed, nullptr, p));

  Piece held[PIECES], more[PIECES];
#pragma unroll
  for (int v = 0; v < PIECES; ++v) {
    const int piece = v * THREADS + threadIdx.x;
    if (!WHOLE && piece >= across) continue;
    held[v] = kw::read<true>(x + row * x_stride + piece * N);
    more[v] = kw::read<true>(residual + row * residual_stride + piece * N);
  }
  float f[PIECES][N], sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int v = 0; v < PIECES; ++v) {
    if (!WHOLE && v * THREADS + threadIdx.x >= across) continue;
    kw::to_float(held[v], f[v]);
    float of_piece = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) of_piece += f[v][i];
    sum += of_piece;
  }
  const float mean = kw::row_sum<THREADS>(sum, parts[0]) * share;
#pragma unroll
  for (int v = 0; v < PIECES; ++v) {
    if (!WHOLE && v * THREADS + threadIdx.x >= across) continue;
    float of_piece = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      f[v][i] -= mean;
      of_piece += f[v][i] * f[v][i];
    }
    squares += of_piece;
  }
  const float rstd = rsqrtf(kw::row_sum<THREADS>(squares, parts[1]) * share + eps);
  if (threadIdx.x == 0) means[row] = mean, rstds[row] = rstd;
#pragma unroll
  for (int v = 0; v < PIECES; ++v) {
    const int piece = v * THREADS + threadIdx.x;
    if (!WHOLE && piece >= across) continue;
    float factor[N], r[N], wf[N], bf[N];
    factors.get(row * across + piece, factor);
    kw::to_float(more[v], r);
    kw::piece_parameters(w, b, given, piece * N, wf, bf);
#pragma unroll
    for (int i = 0; i < N; ++i)
      f[v][i] = kw::gelu<T, C::kTanh>((f[v][i] * rstd * wf[i] + bf[i] + r[i]) * factor[i]);
    kw::write<true>(y + row * n_cols + piece * N, kw::from_float<T>(f[v]));
  }
}

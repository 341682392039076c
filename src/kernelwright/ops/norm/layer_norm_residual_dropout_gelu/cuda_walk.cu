// Blocks iterate over the rows, several vectors per thread, with the next row in flight.
//
// Idea: as `cuda_octets`, but the work that does not depend on the row is done once for all rows of
// a block: weight and bias become floats in shared memory; the seed, 1 - p and addresses are
// computed. cp.async copies the next row to slots of each thread, which are refilled as soon as
// they have been read, so that the loop never waits for memory. With registers it would: the
// compiler copies values that a loop carries over, and a copy waits for its load.
// Traffic: x and residual read once, y written once.
// Compared with `cuda_octets`: a quarter fewer instructions.
// Limit: nearly DRAM bandwidth.
#include "kw/async.cuh"
#include "chain.cuh"

// A thread's pieces of a row of one tensor, as they arrive: STEP threads of a block have slots.
template <typename T, int STEP> struct Slots {
  using Piece = kw::Piece<T>;
  Piece *first;

  __device__ __forceinline__ void start(int v, const T *from) const {
    kw::copy_async(first + v * STEP, reinterpret_cast<const Piece *>(from));
  }
  __device__ __forceinline__ void floats(int v, float (&f)[kw::kVecWidth<T>]) const {
    kw::to_float(first[v * STEP], f);
  }
};

// WHOLE: a row fills its threads' pieces. BLOCKS: per multiprocessor. `share` is 1 / n_cols.
template <typename C, int PIECES, int THREADS, int ROWS, int BLOCKS, bool WHOLE>
__global__ void __launch_bounds__(THREADS *ROWS, BLOCKS)
    chain_fwd_walk(const typename C::T *x, const typename C::T *residual, const typename C::W *w,
                   const typename C::W *b, const long long *seed, typename C::T *y, float *means,
                   float *rstds, long long n_rows, long long n_cols_, long long x_stride,
                   long long residual_stride, double p, float eps, int given, float share) {
  using T = typename C::T;
  using Piece = kw::Piece<T>;
  using Own = Slots<T, THREADS * ROWS>;
  constexpr int N = kw::kVecWidth<T>, kApart = THREADS * N;  // distance of a thread's pieces
  extern __shared__ uint4 dynamic_shared[];
  __shared__ float parts[2][THREADS / 32];
  const int n_cols = static_cast<int>(n_cols_), across = n_cols / N, lane = threadIdx.x;
  const auto missing = [&](int v) { return !WHOLE && v * THREADS + lane >= across; };

  Piece *const slots = reinterpret_cast<Piece *>(dynamic_shared) + threadIdx.y * THREADS + lane;
  constexpr int kSlots = PIECES * THREADS * ROWS;
  const Own of_x{slots}, of_residual{slots + kSlots};
  const long long step = (long long)gridDim.x * ROWS;
  long long row = (long long)blockIdx.x * ROWS + threadIdx.y;
  unsigned piece = static_cast<unsigned>(row) * across + lane;
  x += row * x_stride + lane * N, residual += row * residual_stride + lane * N;
  y += row * n_cols + lane * N;
#pragma unroll
  for (int v = 0; v < PIECES; ++v)
    if (row < n_rows && !missing(v)) of_x.start(v, x + v * kApart);
  kw::copy_async_commit();
#pragma unroll
  for (int v = 0; v < PIECES; ++v)
    if (row < n_rows && !missing(v)) of_residual.start(v, residual + v * kApart);
  kw::copy_async_commit();

  const kw::WarpFactors<C::kDraw, N> dropout(seed, nullptr, p);
  const float half_scale = 0.5f * dropout.scale;  // half, for gelu_twice
  using Planes = kw::Planes<N, THREADS>;
  auto *const planes =
      reinterpret_cast<typename Planes::Quad *>(dynamic_shared) + 2 * kSlots + lane;
  const Planes weights{planes}, biases{planes + Planes::kQuads * PIECES * THREADS};
  if (threadIdx.y == 0)
    kw::keep_parameters<PIECES>(w, b, given, half_scale, weights, biases, missing);
  __syncthreads();

  for (; row < n_rows; row += step) {
    const bool again = row + step < n_rows;
    x += step * x_stride, residual += step * residual_stride;
    float f[PIECES][N], sum = 0.0f, squares = 0.0f;
    kw::copy_async_wait_all_but<1>();
#pragma unroll
    for (int v = 0; v < PIECES; ++v) {
      if (missing(v)) continue;
      of_x.floats(v, f[v]);
      float of_piece = 0.0f;
#pragma unroll
      for (int i = 0; i < N; ++i) of_piece += f[v][i];
      sum += of_piece;
    }
#pragma unroll
    for (int v = 0; v < PIECES; ++v)
      if (again && !missing(v)) of_x.start(v, x + v * kApart);
    kw::copy_async_commit();
    const float mean = kw::row_sum<THREADS>(sum, parts[0]) * share;
#pragma unroll
    for (int v = 0; v < PIECES; ++v) {
      if (missing(v)) continue;
      float of_piece = 0.0f;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        f[v][i] -= mean;
        of_piece += f[v][i] * f[v][i];
      }
      squares += of_piece;
    }
    const float rstd = rsqrtf(kw::row_sum<THREADS>(squares, parts[1]) * share + eps);
    if (lane == 0) means[row] = mean, rstds[row] = rstd;
    kw::copy_async_wait_all_but<1>();
#pragma unroll
    for (int v = 0; v < PIECES; ++v) {
      if (missing(v)) continue;
      float r[N], wf[N], bf[N];
      of_residual.floats(v, r);
      if (again) of_residual.start(v, residual + v * kApart);
      weights.get(v, wf), biases.get(v, bf);
#pragma unroll
      for (int i = 0; i < N; ++i)
        f[v][i] = fmaf(r[i], half_scale, fmaf(f[v][i] * rstd, wf[i], bf[i]));
      dropout.drop(piece + v * THREADS, f[v]);
#pragma unroll
      for (int i = 0; i < N; ++i) f[v][i] = kw::gelu_twice<T, C::kTanh>(f[v][i]);
      kw::write<false>(y + v * kApart, kw::from_float<T>(f[v]));
    }
    kw::copy_async_commit();
    y += step * n_cols, piece += static_cast<unsigned>(step) * across;
  }
}

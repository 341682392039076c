// Vectors one after another, and words that are compared as they are drawn.
//
// Idea: `cuda_vec16` in fewer instructions. Each word selects a factor where it is; the seed is a
// number of the warp, whose scalar unit adds the keys up; a thread divides once to find its row,
// and takes STEPS times a piece, in float32 two. Few registers keep many warps at it, so that some
// draw while others wait.
// Traffic: x, residual read, y written once, an eighth of a byte of mask where one is kept;
// backward gy read, gx written once, and partial rows of about a hundredth of that.
// Over `cuda_vec16`: three fifths of its instructions, which in 16-bit dtypes are what binds it.
// Limit: DRAM. Rows of a whole number of octets, fewer than 2^31 vectors in all.
#include "kw/dropout.cuh"
#include "kw/launch.cuh"
#include "kw/parts.cuh"

// RESIDENT: blocks whose registers an SM holds. DENSE: no gaps between rows.
template <typename T, kw::Draw DRAW, bool BIAS, bool ADD, bool KEEP, bool DENSE, int BLOCK,
          int STEPS, bool STREAM, int RESIDENT>
__global__ void __launch_bounds__(BLOCK, RESIDENT)
    dropout_octets(const T *x, const T *bias, const T *residual, const long long *seed,
                   const unsigned char *mask, T *y, unsigned char *kept, long long rows,
                   long long cols, long long x_stride, long long residual_stride, double p) {
  using Piece = kw::Piece<T>;
  constexpr long long N = kw::kVecWidth<T>;
  constexpr int STEP = kw::kOctet / N;  // pieces of a step, a block apart: as many bytes in any T
  constexpr int TILE = BLOCK * STEP * STEPS;
  const unsigned across = cols / N, pieces = rows * across, start = blockIdx.x * TILE;
  const unsigned down = BLOCK / across, right = BLOCK - down * across;  // between two pieces
  unsigned piece = start + threadIdx.x, row = piece / across, col = piece - row * across;
  Piece in[STEP], more[STEP], shared[STEP];

  // The step's pieces that there are; row and col go on to the next step.
  const auto load = [&](bool whole) {
#pragma unroll
    for (int k = 0; k < STEP; ++k) {
      const unsigned at = piece + k * BLOCK;
      if (whole || at < pieces) {
        in[k] = kw::read<STREAM>(x + (DENSE ? at * N : row * x_stride + col * N));
        if constexpr (ADD)
          more[k] = kw::read<STREAM>(residual + (DENSE ? at * N : row * residual_stride + col * N));
        if constexpr (BIAS) shared[k] = kw::read<false>(bias + col * N);
      }
      row += down, col += right;
      if (col >= across) col -= across, ++row;
    }
  };
  const auto finish = [&](const kw::WarpFactors<DRAW, N> &factors, unsigned at, int k) {
    float factor[N], out[N], b[N], r[N];
    const unsigned bits = factors.get(at, factor);
    kw::to_float(in[k], out);
    if constexpr (BIAS) kw::to_float(shared[k], b);
    if constexpr (ADD) kw::to_float(more[k], r);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (BIAS) out[i] += b[i];
      out[i] *= factor[i];
      if constexpr (ADD) out[i] += r[i];
    }
    kw::write<STREAM>(y + at * N, kw::from_float<T>(out));
    if constexpr (KEEP) kw::keep_bits<N>(kept, at, pieces, bits);
  };
  const auto walk = [&](bool whole) {
    load(whole);  // before the seed is waited for
    const kw::WarpFactors<DRAW, N> factors(seed, mask, p);
#pragma unroll 1
    for (int s = 0; s < STEPS; ++s, piece += STEP * BLOCK) {
      if (s > 0) load(whole);
#pragma unroll
      for (int k = 0; k < STEP; ++k)
        if (whole || piece + k * BLOCK < pieces) finish(factors, piece + k * BLOCK, k);
    }
  };
  if (pieces - start >= TILE)
    walk(true);  // threads of a warp stay together, as scalar work asks
  else
    walk(false);
}

// Blocks begin `apart` rows from each other, take steps of `step` rows, as many at once as make an
// octet, and end after `span` rows.
template <typename T, kw::Draw DRAW, int DOWN, bool STREAM, int RESIDENT>
__global__ void __launch_bounds__(32 * DOWN, RESIDENT)
    dropout_bwd_octets(const T *gy, const long long *seed, const unsigned char *mask, T *gx,
                       float *part, int rows, int cols, long long stride, int apart, int step,
                       int span, double p) {
  using Piece = kw::Piece<T>;
  constexpr int N = kw::kVecWidth<T>, ROWS = kw::kOctet / N;
  const kw::WarpFactors<DRAW, N> factors(seed, mask, p);
  const unsigned piece = blockIdx.x * 32 + threadIdx.x, across = cols / N;
  const unsigned begin = blockIdx.y * apart, end = min(unsigned(rows), begin + span);
  float sum[N] = {};
  if (piece < across) {
#pragma unroll 1
    for (unsigned first = begin + threadIdx.y; first < end; first += ROWS * step) {
      Piece in[ROWS];
#pragma unroll
      for (int k = 0; k < ROWS; ++k) {
        const unsigned row = first + k * step;
        if (row < end) in[k] = kw::read<STREAM>(gy + row * stride + piece * N);
      }
#pragma unroll
      for (int k = 0; k < ROWS; ++k) {
        const unsigned row = first + k * step;
        if (row >= end) continue;
        float factor[N], g[N];
        factors.get(row * across + piece, factor);
        kw::to_float(in[k], g);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          g[i] *= factor[i];
          sum[i] += g[i];
        }
        kw::write<STREAM>(gx + row * (long long)cols + piece * N, kw::from_float<T>(g));
      }
    }
  }
  kw::let_next_launch_start();
  kw::write_part<DOWN>(sum, part + blockIdx.y * (long long)cols + piece * N, piece < across);
}

template <typename T>
__global__ void dropout_octets_parts(const float *part, T *gbias, int parts, int cols) {
  kw::wait_for_launch_before();  // for the parts
  kw::add_parts<32>(part, gbias, parts, cols);
}

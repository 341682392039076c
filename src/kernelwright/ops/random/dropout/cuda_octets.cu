// Vectors one after another, and words that are compared as they are generated.
//
// Idea: `cuda_vec16` with fewer instructions. Each word directly selects a factor; the seed is in
// uniform registers, where the scalar unit computes the keys; a thread divides once to find its
// row, and processes STEPS times one piece, in float32 two. Few registers allow many warps, so that
// some compute while others wait; in the backward of a bias the next rows are loaded meanwhile.
// Traffic: x and residual read once, y written once, and an eighth of a byte per element for a
// stored mask; backward: gy read once, gx written once, and partial rows of about a hundredth of
// that.
// Compared with `cuda_vec16`: three fifths of the instructions, which limit it in 16-bit dtypes.
// Limit: DRAM bandwidth. Rows of a whole number of octets, fewer than 2^31 vectors in total.
#include "kw/column_sum.cuh"
#include "kw/dropout.cuh"

// RESIDENT: blocks that fit in the registers of an SM. DENSE: no gaps between rows.
template <typename T, kw::Draw DRAW, bool BIAS, bool ADD, bool KEEP, bool DENSE, int BLOCK,
          int STEPS, bool STREAM, int RESIDENT>
__global__ void __launch_bounds__(BLOCK, RESIDENT)
    dropout_octets(const T *x, const T *bias, const T *residual, const long long *seed,
                   const unsigned char *mask, T *y, unsigned char *kept, long long rows,
                   long long cols, long long x_stride, long long residual_stride, double p) {
  using Piece = kw::Piece<T>;
  constexpr long long N = kw::kVecWidth<T>;
  constexpr int STEP = kw::kOctet / N;  // pieces per step, a block apart: as many bytes in any T
  constexpr int TILE = BLOCK * STEP * STEPS;
  const unsigned across = cols / N, pieces = rows * across, start = blockIdx.x * TILE;
  const unsigned down = BLOCK / across, right = BLOCK - down * across;  // between two pieces
  unsigned piece = start + threadIdx.x, row = piece / across, col = piece - row * across;
  Piece in[STEP], more[STEP], shared[STEP];

  // Loads the pieces of a step that exist; row and col advance to the next step.
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
    load(whole);  // before waiting for the seed
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
    walk(true);  // the threads of a warp stay together, as scalar work requires
  else
    walk(false);
}

template <typename T, kw::Draw DRAW, int DOWN, int STAGES, int RESIDENT>
__global__ void __launch_bounds__(32 * DOWN, RESIDENT)
    dropout_bwd_octets(const T *gy, const long long *seed, const unsigned char *mask, T *gx,
                       T *gbias, kw::FlaggedValue *handed, int rows, int cols, long long stride,
                       double p) {
  constexpr int N = kw::kVecWidth<T>;
  const unsigned piece = blockIdx.x * 32 + threadIdx.x, across = cols / N;
  const bool inside = piece < across;
  const kw::MaskWords<DRAW, N> kept = {mask, across, piece};
  kw::ColumnReader<T, 1, DOWN, STAGES, kw::MaskWords<DRAW, N>> reader({gy + piece * N}, {stride},
                                                                      inside ? rows : 0, kept);
  const kw::WarpFactors<DRAW, N> factors(seed, mask, p);
  float sum[N] = {};
  reader.for_each_row([&](unsigned row, float (&g)[1][N], unsigned word) {
    float factor[N];
    factors.get(row * across + piece, kept.bits(row, word), factor);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      g[0][i] *= factor[i];
      sum[i] += g[0][i];
    }
    kw::store(gx + row * (long long)cols + piece * N, kw::from_float<T>(g[0]));
  });
  kw::column_sum<DOWN>(sum, handed, gbias, piece * N, inside);
}

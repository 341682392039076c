// Octets one after another, and words that are compared as they are drawn.
//
// Idea: `cuda_vec16` in fewer instructions. Each word selects a factor where it is; the seed is a
// number of the warp, whose scalar unit adds the keys up; a thread divides once to find its row,
// and takes STEPS octets. Few registers keep many warps at it, so that some draw while others wait.
// Traffic: x, residual read, y written once, an eighth of a byte of mask where one is kept;
// backward gy read, gx written once, and partial rows of about a hundredth of that.
// Over `cuda_vec16`: three fifths of its instructions, which in 16-bit dtypes are what binds it.
// Limit: DRAM. Rows of a whole number of octets, fewer than 2^31 of them.
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
  using Octet = kw::Octet<T>;
  constexpr long long N = kw::kOctet;
  const unsigned across = cols / N, octets = rows * across, start = blockIdx.x * (BLOCK * STEPS);
  const unsigned down = BLOCK / across, right = BLOCK - down * across;  // what a step moves by
  unsigned octet = start + threadIdx.x, row = octet / across, col = octet - row * across;
  Octet in, more, shared;

  const auto load = [&] {
    in = Octet::template read<STREAM>(x + (DENSE ? octet * N : row * x_stride + col * N));
    if constexpr (ADD)
      more = Octet::template read<STREAM>(residual +
                                          (DENSE ? octet * N : row * residual_stride + col * N));
    if constexpr (BIAS) shared = Octet::template read<false>(bias + col * N);
  };
  const auto finish = [&](const kw::WarpFactors<DRAW> &factors) {
    float factor[N], out[N], b[N], r[N];
    const unsigned bits = factors.get(octet, factor);
    in.floats(out);
    if constexpr (BIAS) shared.floats(b);
    if constexpr (ADD) more.floats(r);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (BIAS) out[i] += b[i];
      out[i] *= factor[i];
      if constexpr (ADD) out[i] += r[i];
    }
    Octet::template write<STREAM>(y + octet * N, out);
    if constexpr (KEEP) {
      kept[octet] = bits;
      if (octet + 1 == octets)  // the last word's bytes that stand for nothing
        for (unsigned rest = octets; rest % 4; ++rest) kept[rest] = 0;
    }
  };
  const auto walk = [&](bool whole) {
    if (whole || octet < octets) load();  // before the seed is waited for
    const kw::WarpFactors<DRAW> factors(seed, mask, p);
#pragma unroll 1
    for (int k = 0; k < STEPS; ++k) {
      if (whole || octet < octets) {
        if (k > 0) load();
        finish(factors);
      }
      octet += BLOCK, row += down, col += right;
      if (col >= across) col -= across, ++row;
    }
  };
  if (octets - start >= BLOCK * STEPS)
    walk(true);  // threads of a warp stay together, as scalar work asks
  else
    walk(false);
}

// Blocks begin `apart` rows from each other, take steps of `step` rows, and end after `span` rows.
template <typename T, kw::Draw DRAW, int DOWN, bool STREAM, int RESIDENT>
__global__ void __launch_bounds__(32 * DOWN, RESIDENT)
    dropout_bwd_octets(const T *gy, const long long *seed, const unsigned char *mask, T *gx,
                       float *part, int rows, int cols, long long stride, int apart, int step,
                       int span, double p) {
  using Octet = kw::Octet<T>;
  constexpr int N = kw::kOctet;
  const kw::WarpFactors<DRAW> factors(seed, mask, p);
  const unsigned octet = blockIdx.x * 32 + threadIdx.x, across = cols / N;
  const unsigned first = blockIdx.y * apart, end = min(unsigned(rows), first + span);
  float sum[N] = {};
  if (octet < across) {
#pragma unroll 1
    for (unsigned row = first + threadIdx.y; row < end; row += step) {
      const Octet in = Octet::template read<STREAM>(gy + row * stride + octet * N);
      float factor[N], g[N];
      factors.get(row * across + octet, factor);
      in.floats(g);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        g[i] *= factor[i];
        sum[i] += g[i];
      }
      Octet::template write<STREAM>(gx + row * (long long)cols + octet * N, g);
    }
  }
  kw::let_next_launch_start();
  kw::write_part<DOWN>(sum, part + blockIdx.y * (long long)cols + octet * N, octet < across);
}

template <typename T>
__global__ void dropout_octets_parts(const float *part, T *gbias, int parts, int cols) {
  kw::wait_for_launch_before();  // for the parts
  kw::add_parts<32>(part, gbias, parts, cols);
}

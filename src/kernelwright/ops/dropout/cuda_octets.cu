// The same vectors, with random words that are compared as they are drawn.
//
// Idea: `cuda_vec16` with fewer instructions: two Philox counters go through the rounds together
// and multiply 32 by 32 bits (kw/words.cuh), and each word selects a factor where it is, instead of
// being packed into a byte of mask that nobody keeps. FLAT: a tensor without gaps, and no bias, is
// one row, in which no thread divides to find its place. Traffic: x, residual read, y written once.
// Over `cuda_vec16`: two thirds of its instructions, which in 16-bit dtypes are what binds it.
// Limit: DRAM. No mask is written, and no bias's gradient summed: `cuda_vec16` does both.
#include "kw/words.cuh"

template <typename T, bool BIAS, bool ADD, bool FLAT, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    dropout_octets(const T *x, const T *bias, const T *residual, const long long *seed, T *y,
                   long long rows, long long cols, long long x_stride, long long residual_stride,
                   double p) {
  using Octet = kw::Octet<T>;
  const kw::Factors factors(kw::Dropout<kw::Draw::kSeed>(seed, nullptr, p));
  const unsigned across = cols / kw::kOctet;  // octets of a row
  const long long start = (long long)blockIdx.x * (BLOCK * UNROLL);
  const long long row = FLAT ? 0 : start / across, left = rows * (cols / kw::kOctet) - start;
  const unsigned first = start - row * across;
  Octet in[UNROLL], more[UNROLL], row_bias[UNROLL];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const unsigned v = threadIdx.x + k * BLOCK;
    if (v >= left) continue;
    const unsigned down = FLAT ? 0 : (first + v) / across;
    const long long octet = FLAT ? start + v : first + v - down * across;
    const long long col = octet * kw::kOctet;
    in[k] = Octet::template read<STREAM>(x + (row + down) * x_stride + col);
    if constexpr (ADD)
      more[k] = Octet::template read<STREAM>(residual + (row + down) * residual_stride + col);
    if constexpr (BIAS) row_bias[k] = Octet::template read<false>(bias + col);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const unsigned v = threadIdx.x + k * BLOCK;
    if (v >= left) continue;
    float factor[kw::kOctet], out[kw::kOctet], b[kw::kOctet], r[kw::kOctet];
    factors.get(start + v, factor);
    in[k].floats(out);
    if constexpr (BIAS) row_bias[k].floats(b);
    if constexpr (ADD) more[k].floats(r);
#pragma unroll
    for (int i = 0; i < kw::kOctet; ++i) {
      if constexpr (BIAS) out[i] += b[i];
      out[i] *= factor[i];
      if constexpr (ADD) out[i] += r[i];
    }
    Octet::template write<STREAM>(y + (start + v) * kw::kOctet, out);
  }
}

// Eight neighbours a thread: one Philox call, one byte of mask, 16-byte vectors.
//
// Idea: dropout(x + bias) + residual and every part of it is one kernel with flags. A thread loads
// all its vectors, then computes the random words while they are on their way. With a bias the
// backward walks down strips of 32 octets of columns and adds the gradient up as it writes it: a
// partial row a block, and a second kernel adds those in a fixed order.
// Traffic: x, residual read, y written once, an eighth of a byte of mask where one is kept;
// backward gy read, gx written once, and partial rows of about a hundredth of that.
// Over `triton_octets`: loads are in flight together, and no index is computed for each element.
// Limit: DRAM; in 16-bit dtypes issue slots are near. Rows of a whole number of octets.
#include "kw/dropout.cuh"
#include "kw/launch.cuh"
#include "kw/parts.cuh"

template <typename T, kw::Draw DRAW, bool BIAS, bool ADD, bool KEEP, int BLOCK, int UNROLL,
          bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    dropout_vec16(const T *x, const T *bias, const T *residual, const long long *seed,
                  const unsigned char *mask, T *y, unsigned char *kept, long long rows,
                  long long cols, long long x_stride, long long residual_stride, double p) {
  using Octet = kw::Octet<T>;
  const kw::Dropout<DRAW> dropout(seed, mask, p);
  const unsigned across = cols / kw::kOctet;  // octets of a row
  const long long start = (long long)blockIdx.x * (BLOCK * UNROLL);
  const long long row = start / across, left = rows * across - start;
  const unsigned first = start - row * across;
  Octet in[UNROLL], more[UNROLL], row_bias[UNROLL];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const unsigned v = threadIdx.x + k * BLOCK;
    if (v >= left) continue;
    const unsigned down = (first + v) / across;
    const long long col = (first + v - down * across) * (long long)kw::kOctet;
    in[k] = Octet::template read<STREAM>(x + (row + down) * x_stride + col);
    if constexpr (ADD)
      more[k] = Octet::template read<STREAM>(residual + (row + down) * residual_stride + col);
    if constexpr (BIAS) row_bias[k] = Octet::template read<false>(bias + col);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const unsigned v = threadIdx.x + k * BLOCK;
    if (v >= left) continue;
    const unsigned bits = dropout.bits(start + v);
    float out[kw::kOctet], b[kw::kOctet], r[kw::kOctet];
    in[k].floats(out);
    if constexpr (BIAS) row_bias[k].floats(b);
    if constexpr (ADD) more[k].floats(r);
#pragma unroll
    for (int i = 0; i < kw::kOctet; ++i) {
      if constexpr (BIAS) out[i] += b[i];
      out[i] *= dropout.factor(bits, i);
      if constexpr (ADD) out[i] += r[i];
    }
    Octet::template write<STREAM>(y + (start + v) * kw::kOctet, out);
    if constexpr (KEEP) {
      kept[start + v] = bits;
      if (v + 1 == left)  // the last word's bytes that stand for nothing
        for (long long rest = start + v + 1; rest % 4; ++rest) kept[rest] = 0;
    }
  }
}

template <typename T, kw::Draw DRAW, int DOWN, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(32 * DOWN)
    dropout_bwd_vec16(const T *gy, const long long *seed, const unsigned char *mask, T *gx,
                      float *part, long long rows, int cols, long long stride, long long share,
                      double p) {
  using Octet = kw::Octet<T>;
  constexpr int WIDTH = kw::kOctet;
  const kw::Dropout<DRAW> dropout(seed, mask, p);
  const int octet = blockIdx.x * 32 + threadIdx.x, across = cols / WIDTH;
  const long long end = min(rows, (blockIdx.y + 1) * share);
  float sum[WIDTH] = {};
  if (octet < across) {
    for (long long first = blockIdx.y * share + threadIdx.y; first < end; first += DOWN * UNROLL) {
      Octet in[UNROLL];
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        const long long row = first + k * DOWN;
        if (row < end) in[k] = Octet::template read<STREAM>(gy + row * stride + octet * WIDTH);
      }
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        const long long row = first + k * DOWN;
        if (row >= end) continue;
        const unsigned bits = dropout.bits(row * across + octet);
        float g[WIDTH];
        in[k].floats(g);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
          g[i] *= dropout.factor(bits, i);
          sum[i] += g[i];
        }
        Octet::template write<STREAM>(gx + row * cols + octet * WIDTH, g);
      }
    }
  }
  kw::let_next_launch_start();
  kw::write_part<DOWN>(sum, part + blockIdx.y * (long long)cols + octet * WIDTH, octet < across);
}

template <typename T>
__global__ void dropout_bwd_parts(const float *part, T *gbias, int parts, int cols) {
  kw::wait_for_launch_before();  // for the parts
  kw::add_parts(part, gbias, parts, cols);
}

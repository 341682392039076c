// Values per query that the backward's kernels need: D = sum(gy y), and lse to base 2.
//
// Idea: sixteen threads share a query, with one 16-byte vector each. Rows are padded to whole
// tiles, so that tiles are copied without bounds checks: a query that does not exist, or that sees
// no key, has an lse of infinity, with which every weight is 0.
// Traffic: gy and y read once.
#include "kw/reduce.cuh"
#include "kw/row.cuh"

constexpr int kThreads = 256, kShare = 16, kWidth = 8;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    attention_bwd_dot(const T *__restrict__ gy, const T *__restrict__ y,
                      const float *__restrict__ lse, float *__restrict__ dot,
                      float *__restrict__ lse2, long long gy_b, long long gy_h, long long gy_row,
                      long long y_b, long long y_h, long long y_row, int heads, int length,
                      int padded, int dv, long long n) {
  const long long i =
      static_cast<long long>(blockIdx.x) * (kThreads / kShare) + threadIdx.x / kShare;
  const int row = i % padded, col = threadIdx.x % kShare * kWidth;
  const long long head = i / padded, b = head / heads, h = head % heads;
  const bool inside = i < n && row < length && col < dv;
  const auto g =
      kw::load_or<T, kWidth>(gy + b * gy_b + h * gy_h + row * gy_row + col, inside, 0.0f);
  const auto r = kw::load_or<T, kWidth>(y + b * y_b + h * y_h + row * y_row + col, inside, 0.0f);
  float of_g[kWidth], of_y[kWidth], sum = 0.0f;
  kw::to_float(g, of_g);
  kw::to_float(r, of_y);
#pragma unroll
  for (int j = 0; j < kWidth; j++) sum += of_g[j] * of_y[j];
  sum = kw::warp_reduce<kw::Sum, kShare>(sum);
  if (i >= n || col) return;
  const float least = row < length ? lse[head * length + row] : -kw::kInfinity;
  dot[i] = sum;
  lse2[i] = least == -kw::kInfinity ? kw::kInfinity : least * 1.4426950408889634f;
}

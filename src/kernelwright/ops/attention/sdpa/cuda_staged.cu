// Three kernels: scores, softmax, values.
//
// Idea: the formula. A thread computes one score; a warp converts a row of scores to weights; a
// thread computes one element of the result.
// Traffic: L x S float32 scores per head are written, read, written and read again, and each kernel
// reads its operands L or S times, from cache. At L = S = 8192 the scores of a head are 256 MiB; q,
// k, v and y are 8 MiB together.
// Compared with `manual`: four passes over the scores instead of eight.
// Limit: these passes, and products without tensor cores.
#include "call.cuh"
#include "kw/reduce.cuh"

constexpr int kThreads = 256;

template <typename T, bool CAUSAL>
__global__ void __launch_bounds__(kThreads)
    attention_scores(const T *q, const T *k, float *scores, attention::Call c, float scale,
                     long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const int col = i % c.s, row = i / c.s % c.length;
  const long long head = i / c.s / c.length;
  if (col >= c.seen<CAUSAL>(row)) return;
  q += c.q.at(head, c.heads, 1) + row * c.q.row;
  k += c.k.at(head, c.heads, c.group) + col * c.k.row;
  float sum = 0.0f;
  for (int x = 0; x < c.d; x++) sum += kw::to_float(q[x * c.q.col]) * kw::to_float(k[x * c.k.col]);
  scores[i] = sum * scale;
}

template <bool CAUSAL>
__global__ void __launch_bounds__(kThreads)
    attention_softmax(float *scores, float *lse, attention::Call c, long long rows) {
  const long long row = static_cast<long long>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32, seen = c.seen<CAUSAL>(row % c.length);
  scores += row * c.s;
  float top = -kw::kInfinity, sum = 0.0f;
  for (int i = lane; i < seen; i += 32) top = fmaxf(top, scores[i]);
  top = kw::warp_reduce<kw::Max>(top);
  const float base = top == -kw::kInfinity ? 0.0f : top;
  for (int i = lane; i < seen; i += 32) sum += scores[i] = expf(scores[i] - base);
  sum = kw::warp_reduce<kw::Sum>(sum);
  for (int i = lane; i < seen; i += 32) scores[i] /= sum == 0.0f ? 1.0f : sum;
  if (lane == 0) lse[row] = base + logf(sum);
}

template <typename T, bool CAUSAL>
__global__ void __launch_bounds__(kThreads)
    attention_values(const float *weights, const T *v, T *y, attention::Call c, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const int x = i % c.dv, row = i / c.dv % c.length;
  const long long head = i / c.dv / c.length;
  weights += (head * c.length + row) * c.s;
  v += c.v.at(head, c.heads, c.group) + x * c.v.col;
  float sum = 0.0f;
  for (int col = 0; col < c.seen<CAUSAL>(row); col++)
    sum += weights[col] * kw::to_float(v[col * c.v.row]);
  y[c.y.at(head, c.heads, 1) + row * c.y.row + x * c.y.col] = kw::from_float<T>(sum);
}

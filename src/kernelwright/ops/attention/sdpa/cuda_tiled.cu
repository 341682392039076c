// One kernel: a block of queries iterates over tiles of keys.
//
// Idea: four threads share a query, each with a quarter of its elements and of its result in
// registers. A tile of keys and values is in shared memory; its scores give a new maximum and a new
// sum, to which the result so far is rescaled (online softmax). No score is written to global
// memory.
// Traffic: q read and y written once, k and v once per 32 queries.
// Compared with `cuda_staged`: the L x S scores are not stored; only the operands are moved.
// Limit: float32 multiply-adds, and one read of shared memory for each of them.
#include "call.cuh"
#include "kw/reduce.cuh"

constexpr int kRows = 32, kKeys = 32, kShare = 4, kThreads = kRows * kShare;

// PER: elements of a head for each of the four threads; d and dv are at most 4 PER.
template <typename T, int PER, bool CAUSAL>
__global__ void __launch_bounds__(kThreads)
    attention_tiled(const T *q, const T *k, const T *v, T *y, float *lse, attention::Call c,
                    float scale) {
  __shared__ float keys[kKeys][PER * kShare + 1], values[kKeys][PER * kShare + 1];
  const int blocks = (c.length + kRows - 1) / kRows, part = threadIdx.x % kShare;
  const long long head = blockIdx.x / blocks;
  const int top_row = blockIdx.x % blocks * kRows, row = top_row + threadIdx.x / kShare;
  k += c.k.at(head, c.heads, c.group);
  v += c.v.at(head, c.heads, c.group);
  q += c.q.at(head, c.heads, 1) + row * c.q.row;
  const int seen = row < c.length ? c.seen<CAUSAL>(row) : 0;

  float query[PER], sum[PER] = {}, top = -kw::kInfinity, total = 0.0f;
#pragma unroll
  for (int i = 0; i < PER; i++) {
    const int x = i * kShare + part;
    query[i] = row < c.length && x < c.d ? scale * kw::to_float(q[x * c.q.col]) : 0.0f;
  }
  const int last = c.seen<CAUSAL>(min(top_row + kRows, c.length) - 1);
  for (int first = 0; first < last; first += kKeys) {
    __syncthreads();  // the previous tile has been read
    for (int i = threadIdx.x; i < kKeys * PER * kShare; i += kThreads) {
      const int j = i / (PER * kShare), x = i % (PER * kShare);
      const long long col = first + j;
      keys[j][x] = col < c.s && x < c.d ? kw::to_float(k[col * c.k.row + x * c.k.col]) : 0.0f;
      values[j][x] = col < c.s && x < c.dv ? kw::to_float(v[col * c.v.row + x * c.v.col]) : 0.0f;
    }
    __syncthreads();

    float score[kKeys], higher = top;
#pragma unroll
    for (int j = 0; j < kKeys; j++) {
      float dot = 0.0f;
#pragma unroll
      for (int i = 0; i < PER; i++) dot += query[i] * keys[j][i * kShare + part];
      dot = kw::warp_reduce<kw::Sum, kShare>(dot);
      score[j] = first + j < seen ? dot : -kw::kInfinity;
      higher = fmaxf(higher, score[j]);
    }
    const float base = higher == -kw::kInfinity ? 0.0f : higher, fade = expf(top - base);
    top = higher;
    total *= fade;
#pragma unroll
    for (int i = 0; i < PER; i++) sum[i] *= fade;
#pragma unroll
    for (int j = 0; j < kKeys; j++) {
      const float weight = expf(score[j] - base);
      total += weight;
      if (first + j >= seen) continue;
#pragma unroll
      for (int i = 0; i < PER; i++) sum[i] += weight * values[j][i * kShare + part];
    }
  }
  if (row >= c.length) return;
  y += c.y.at(head, c.heads, 1) + row * c.y.row;
#pragma unroll
  for (int i = 0; i < PER; i++) {
    const int x = i * kShare + part;
    if (x < c.dv) y[x * c.y.col] = kw::from_float<T>(sum[i] / (total == 0.0f ? 1.0f : total));
  }
  if (part == 0) lse[head * c.length + row] = top + logf(total);
}

// Shared by the cross entropy kernels: the terms of a row's loss and of its gradient, named as in
// ops/loss/_terms.py.
#pragma once
#include "kw/softmax.cuh"

namespace kw {

// The terms of a call, fixed at compile time, so that unused terms cost nothing.
template <bool WEIGHTED, bool SMOOTH, bool CAP> struct Form {
  static constexpr bool weighted = WEIGHTED, smooth = SMOOTH, cap = CAP;
};

// The values of these terms.
struct LossOptions {
  float label_smoothing, z_loss, softcap;
};

template <typename F> __device__ __forceinline__ float cap(float x, const LossOptions &o) {
  if constexpr (F::cap) return o.softcap * tanhf(x / o.softcap);
  return x;
}

// exp(x) for a sum: CUDA's expf, or one ex2 if a 16-bit result is too coarse to show its error.
template <typename T> __device__ __forceinline__ float exp_of(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  return fast_exp2(1.4426950408889634f * x);
}

// Sums over a part of a row, for label smoothing: of w (z - max), all of one sign, and of w.
struct Spread {
  float wz, w;

  // The same after the maximum has risen.
  __device__ __forceinline__ Spread moved(const MaxSum &from, const MaxSum &to) const {
    return {wz + w * (from.base() - to.base()), w};
  }
};
struct RowPart {
  MaxSum all;
  Spread spread;
};

// Checks the target of a row, in one thread. A device-side assert, like PyTorch's check: it prints
// a line to stderr, causes an error at the next synchronization, and leaves a CUDA context that can
// no longer be used.
template <typename Index>
__device__ __forceinline__ void require_target(Index target, long long n_cols,
                                               long long ignore_index) {
  assert((target == ignore_index || (target >= 0 && target < n_cols)) &&
         "target: a class is out of range");
}

// Adds VECS vectors to a part whose maximum is known. A thread's vectors are `step` columns apart,
// from `col` on; elements past the row's end are -inf in x.
template <typename F, typename T, int VEC, int VECS>
__device__ __forceinline__ void add_up(RowPart &part, const Vec<T, VEC> (&x)[VECS], long long col,
                                       int step, long long n_cols, const float *weight,
                                       const LossOptions &o) {
  const float base = part.all.base();
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    float z[VEC], of_vector = 0.0f;
    to_float(x[v], z);
    if constexpr (F::cap || F::smooth) {
      if (col + v * step >= n_cols) continue;
      Spread spread = {0.0f, 0.0f};
#pragma unroll
      for (int i = 0; i < VEC; i++) {
        z[i] = cap<F>(z[i], o);
        if constexpr (F::smooth) {
          const float w = F::weighted ? weight[col + v * step + i] : 1.0f;
          spread.wz += w * (z[i] - base);
          spread.w += w;
        }
      }
      part.spread.wz += spread.wz, part.spread.w += spread.w;
    }
#pragma unroll
    for (int i = 0; i < VEC; i++) of_vector += exp_of<T>(z[i] - base);
    part.all.sum += of_vector;
  }
}

// The sum over the 32 lanes of a warp.
template <typename F> __device__ __forceinline__ RowPart warp_reduce(RowPart part) {
  const MaxSum own = part.all;
  part.all = warp_reduce<32>(own);
  if constexpr (F::smooth) {
    part.spread = part.spread.moved(own, part.all);
    part.spread.wz = warp_reduce<Sum>(part.spread.wz);
    part.spread.w = warp_reduce<Sum>(part.spread.w);
  }
  return part;
}

// Every warp reduces the same N parts from shared memory.
template <typename F, int N>
__device__ __forceinline__ RowPart reduce_row(const MaxSum *all, const Spread *spread) {
  RowPart row = {reduce_parts<N>(all), {0.0f, 0.0f}};
  if constexpr (F::smooth) {
    for (int i = threadIdx.x % 32; i < N; i += 32) {
      const Spread part = spread[i].moved(all[i], row.all);
      row.spread.wz += part.wz, row.spread.w += part.w;
    }
    row.spread.wz = warp_reduce<Sum>(row.spread.wz);
    row.spread.w = warp_reduce<Sum>(row.spread.w);
  }
  return row;
}

__device__ __forceinline__ float log_sum(const MaxSum &row) { return row.base() + logf(row.sum); }

// What the backward needs of a row; NaN if it has no probabilities.
__device__ __forceinline__ MaxSum saved(const MaxSum &row) {
  const float none = kInfinity - kInfinity;
  return row.sum > 0.0f ? row : MaxSum{none, none};
}

// The loss of a token whose target has logit z_hit and weight w. lse - z = (max - z) + log(sum):
// the sum of a large maximum and the logarithm would lose the latter's digits.
template <typename F>
__device__ __forceinline__ float token_loss(const RowPart &row, float z_hit, float w,
                                            long long n_cols, const LossOptions &o) {
  const float of_sum = logf(row.all.sum), lse = row.all.base() + of_sum;
  float loss =
      w * ((1.0f - o.label_smoothing) * (row.all.base() - z_hit + of_sum) + o.z_loss * lse * lse);
  if constexpr (F::smooth)
    loss += o.label_smoothing / float(n_cols) * (row.spread.w * of_sum - row.spread.wz);
  return loss;
}

// gx_j = of_p exp_scaled(z_j - base) - [j = hit] at_hit - smooth w_j, times dz/dx.
struct Gradient {
  float base, of_p, at_hit, smooth;
  long long hit;
};

// Gradient terms of a token whose loss has gradient g. `every` is the sum of all class weights.
template <typename T, typename F>
__device__ __forceinline__ Gradient gradient_of(float g, const MaxSum &row, long long hit, float w,
                                                float every, long long n_cols,
                                                const LossOptions &o) {
  const float at_hit = g * (1.0f - o.label_smoothing) * w;
  const float smooth = F::smooth ? g * o.label_smoothing / float(n_cols) : 0.0f;
  const float of_p = at_hit + 2.0f * g * o.z_loss * w * log_sum(row) + smooth * every;
  constexpr float kUnscaled = sizeof(T) == 4 ? 1.0f : 1.0f / (1 << 24);  // exp_scaled's constant
  return {row.max, of_p * (1.0f / row.sum * kUnscaled), at_hit, smooth, hit};
}

// The gradient for one vector, from column `col` on.
template <typename F, typename T, int VEC>
__device__ __forceinline__ Vec<T, VEC> apply(const Gradient &r, const Vec<T, VEC> &x, long long col,
                                             const float *weight, const LossOptions &o) {
  float z[VEC], gx[VEC];
  to_float(x, z);
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    z[i] = cap<F>(z[i], o);
    gx[i] = exp_scaled<T>(z[i] - r.base) * r.of_p;
    if constexpr (F::smooth) gx[i] -= r.smooth * (F::weighted ? weight[col + i] : 1.0f);
  }
  const unsigned long long at = r.hit - col;
  if (at < VEC) {
#pragma unroll
    for (int i = 0; i < VEC; i++) gx[i] -= at == i ? r.at_hit : 0.0f;
  }
  if constexpr (F::cap) {
#pragma unroll
    for (int i = 0; i < VEC; i++) gx[i] *= 1.0f - (z[i] / o.softcap) * (z[i] / o.softcap);
  }
  return from_float<T>(gx);
}

// Waits until x has been read: later memory accesses are not moved before it.
__device__ __forceinline__ void settle(float x) {
#ifdef __CUDA_ARCH__
  asm volatile("" ::"f"(x) : "memory");
#endif
}

// The weight of a row's target, 0 if it is ignored. Targets out of range are reported by the kernel
// that reads the row.
template <typename F, typename Index>
__device__ __forceinline__ float weight_of(Index target, const float *weight, long long n_cols,
                                           long long ignore_index) {
  if (target == ignore_index || target < 0 || target >= n_cols) return 0.0f;
  return F::weighted ? weight[target] : 1.0f;
}

}  // namespace kw

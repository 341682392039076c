// Decoding with a contiguous cache: CLUSTER blocks share the keys of a head of the cache.
#pragma once
#include "kw/cluster.cuh"
#include "kw/reduce.cuh"
#include "kw/vec.cuh"

namespace decode {

// Elements between sequences, heads and positions.
struct Strides {
  long long b, h, row;
};
struct Call {
  Strides q, k, v, k_cache, v_cache;
  long long positions;
  int heads, group, chunks, d;  // `heads` of the cache, each for `group` of q, in `chunks` of R
};

// Weighted means of values for R queries: exp2(s - top) is the weight of a score s, `total` the sum
// of weights, `y` the sum of weighted values, of which a lane has WIDTH.
template <int R, int WIDTH> struct Means {
  float top[R], total[R], y[R][WIDTH];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < R; r++) {
      top[r] = -kw::kInfinity, total[r] = 0.0f;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) y[r][i] = 0.0f;
    }
  }
  // Makes the weights relative to another maximum; they remain 0 if there was none.
  __device__ __forceinline__ void rebase(int r, float to) {
    const float factor = top[r] == -kw::kInfinity ? 0.0f : exp2f(top[r] - to);
    top[r] = to, total[r] *= factor;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) y[r][i] *= factor;
  }
  // Adds N keys and values of this lane's position, of which those in `there` count. LANES lanes
  // hold a key.
  template <int LANES, int N, typename Vector>
  __device__ __forceinline__ void take(const float (&query)[R][WIDTH], const Vector (&key)[N],
                                       const Vector (&value)[N], const bool (&there)[N]) {
    float score[N][R];
#pragma unroll
    for (int n = 0; n < N; n++) {
      float x[WIDTH];
      kw::to_float(key[n], x);
#pragma unroll
      for (int r = 0; r < R; r++) {
        float s = 0.0f;
#pragma unroll
        for (int i = 0; i < WIDTH; i++) s += query[r][i] * x[i];
        s = kw::warp_reduce<kw::Sum, LANES>(s);
        score[n][r] = there[n] ? s : -kw::kInfinity;
      }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      float highest = top[r];
#pragma unroll
      for (int n = 0; n < N; n++) highest = kw::max_nan(highest, score[n][r]);
      rebase(r, highest);
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
      float x[WIDTH];
      kw::to_float(value[n], x);
#pragma unroll
      for (int r = 0; r < R; r++) {
        const float weight = there[n] ? exp2f(score[n][r] - top[r]) : 0.0f;
        total[r] += weight;
#pragma unroll
        for (int i = 0; i < WIDTH; i++) y[r][i] += weight * x[i];
      }
    }
  }
  // Merges with the lanes at distance OFFSET.
  __device__ __forceinline__ void merge(int offset) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      const float theirs = __shfl_xor_sync(0xffffffffu, top[r], offset);
      rebase(r, fmaxf(top[r], theirs));
      total[r] += __shfl_xor_sync(0xffffffffu, total[r], offset);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) y[r][i] += __shfl_xor_sync(0xffffffffu, y[r][i], offset);
    }
  }
};

// Element i of the merged means of N parts, each (y, total, top), for query r.
template <int N, int R, int D>
__device__ __forceinline__ float merged(const float (&of)[N][R][D], int r, int i) {
  float top = -kw::kInfinity, sum = 0.0f;
#pragma unroll
  for (int n = 0; n < N; n++) top = kw::max_nan(top, of[n][r][D - 1]);
#pragma unroll
  for (int n = 0; n < N; n++)
    if (of[n][r][D - 1] != -kw::kInfinity) sum += of[n][r][i] * exp2f(of[n][r][D - 1] - top);
  return i == D - 1 ? top : sum;
}

// LANES lanes hold a key, with a 16-byte vector each; a warp processes 32 / LANES keys at a time,
// and loads of UNROLL times as many are in flight.
template <typename T, int LANES, int R, int WARPS, int CLUSTER, int UNROLL>
__device__ __forceinline__ void attend(const T *q, const T *k, const T *v, T *k_cache, T *v_cache,
                                       const long long *lengths, T *out, const Call &c,
                                       float scale) {
  constexpr int WIDTH = kw::kVecWidth<T>, D = LANES * WIDTH, KEYS = 32 / LANES;
  using Vector = kw::Vec<T, WIDTH>;
  __shared__ float parts[WARPS][R][D + 2];
  __shared__ float slots[CLUSTER][R][D + 2];
  __shared__ kw::Mailbox box;
  const int rank = CLUSTER > 1 ? kw::cluster_rank() : 0;
  if constexpr (CLUSTER > 1) box.open(rank == 0 ? sizeof slots : 0);

  const long long id = blockIdx.x / CLUSTER;
  const int chunk = id % c.chunks, head = id / c.chunks % c.heads;
  const long long b = id / c.chunks / c.heads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, place = lane / LANES;
  const int first = head * c.group + chunk * R, mine = min(R, c.group - chunk * R);
  const int at = lane % LANES * WIDTH;
  const bool holds = at < c.d;
  const long long length = lengths[b];
  assert(length >= 0 && length < c.positions && "cache_seqlens: a sequence has no position left");
  k_cache += b * c.k_cache.b + head * c.k_cache.h + at;
  v_cache += b * c.v_cache.b + head * c.v_cache.h + at;
  k += b * c.k.b + head * c.k.h + at;
  v += b * c.v.b + head * c.v.h + at;

  float query[R][WIDTH] = {};
#pragma unroll
  for (int r = 0; r < R; r++)
    if (r < mine && holds) {
      kw::to_float(kw::load<T, WIDTH>(q + b * c.q.b + (first + r) * c.q.h + at), query[r]);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) query[r][i] *= scale * 1.4426950408889634f;
    }

  Means<R, WIDTH> mean;
  mean.clear();

  constexpr int STEP = CLUSTER * WARPS * KEYS;
  for (long long base = (rank * WARPS + warp) * KEYS; base < length; base += STEP * UNROLL) {
    Vector key[UNROLL] = {}, value[UNROLL] = {};
    bool there[UNROLL];
#pragma unroll
    for (int n = 0; n < UNROLL; n++) {
      const long long row = base + n * STEP + place;
      there[n] = row < length;
      if (there[n] && holds) {
        key[n] = kw::load<T, WIDTH>(k_cache + row * c.k_cache.row);
        value[n] = kw::load<T, WIDTH>(v_cache + row * c.v_cache.row);
      }
    }
    mean.template take<LANES>(query, key, value, there);
  }
  if (rank == CLUSTER - 1 && warp == WARPS - 1) {  // the new token is not read from the cache
    Vector key[1] = {}, value[1] = {};
    const bool there[1] = {place == 0};
    if (there[0] && holds) {
      key[0] = kw::load<T, WIDTH>(k), value[0] = kw::load<T, WIDTH>(v);
      if (chunk == 0) {
        kw::store(k_cache + length * c.k_cache.row, key[0]);
        kw::store(v_cache + length * c.v_cache.row, value[0]);
      }
    }
    mean.template take<LANES>(query, key, value, there);
  }
#pragma unroll
  for (int offset = LANES; offset < 32; offset *= 2) mean.merge(offset);

  // means of the warps, then of the blocks: y, total, top
  if (place == 0)
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) parts[warp][r][at + i] = mean.y[r][i];
      if (lane == 0) parts[warp][r][D] = mean.total[r], parts[warp][r][D + 1] = mean.top[r];
    }
  __syncthreads();
  if constexpr (CLUSTER > 1) {
    kw::Mailbox::ready();
    for (int i = threadIdx.x; i < R * (D + 2); i += WARPS * 32)
      box.send(&slots[rank][i / (D + 2)][i % (D + 2)], merged(parts, i / (D + 2), i % (D + 2)), 0);
    if (rank > 0) return;
    box.wait();
  }
  out += (b * c.heads * c.group + first) * c.d;
  for (int i = threadIdx.x; i < mine * c.d; i += WARPS * 32) {
    const int r = i / c.d, e = i % c.d;
    float sum, total;
    if constexpr (CLUSTER > 1)
      sum = merged(slots, r, e), total = merged(slots, r, D);
    else
      sum = merged(parts, r, e), total = merged(parts, r, D);
    out[i] = kw::from_float<T>(sum / total);
  }
}

}  // namespace decode

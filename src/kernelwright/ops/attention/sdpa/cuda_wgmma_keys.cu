// gk and gv on Hopper: a block keeps its keys and iterates over queries.
//
// Idea: scores are computed with keys as rows, S^T = k q^T and dP^T = v gy^T, so that weights and
// dS are in the registers where they multiply gy and q: gv += P^T gy, gk += dS^T q. The gradients
// of a tile and the scores of the next are issued together; exponentials overlap with dP,
// differences with the products of the other warp group. Two groups have 64 keys each; a third
// loads. Heads that share k and v are processed in order: no atomics, deterministic.
// Traffic: k, v, gk and gv once; q and gy once per 128 keys, from L2.
// Compared with `triton_flash`: products and exponentials overlap.
// Limit: 128 sums and 64 scores per thread leave registers for tiles of only 64 queries, whose
// products need the full bandwidth of shared memory.
#include "hopper/store.cuh"

constexpr int kGroupKeys = 64, kKeys = 2 * kGroupKeys, kQueries = 64;

template <typename T, int D, int STAGES, bool CAUSAL>
__global__ void __launch_bounds__(3 * kw::kWarpGroup, 1)
    attention_bwd_keys(const __grid_constant__ kw::TensorMap q_map,
                       const __grid_constant__ kw::TensorMap k_map,
                       const __grid_constant__ kw::TensorMap v_map,
                       const __grid_constant__ kw::TensorMap gy_map,
                       const __grid_constant__ kw::TensorMap gk_map,
                       const __grid_constant__ kw::TensorMap gv_map, const float *lse2,
                       const float *dot, int heads, int group, int keys, int padded, float scale) {
  using Keys = kw::Rows<kKeys, D>;
  using Queries = kw::Rows<kQueries, D>;
  extern __shared__ unsigned char unaligned[];
  __shared__ kw::Barrier kv_full, full[STAGES], empty[STAGES];
  __shared__ alignas(16) float of_queries[STAGES][2][kQueries];
  const unsigned of_k = (kw::shared_address(unaligned) + 1023) & ~1023u;
  const unsigned of_v = of_k + Keys::kBytes, ring = of_v + Keys::kBytes;
  const int warp_group = threadIdx.x / kw::kWarpGroup, share = warp_group - 1;
  if (threadIdx.x == 0) {
    kv_full.init(1);
    for (int i = 0; i < STAGES; i++)
      full[i].init(1), empty[i].init(8);  // one arrival per warp that reads `of_queries`
    kw::fence_barrier_init();
  }
  __syncthreads();

  const int blocks = (keys + kKeys - 1) / kKeys, first_key = blockIdx.x % blocks * kKeys;
  const int nth = blockIdx.x / blocks, shared_heads = heads / group;
  const int shared_head = nth % shared_heads, batch = nth / shared_heads;
  const int tiles = padded / kQueries, first = CAUSAL ? min(first_key / kQueries, tiles) : 0;
  kw::RingPosition<STAGES> at;

  if (warp_group == 0) {
    kw::decrease_registers<24>();
    if (threadIdx.x >= 32 || !kw::elect_one()) return;
    kv_full.expect(2 * Keys::kBytes);
    Keys::load(of_k, k_map, &kv_full, {0, first_key, shared_head, batch});
    Keys::load(of_v, v_map, &kv_full, {0, first_key, shared_head, batch});
    for (int h = shared_head * group; h < (shared_head + 1) * group; h++)
      for (int tile = first; tile < tiles; tile++, at.advance()) {
        const unsigned to = ring + at.stage * 2 * Queries::kBytes;
        const long long row =
            (static_cast<long long>(batch) * heads + h) * padded + tile * kQueries;
        empty[at.stage].wait(at.parity ^ 1);
        full[at.stage].expect(2 * Queries::kBytes + 2 * kQueries * 4);
        Queries::load(to, q_map, &full[at.stage], {0, tile * kQueries, h, batch});
        Queries::load(to + Queries::kBytes, gy_map, &full[at.stage],
                      {0, tile * kQueries, h, batch});
        kw::bulk_load(kw::shared_address(of_queries[at.stage][0]), lse2 + row, kQueries * 4,
                      &full[at.stage]);
        kw::bulk_load(kw::shared_address(of_queries[at.stage][1]), dot + row, kQueries * 4,
                      &full[at.stage]);
      }
    return;
  }

  kw::increase_registers<240>();
  const bool signals = threadIdx.x % 32 == 0;
  const int group_key = first_key + share * kGroupKeys;
  const int key = group_key + threadIdx.x % kw::kWarpGroup / 32 * 16 + threadIdx.x % 32 / 4;
  const float factor = scale == 0.0f ? 1e-38f : scale * 1.4426950408889634f;
  float s[kQueries / 2], dp[kQueries / 2], gk[D / 2] = {}, gv[D / 2] = {};
  unsigned weights[kQueries / 4], ds[kQueries / 4];

  const auto of_q = [&] { return ring + at.stage * 2 * Queries::kBytes; };
  const auto of_gy = [&] { return of_q() + Queries::kBytes; };
  const auto issue_scores = [&] {
#pragma unroll
    for (int i = 0; i < D / 16; i++)
      kw::Wgmma<T, kQueries>::template mma<true, true>(
          s, Keys::columns(of_k, share * kGroupKeys, i), Queries::columns(of_q(), 0, i), i > 0);
    kw::wgmma_commit();
  };
  const auto issue_dp = [&] {
    kw::wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
      kw::Wgmma<T, kQueries>::template mma<true, true>(
          dp, Keys::columns(of_v, share * kGroupKeys, i), Queries::columns(of_gy(), 0, i), i > 0);
    kw::wgmma_commit();
  };
  const auto issue_gradients = [&] {
#pragma unroll
    for (int i = 0; i < kQueries / 16; i++)
      kw::WgmmaRegisters<T, D>::mma(gv, weights + 4 * i, Queries::rows(of_gy(), i));
#pragma unroll
    for (int i = 0; i < kQueries / 16; i++)
      kw::WgmmaRegisters<T, D>::mma(gk, ds + 4 * i, Queries::rows(of_q(), i));
    kw::wgmma_commit();
  };

  const int each = tiles - first, count = group * each;
  const auto weigh = [&](int n) {  // converts the scores of tile n to weights and dS
    const int row = (first + n % each) * kQueries;
    kw::wgmma_wait<0>();
    kw::pin(s);
    if (signals && n > 0) empty[(at.stage + STAGES - 1) % STAGES].arrive();
    issue_dp();
    if (CAUSAL && row < group_key + kGroupKeys - 1) {
#pragma unroll
      for (int i = 0; i < kQueries / 2; i++)
        if (key + i % 4 / 2 * 8 > row + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2)
          s[i] = -kw::kInfinity;
    }
#pragma unroll
    for (int j = 0; j < kQueries / 8; j++) {
      const float2 least =
          *reinterpret_cast<const float2 *>(&of_queries[at.stage][0][8 * j + threadIdx.x % 4 * 2]);
#pragma unroll
      for (int r = 0; r < 4; r++)
        s[4 * j + r] = kw::fast_exp2(fmaf(s[4 * j + r], factor, r % 2 ? -least.y : -least.x));
    }
    kw::wgmma_wait<0>();
    kw::pin(dp);
#pragma unroll
    for (int j = 0; j < kQueries / 8; j++) {
      const float2 less =
          *reinterpret_cast<const float2 *>(&of_queries[at.stage][1][8 * j + threadIdx.x % 4 * 2]);
#pragma unroll
      for (int r = 0; r < 4; r += 2) {
        const float a = s[4 * j + r], b = s[4 * j + r + 1];
        weights[2 * j + r / 2] = attention::pack<T>(a, b);
        ds[2 * j + r / 2] =
            attention::pack<T>(a * (dp[4 * j + r] - less.x), b * (dp[4 * j + r + 1] - less.y));
      }
    }
  };

  kv_full.wait(0);
  kw::pin(gk);
  kw::pin(gv);
  if (count > 0) {
    full[0].wait(0);
    kw::wgmma_fence();
    issue_scores();
    weigh(0);
    for (int n = 1; n < count; n++) {
      kw::RingPosition<STAGES> next = at;
      next.advance();
      full[next.stage].wait(next.parity);
      kw::wgmma_fence();
      issue_gradients();
      at = next;
      issue_scores();
      weigh(n);
    }
    kw::wgmma_fence();
    issue_gradients();
    kw::wgmma_wait<0>();
  }
  kw::pin(gk);
  kw::pin(gv);

  // through the shared memory of the group's own keys and values
  const float one[2] = {1.0f, 1.0f}, scales[2] = {scale, scale};
  const unsigned own = share * kGroupKeys * 128;
  const kw::Corner to = {0, group_key, shared_head, batch};
  attention::store_rows<T, Keys::kBox>(gv, one, of_v + own, gv_map, to, 1 + share);
  attention::store_rows<T, Keys::kBox>(gk, scales, of_k + own, gk_map, to, 1 + share);
}

// gq on Hopper: a block keeps its queries and iterates over keys.
//
// Idea: S = q k^T and dP = gy v^T are recomputed; dS stays in registers and multiplies k: gq += dS
// k. Exponentials overlap with dP, and the differences of one of two warp groups with the products
// of the other; a third warp group loads. A separate kernel for gq adds in a fixed order; the
// kernel of gk and gv would need atomics.
// Traffic: q, gy and gq once; k and v once per 128 queries, from L2.
// Compared with `triton_flash`: products and exponentials overlap.
// Limit: two of the five products that a backward needs are computed a second time.
#include "hopper/store.cuh"

constexpr int kGroupRows = 64, kRows = 2 * kGroupRows;

template <typename T, int D, int COLS, int STAGES, bool CAUSAL>
__global__ void __launch_bounds__(3 * kw::kWarpGroup, 1)
    attention_bwd_queries(const __grid_constant__ kw::TensorMap q_map,
                          const __grid_constant__ kw::TensorMap k_map,
                          const __grid_constant__ kw::TensorMap v_map,
                          const __grid_constant__ kw::TensorMap gy_map,
                          const __grid_constant__ kw::TensorMap gq_map, const float *lse2,
                          const float *dot, int heads, int group, int length, int keys, int padded,
                          float scale) {
  using Queries = kw::Rows<kRows, D>;
  using Keys = kw::Rows<COLS, D>;
  extern __shared__ unsigned char unaligned[];
  __shared__ kw::Barrier q_full, full[STAGES], empty[STAGES];
  const unsigned of_q = (kw::shared_address(unaligned) + 1023) & ~1023u;
  const unsigned of_gy = of_q + Queries::kBytes, ring = of_gy + Queries::kBytes;
  const int warp_group = threadIdx.x / kw::kWarpGroup, share = warp_group - 1;
  if (threadIdx.x == 0) {
    q_full.init(1);
    for (int i = 0; i < STAGES; i++) full[i].init(1), empty[i].init(2);
    kw::fence_barrier_init();
  }
  __syncthreads();

  const int blocks = (length + kRows - 1) / kRows, block = blocks - 1 - blockIdx.x % blocks;
  const int nth = blockIdx.x / blocks, head = nth % heads, batch = nth / heads;
  const int first_row = block * kRows;
  const int tiles = ((CAUSAL ? min(keys, first_row + kRows) : keys) + COLS - 1) / COLS;
  kw::RingPosition<STAGES> at;

  if (warp_group == 0) {
    kw::decrease_registers<24>();
    if (threadIdx.x >= 32 || !kw::elect_one()) return;
    q_full.expect(2 * Queries::kBytes);
    Queries::load(of_q, q_map, &q_full, {0, first_row, head, batch});
    Queries::load(of_gy, gy_map, &q_full, {0, first_row, head, batch});
    for (int tile = 0; tile < tiles; tile++, at.advance()) {
      const unsigned to = ring + at.stage * 2 * Keys::kBytes;
      empty[at.stage].wait(at.parity ^ 1);
      full[at.stage].expect(2 * Keys::kBytes);
      Keys::load(to, k_map, &full[at.stage], {0, tile * COLS, head / group, batch});
      Keys::load(to + Keys::kBytes, v_map, &full[at.stage], {0, tile * COLS, head / group, batch});
    }
    return;
  }

  kw::increase_registers<240>();
  const bool signals = threadIdx.x % kw::kWarpGroup == 0;
  const int group_row = first_row + share * kGroupRows;
  const int row = group_row + threadIdx.x % kw::kWarpGroup / 32 * 16 + threadIdx.x % 32 / 4;
  const int whole = (CAUSAL ? min(keys, group_row + 1) : keys) / COLS;  // tiles seen by all rows
  const float factor = scale == 0.0f ? 1e-38f : scale * 1.4426950408889634f;
  float least[2], less[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {  // rows are padded to whole tiles
    least[h] = lse2[static_cast<long long>(nth) * padded + row + 8 * h];
    less[h] = dot[static_cast<long long>(nth) * padded + row + 8 * h];
  }
  float s[COLS / 2], dp[COLS / 2], gq[D / 2] = {};
  unsigned ds[COLS / 4];

  q_full.wait(0);
  int before = -1;  // the stage that products may still be reading
  const auto step = [&](int tile, bool edge) {
    const unsigned of_k = ring + at.stage * 2 * Keys::kBytes, of_v = of_k + Keys::kBytes;
    full[at.stage].wait(at.parity);
    kw::wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
      kw::Wgmma<T, COLS>::template mma<true, true>(s, Queries::columns(of_q, share * kGroupRows, i),
                                                   Keys::columns(of_k, 0, i), i > 0);
    kw::wgmma_commit();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
      kw::Wgmma<T, COLS>::template mma<true, true>(
          dp, Queries::columns(of_gy, share * kGroupRows, i), Keys::columns(of_v, 0, i), i > 0);
    kw::wgmma_commit();
    kw::wgmma_wait<1>();
    kw::pin(s);
    if (signals && before >= 0) empty[before].arrive();
    if (edge) attention::hide<CAUSAL>(s, row, tile * COLS, keys);
#pragma unroll
    for (int i = 0; i < COLS / 2; i++) s[i] = kw::fast_exp2(fmaf(s[i], factor, -least[i % 4 / 2]));
    kw::wgmma_wait<0>();
    kw::pin(dp);
#pragma unroll
    for (int i = 0; i < COLS / 4; i++)
      ds[i] = attention::pack<T>(s[2 * i] * (dp[2 * i] - less[i % 2]),
                                 s[2 * i + 1] * (dp[2 * i + 1] - less[i % 2]));
    kw::wgmma_fence();
#pragma unroll
    for (int i = 0; i < COLS / 16; i++)
      kw::WgmmaRegisters<T, D>::mma(gq, ds + 4 * i, Keys::rows(of_k, i));
    kw::wgmma_commit();
    before = at.stage;
    at.advance();
  };
  int tile = 0;
  for (; tile < min(whole, tiles); tile++) step(tile, false);
  for (; tile < tiles; tile++) step(tile, true);
  kw::wgmma_wait<0>();
  kw::pin(gq);

  // through the shared memory of the group's own queries
  const float scales[2] = {scale, scale};
  attention::store_rows<T, Queries::kBox>(gq, scales, of_q + share * kGroupRows * 128, gq_map,
                                          {0, group_row, head, batch}, 1 + share);
}

// Two warp groups in ping-pong; a third one loads.
//
// Idea: each of two warp groups has 64 queries. While one converts scores to weights, the other
// uses the tensor cores; named barriers make them alternate. Within a group, the scores of a tile
// of keys are computed together with the product of the previous tile's weights and values, so no
// product waits for its own exponentials. Weights go from registers to wgmma. One warp fills rings
// of keys and values by TMA and gives its spare registers to the others.
// Traffic: q and y once, k and v once per 128 queries, from L2.
// Compared with `cuda_mma`: wgmma, and exponentials that overlap with the tensor cores.
// Limit: at head size 64 the exponentials, 4 per clock on a quarter of a multiprocessor.
#include "hopper/store.cuh"

constexpr int kGroupRows = 64, kRows = 2 * kGroupRows;

template <typename T, int D, int COLS, int STAGES, bool CAUSAL>
__global__ void __launch_bounds__(3 * kw::kWarpGroup, 1)
    attention_wgmma(const __grid_constant__ kw::TensorMap q_map,
                    const __grid_constant__ kw::TensorMap k_map,
                    const __grid_constant__ kw::TensorMap v_map,
                    const __grid_constant__ kw::TensorMap y_map, float *lse, int heads, int group,
                    int length, int keys, float scale) {
  using Queries = kw::Rows<kRows, D>;
  using Keys = kw::Rows<COLS, D>;
  extern __shared__ unsigned char unaligned[];
  __shared__ kw::Barrier q_full, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
  const unsigned queries = (kw::shared_address(unaligned) + 1023) & ~1023u;
  const unsigned ring_k = queries + Queries::kBytes, ring_v = ring_k + STAGES * Keys::kBytes;
  const int warp_group = threadIdx.x / kw::kWarpGroup, turn = warp_group - 1;
  if (threadIdx.x == 0) {
    q_full.init(1);
    for (int i = 0; i < STAGES; i++) {
      k_full[i].init(1), v_full[i].init(1);
      k_empty[i].init(2), v_empty[i].init(2);
    }
    kw::fence_barrier_init();
  }
  __syncthreads();

  const int blocks = (length + kRows - 1) / kRows, block = blocks - 1 - blockIdx.x % blocks;
  const int nth = blockIdx.x / blocks, head = nth % heads, batch = nth / heads;
  const int first_row = block * kRows;
  const int tiles = ((CAUSAL ? min(keys, first_row + kRows) : keys) + COLS - 1) / COLS;

  if (warp_group == 0) {
    kw::decrease_registers<24>();
    if (threadIdx.x >= 32 || !kw::elect_one()) return;
    const int shared_head = head / group;
    kw::RingPosition<STAGES> at_k, at_v;
    const auto load_k = [&](int tile) {
      k_empty[at_k.stage].wait(at_k.parity ^ 1);
      k_full[at_k.stage].expect(Keys::kBytes);
      Keys::load(ring_k + at_k.stage * Keys::kBytes, k_map, &k_full[at_k.stage],
                 {0, tile * COLS, shared_head, batch});
      at_k.advance();
    };
    q_full.expect(Queries::kBytes);
    Queries::load(queries, q_map, &q_full, {0, first_row, head, batch});
    load_k(tiles - 1);
    for (int tile = tiles - 1; tile >= 0; tile--) {
      if (tile > 0) load_k(tile - 1);
      v_empty[at_v.stage].wait(at_v.parity ^ 1);
      v_full[at_v.stage].expect(Keys::kBytes);
      Keys::load(ring_v + at_v.stage * Keys::kBytes, v_map, &v_full[at_v.stage],
                 {0, tile * COLS, shared_head, batch});
      at_v.advance();
    }
    return;
  }

  kw::increase_registers<240>();
  const bool signals = threadIdx.x % kw::kWarpGroup == 0;
  const int group_row = first_row + turn * kGroupRows;
  const int row = group_row + threadIdx.x % kw::kWarpGroup / 32 * 16 + threadIdx.x % 32 / 4;
  const int whole = (CAUSAL ? min(keys, group_row + 1) : keys) / COLS;  // tiles seen by all rows
  kw::RingPosition<STAGES> at_k, at_v;
  float s[COLS / 2], y[D / 2] = {}, fade[2];
  unsigned weights[COLS / 4];
  attention::OnlineSoftmax softmax{scale == 0.0f ? 1e-38f : scale * 1.4426950408889634f};

  const auto scores = [&] {
    const unsigned tile = ring_k + at_k.stage * Keys::kBytes;
    k_full[at_k.stage].wait(at_k.parity);
    kw::wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
      kw::Wgmma<T, COLS>::template mma<true, true>(
          s, Queries::columns(queries, turn * kGroupRows, i), Keys::columns(tile, 0, i), i > 0);
    kw::wgmma_commit();
  };
  const auto release_k = [&] {
    if (signals) k_empty[at_k.stage].arrive();
    at_k.advance();
  };
  const auto values = [&] {
    const unsigned tile = ring_v + at_v.stage * Keys::kBytes;
    v_full[at_v.stage].wait(at_v.parity);
    kw::wgmma_fence();
#pragma unroll
    for (int i = 0; i < COLS / 16; i++)
      kw::WgmmaRegisters<T, D>::mma(y, weights + 4 * i, Keys::rows(tile, i));
    kw::wgmma_commit();
  };
  const auto release_v = [&] {
    if (signals) v_empty[at_v.stage].arrive();
    at_v.advance();
  };
  const auto round = [&] {
#pragma unroll
    for (int i = 0; i < COLS / 4; i++) weights[i] = attention::pack<T>(s[2 * i], s[2 * i + 1]);
  };
  const auto wait_for_turn = [&] { kw::named_barrier_sync(3 + turn, 2 * kw::kWarpGroup); };
  const auto pass_turn = [&] { kw::named_barrier_arrive(4 - turn, 2 * kw::kWarpGroup); };

  q_full.wait(0);
  if (turn == 1 && tiles > 1) pass_turn();
  scores();
  kw::wgmma_wait<0>();
  kw::pin(s);
  release_k();
  attention::hide<CAUSAL>(s, row, (tiles - 1) * COLS, keys);
  softmax.add(s, fade);
  round();

  const auto step = [&](int tile, bool edge) {
    wait_for_turn();
    scores();
    values();
    if (turn == 0 || tile > 0) pass_turn();
    kw::wgmma_wait<1>();
    kw::pin(s);
    release_k();
    if (edge) attention::hide<CAUSAL>(s, row, tile * COLS, keys);
    softmax.add(s, fade);
    kw::wgmma_wait<0>();
    kw::pin(y);
    release_v();
#pragma unroll
    for (int i = 0; i < D / 2; i++) y[i] *= fade[i % 4 / 2];
    round();
  };
  int tile = tiles - 2;
  if constexpr (CAUSAL)
    for (; tile >= whole; tile--) step(tile, true);
  for (; tile >= 0; tile--) step(tile, false);
  values();
  kw::wgmma_wait<0>();
  kw::pin(y);

  softmax.finish();
  const float scale_of[2] = {softmax.scale(0), softmax.scale(1)};
#pragma unroll
  for (int h = 0; h < 2; h++)
    if (threadIdx.x % 4 == 0 && row + 8 * h < length)
      lse[static_cast<long long>(nth) * length + row + 8 * h] = softmax.lse(h);

  // through the shared memory of the group's own queries
  attention::store_rows<T, Queries::kBox>(y, scale_of, queries + turn * kGroupRows * 128, y_map,
                                          {0, group_row, head, batch}, 1 + turn);
}

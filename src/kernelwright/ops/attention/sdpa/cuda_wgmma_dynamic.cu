// Blocks take the next tile of queries from a counter, in an order that keeps keys in L2.
//
// Idea: as `cuda_wgmma_persistent`, but heads are processed in sections whose keys and values fit
// half of L2, and the tiles of a section from the longest to the shortest. A block takes a tile
// when it is about to finish one: whichever blocks are first take more, so a section's short tiles
// and the next one's long ones leave no multiprocessor idle. The warp that loads takes the numbers
// and passes them to the others through shared memory. Keys are masked by one comparison with a
// constant, which leaves registers for three groups with tiles of 128 keys.
// Traffic: k and v once from memory and once per tile from L2; there, with `causal`, all blocks
// read different heads, and k and v came from memory for nearly every tile.
// Compared with `cuda_wgmma_persistent`: 1 instead of 4 TB/s of memory at 2,048 causal keys.
// Limit: products and exponentials overlap by a few instructions less than they could.
#include "hopper/row_store.cuh"
#include "hopper/tiles.cuh"

constexpr int kGroupRows = 64;

template <typename T, int D, int COLS, int STAGES, int GROUPS, bool CAUSAL>
__global__ void __launch_bounds__((1 + GROUPS) * kw::kWarpGroup, 1)
    attention_dynamic(const __grid_constant__ kw::TensorMap q_map,
                      const __grid_constant__ kw::TensorMap k_map,
                      const __grid_constant__ kw::TensorMap v_map,
                      const __grid_constant__ kw::TensorMap y_map, float *lse, unsigned *counters,
                      attention::Tiles order, int length, int keys, float scale) {
  constexpr int kRows = GROUPS * kGroupRows;
  using Queries = kw::Rows<kRows, D>;
  using Keys = kw::Rows<COLS, D>;
  extern __shared__ unsigned char unaligned[];
  __shared__ kw::Barrier q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES],
      v_empty[STAGES];
  __shared__ attention::Next next;
  const unsigned queries = (kw::shared_address(unaligned) + 1023) & ~1023u;
  const unsigned results = queries + Queries::kBytes;
  const unsigned ring_k = results + Queries::kBytes, ring_v = ring_k + STAGES * Keys::kBytes;
  const int warp_group = threadIdx.x / kw::kWarpGroup, turn = warp_group - 1;
  if (threadIdx.x == 0) {
    q_full.init(1), q_empty.init(GROUPS), next.init(4 * GROUPS);
    for (int i = 0; i < STAGES; i++) {
      k_full[i].init(1), v_full[i].init(1);
      k_empty[i].init(GROUPS), v_empty[i].init(GROUPS);
    }
    kw::fence_barrier_init();
  }
  __syncthreads();

  const auto tiles_of = [&](int first_row) {
    return ((CAUSAL ? min(keys, first_row + kRows) : keys) + COLS - 1) / COLS;
  };
  kw::RingPosition<STAGES> at_k, at_v;
  kw::RingPosition<1> at;  // of queries and of numbers

  if (warp_group == 0) {
    kw::decrease_registers<GROUPS == 2 ? 24 : 32>();
    if (threadIdx.x >= 32 || !kw::elect_one()) return;
    unsigned number = blockIdx.x;
    for (; number < order.count; at.advance()) {
      next.put(number, at.parity);
      const attention::Tile of = order.tile(number);
      const int first_row = of.block * kRows, head = of.head % order.heads;
      const int batch = of.head / order.heads, shared_head = head / order.group;
      const auto load_k = [&](int tile) {
        k_empty[at_k.stage].wait(at_k.parity ^ 1);
        k_full[at_k.stage].expect(Keys::kBytes);
        Keys::load(ring_k + at_k.stage * Keys::kBytes, k_map, &k_full[at_k.stage],
                   {0, tile * COLS, shared_head, batch});
        at_k.advance();
      };
      const int tiles = tiles_of(first_row);
      load_k(tiles - 1);
      q_empty.wait(at.parity ^ 1);
      q_full.expect(Queries::kBytes);
      Queries::load(queries, q_map, &q_full, {0, first_row, head, batch});
      for (int tile = tiles - 1; tile >= 0; tile--) {
        if (tile > 0)
          load_k(tile - 1);
        else
          number = gridDim.x + atomicAdd(counters, 1u);  // arrives while the others finish
        v_empty[at_v.stage].wait(at_v.parity ^ 1);
        v_full[at_v.stage].expect(Keys::kBytes);
        Keys::load(ring_v + at_v.stage * Keys::kBytes, v_map, &v_full[at_v.stage],
                   {0, tile * COLS, shared_head, batch});
        at_v.advance();
      }
    }
    next.put(number, at.parity);
    attention::leave(counters);
    return;
  }

  kw::increase_registers<GROUPS == 2 ? 240 : 160>();
  const bool signals = threadIdx.x % kw::kWarpGroup == 0;
  const int own_row = threadIdx.x % kw::kWarpGroup / 32 * 16 + threadIdx.x % 32 / 4;
  const attention::RowStore<T, Queries::kBox> store{results + turn * kGroupRows * 128, 1 + turn};
  const auto wait_for_turn = [&] { kw::named_barrier_sync(1 + GROUPS + turn, 2 * kw::kWarpGroup); };
  const auto pass_turn = [&] {
    kw::named_barrier_arrive(1 + GROUPS + (turn + 1) % GROUPS, 2 * kw::kWarpGroup);
  };
  for (;; at.advance()) {
    unsigned number = next.take(at.parity);
    if (number >= order.count) break;
    const int first_row = order.tile(number).block * kRows;
    const int group_row = first_row + turn * kGroupRows, row = group_row + own_row;
    const int tiles = tiles_of(first_row);
    const int whole = (CAUSAL ? min(keys, group_row + 1) : keys) / COLS;  // tiles seen by all rows
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
    const auto release_k = [&](int tile) {
      if (signals) k_empty[at_k.stage].arrive();
      if (signals && tile == 0) q_empty.arrive();
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
    const auto step = [&](int tile, bool edge) {
      wait_for_turn();
      scores();
      values();
      if (turn < GROUPS - 1 || tile > 0) pass_turn();
      kw::wgmma_wait<1>();
      kw::pin(s);
      release_k(tile);
      if (edge) attention::hide_from<CAUSAL>(s, row, tile * COLS, keys);
      softmax.add(s, fade);
      kw::wgmma_wait<0>();
      kw::pin(y);
      release_v();
#pragma unroll
      for (int i = 0; i < D / 2; i++) y[i] *= fade[i % 4 / 2];
      round();
    };

    q_full.wait(at.parity);
    if (turn == GROUPS - 1 && tiles > 1) pass_turn();
    scores();
    kw::wgmma_wait<0>();
    kw::pin(s);
    release_k(tiles - 1);
    attention::hide_from<CAUSAL>(s, row, (tiles - 1) * COLS, keys);
    softmax.add(s, fade);
    round();
    int tile = tiles - 2;
    if constexpr (CAUSAL)
      for (; tile >= whole; tile--) step(tile, true);
    for (; tile >= 0; tile--) step(tile, false);
    values();
    kw::wgmma_wait<0>();
    kw::pin(y);
    release_v();

    softmax.finish();
    asm volatile("" : "+r"(number));  // computed again: the loops have no registers for it
    const attention::Tile of = order.tile(number);
    const int start = of.block * kRows + turn * kGroupRows;
    const float scale_of[2] = {softmax.scale(0), softmax.scale(1)};
#pragma unroll
    for (int h = 0; h < 2; h++)
      if (threadIdx.x % 4 == 0 && start + own_row + 8 * h < length)
        lse[static_cast<long long>(of.head) * length + start + own_row + 8 * h] = softmax.lse(h);
    store.store(y, scale_of, y_map, {0, start, of.head % order.heads, of.head / order.heads});
  }
  store.finish();
}

// Warp-specialized: one warp group loads, others multiply, and a block iterates over many tiles.
//
// Idea: a dedicated warp keeps the ring of slices full; the registers that its warp group does not
// need are given to the GROUPS warp groups that multiply (setmaxnreg), each of which has part of
// the tile's rows. There is one block per multiprocessor, which iterates over tiles: while results
// are stored through stmatrix and TMA, the ring fills for the next tile.
// Traffic: a tile's rows of A and columns of B for each 64 elements along k, mostly from L2.
// Compared with `cuda_wgmma_tma`: no launch and no empty pipeline between two tiles of a block.
// Limit: tensor cores are idle while a tile is stored; a partial last wave.
#include "pipeline.cuh"
#include "tile_store.cuh"

template <typename T, int BM, int BN, int STAGES, int BOXES, int GROUPS, int ROWS, int COLS,
          bool A_K, bool B_K, typename Epilogue>
__device__ __forceinline__ void persistent(const kw::Operands &operands, const kw::TensorMap &c,
                                           const kw::TileOrder &order, int tiles, int slices,
                                           const Epilogue &epilogue) {
  using Cluster = kw::Cluster<ROWS, COLS>;
  using Pipeline = kw::Pipeline<T, BM, BN, STAGES, GROUPS, Cluster, A_K, B_K>;
  using Store = kw::TileStore<T, BN, Pipeline::kParts, BOXES, Epilogue>;
  extern __shared__ unsigned char unaligned[];
  __shared__ typename Pipeline::Barriers barriers;
  __shared__ typename Store::Shared store_shared[GROUPS];
  const unsigned shared = (kw::shared_address(unaligned) + 1023) & ~1023u;
  const int group = threadIdx.x / kw::kWarpGroup, share = group - 1;
  const Cluster cluster;
  Pipeline pipeline{shared, barriers};
  Store store{shared + Pipeline::kBytes + share * Store::kBytes, store_shared[max(share, 0)], group,
              c, epilogue};
  if (threadIdx.x == 0) pipeline.init();
  if (share >= 0 && threadIdx.x % kw::kWarpGroup == 0) store.init();
  cluster.sync();

  const int first = blockIdx.x / Cluster::kBlocks, step = gridDim.x / Cluster::kBlocks;
  if (group == 0) {
    if (GROUPS > 1) kw::decrease_registers<GROUPS == 2 ? 40 : 32>();
    if (threadIdx.x < 32 && kw::elect_one())
      for (int tile = first; tile < tiles; tile += step)
        pipeline.load(operands, order.place<BM, BN, A_K>(tile, cluster), 0, slices, cluster);
  } else {
    if (GROUPS > 1) kw::increase_registers<GROUPS == 2 ? 232 : 160>();
    for (int tile = first; tile < tiles; tile += step) {
      kw::Place place = order.place<BM, BN, A_K>(tile, cluster);
      float d[Pipeline::kParts][BN / 2];
      place.row += share * Pipeline::kParts * 64;
      store.prefetch(place);
      pipeline.multiply(d, slices, share, [] {});
      store.store(d, place);
    }
    store.finish();
  }
  cluster.sync_before_exit();
}

template <typename T, int BM, int BN, int STAGES, int BOXES, int GROUPS, int ROWS, int COLS,
          bool A_K, bool B_K>
__global__ void __launch_bounds__((1 + GROUPS) * kw::kWarpGroup, 1)
    matmul_persistent(const __grid_constant__ kw::TensorMap a,
                      const __grid_constant__ kw::TensorMap b,
                      const __grid_constant__ kw::TensorMap c, int m, int n, int rows, int cols,
                      int strip, int tiles, int slices, int bytes, int a_batched, int b_batched) {
  persistent<T, BM, BN, STAGES, BOXES, GROUPS, ROWS, COLS, A_K, B_K>(
      kw::Operands{a, b, bytes, a_batched, b_batched}, c,
      kw::TileOrder{unsigned(rows), unsigned(cols), unsigned(strip), m, n}, tiles, slices,
      kw::Plain{});
}

template <typename T, int BM, int BN, int STAGES, int BOXES, int GROUPS, int ROWS, int COLS,
          bool A_K, bool B_K, int ACTIVATION, bool BIAS, bool GATE, bool RESIDUAL, bool KEEP>
__global__ void __launch_bounds__((1 + GROUPS) * kw::kWarpGroup, 1)
    linear_persistent(const __grid_constant__ kw::TensorMap a,
                      const __grid_constant__ kw::TensorMap b,
                      const __grid_constant__ kw::TensorMap c,
                      const __grid_constant__ kw::TensorMap gate,
                      const __grid_constant__ kw::TensorMap residual,
                      const __grid_constant__ kw::TensorMap z, const T *bias, int m, int n,
                      int rows, int cols, int strip, int tiles, int slices, int bytes) {
  persistent<T, BM, BN, STAGES, BOXES, GROUPS, ROWS, COLS, A_K, B_K>(
      kw::Operands{a, b, bytes, 0, 0}, c,
      kw::TileOrder{unsigned(rows), unsigned(cols), unsigned(strip), m, n}, tiles, slices,
      kw::Linear<T, ACTIVATION, BIAS, GATE, RESIDUAL, KEEP>{gate, residual, z, bias, n});
}

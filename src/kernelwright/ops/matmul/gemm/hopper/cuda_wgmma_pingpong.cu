// Two warp groups that alternate, each with its own tile.
//
// Idea: as cuda_wgmma_persistent.cu, but while one warp group executes the epilogue and stores its
// results, the other multiplies, so that the tensor cores are busy between tiles. The slices of
// both tiles alternate in one ring; named barriers pass the tensor cores from one group to the
// other.
// Traffic: as there, with tiles whose sums fit in one warp group's registers, at most 128 x 192.
// Compared with `cuda_wgmma_persistent`: at k = 768 the epilogue is a tenth of a tile's time, a
// third with GELU; here it overlaps with the other tile.
// Limit: power at large sizes; otherwise a partial last wave.
#include "pipeline.cuh"
#include "tile_store.cuh"

template <typename T, int BM, int BN, int STAGES, int BOXES, int ROWS, int COLS, bool A_K, bool B_K,
          typename Epilogue>
__device__ __forceinline__ void pingpong(const kw::Operands &operands, const kw::TensorMap &c,
                                         const kw::TileOrder &order, int tiles, int slices,
                                         const Epilogue &epilogue) {
  using Cluster = kw::Cluster<ROWS, COLS>;
  using Pipeline = kw::Pipeline<T, BM, BN, STAGES, 1, Cluster, A_K, B_K>;
  using Store = kw::TileStore<T, BN, Pipeline::kParts, BOXES, Epilogue>;
  extern __shared__ unsigned char unaligned[];
  __shared__ typename Pipeline::Barriers barriers;
  __shared__ typename Store::Shared store_shared[2];
  const unsigned shared = (kw::shared_address(unaligned) + 1023) & ~1023u;
  const int group = threadIdx.x / kw::kWarpGroup, turn = group - 1;
  const Cluster cluster;
  Pipeline pipeline{shared, barriers};
  Store store{shared + Pipeline::kBytes + turn * Store::kBytes, store_shared[max(turn, 0)], group,
              c, epilogue};
  if (threadIdx.x == 0) pipeline.init();
  if (turn >= 0 && threadIdx.x % kw::kWarpGroup == 0) store.init();
  cluster.sync();

  const int first = blockIdx.x / Cluster::kBlocks, step = gridDim.x / Cluster::kBlocks;
  if (group == 0) {
    kw::decrease_registers<40>();
    if (threadIdx.x < 32 && kw::elect_one())
      for (int tile = first; tile < tiles; tile += step)
        pipeline.load(operands, order.place<BM, BN, A_K>(tile, cluster), 0, slices, cluster);
  } else {
    kw::increase_registers<232>();
    const auto wait_for_turn = [&] { kw::named_barrier_sync(3 + turn, 2 * kw::kWarpGroup); };
    const auto pass_turn = [&] { kw::named_barrier_arrive(4 - turn, 2 * kw::kWarpGroup); };
    pipeline.at.advance(turn * slices);
    if (turn == 1) pass_turn();
    for (int tile = first + turn * step; tile < tiles; tile += 2 * step) {
      const kw::Place place = order.place<BM, BN, A_K>(tile, cluster);
      float d[Pipeline::kParts][BN / 2];
      store.prefetch(place);
      wait_for_turn();  // two rounds ahead, a group could not tell the phases apart
      pipeline.multiply(d, slices, 0, [&] {
        if (tile + step < tiles) pass_turn();
      });
      pipeline.at.advance(slices);  // those of the other group
      store.store(d, place);
    }
    store.finish();
  }
  cluster.sync_before_exit();
}

template <typename T, int BM, int BN, int STAGES, int BOXES, int ROWS, int COLS, bool A_K, bool B_K>
__global__ void __launch_bounds__(3 * kw::kWarpGroup, 1)
    matmul_pingpong(const __grid_constant__ kw::TensorMap a,
                    const __grid_constant__ kw::TensorMap b,
                    const __grid_constant__ kw::TensorMap c, int m, int n, int rows, int cols,
                    int strip, int tiles, int slices, int bytes, int a_batched, int b_batched) {
  pingpong<T, BM, BN, STAGES, BOXES, ROWS, COLS, A_K, B_K>(
      kw::Operands{a, b, bytes, a_batched, b_batched}, c,
      kw::TileOrder{unsigned(rows), unsigned(cols), unsigned(strip), m, n}, tiles, slices,
      kw::Plain{});
}

template <typename T, int BM, int BN, int STAGES, int BOXES, int ROWS, int COLS, bool A_K, bool B_K,
          int ACTIVATION, bool BIAS, bool GATE, bool RESIDUAL, bool KEEP>
__global__ void __launch_bounds__(3 * kw::kWarpGroup, 1)
    linear_pingpong(const __grid_constant__ kw::TensorMap a,
                    const __grid_constant__ kw::TensorMap b,
                    const __grid_constant__ kw::TensorMap c,
                    const __grid_constant__ kw::TensorMap gate,
                    const __grid_constant__ kw::TensorMap residual,
                    const __grid_constant__ kw::TensorMap z, const T *bias, int m, int n, int rows,
                    int cols, int strip, int tiles, int slices, int bytes) {
  pingpong<T, BM, BN, STAGES, BOXES, ROWS, COLS, A_K, B_K>(
      kw::Operands{a, b, bytes, 0, 0}, c,
      kw::TileOrder{unsigned(rows), unsigned(cols), unsigned(strip), m, n}, tiles, slices,
      kw::Linear<T, ACTIVATION, BIAS, GATE, RESIDUAL, KEEP>{gate, residual, z, bias, n});
}

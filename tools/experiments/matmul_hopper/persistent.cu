// C = A B on Hopper's tensor cores: a persistent, warp-specialised kernel.
//
// Idea: one warp group copies slabs of A and B, 64 of k deep, into a ring of shared memory with
// TMA; GROUPS others multiply them with wgmma, each its share of the tile's rows. Blocks of a
// cluster load parts of the slabs that they share for each other (multicast). A block works through
// many tiles: while results leave through stmatrix and TMA, the ring fills for the next tile.
// Traffic: for each 64 of k a tile's rows of A and columns of B, over the blocks that share them.
// Why: no thread addresses memory, no register holds an operand.
// Limit: power; a last wave of tiles that does not fill the machine; all groups store at once.
#include "kw/matmul.cuh"

template <typename T, int BM, int BN, int STAGES, int BUFFERS, int GROUPS, int ROWS, int COLS,
          bool A_K, bool B_K, typename Epilogue>
__global__ void __launch_bounds__((1 + GROUPS) * kw::kGroup, 1)
    matmul_persistent(const __grid_constant__ kw::TensorMap a,
                      const __grid_constant__ kw::TensorMap b,
                      const __grid_constant__ kw::TensorMap c, kw::Order order, int slabs,
                      Epilogue epilogue) {
  using Cluster = kw::Cluster<ROWS, COLS>;
  using Stream = kw::Stream<T, BM, BN, STAGES, GROUPS, Cluster, A_K, B_K>;
  using Outbox = kw::Outbox<T, BUFFERS>;
  extern __shared__ unsigned char raw[];
  __shared__ typename Stream::Barriers barriers;
  unsigned char *shared = raw + (-kw::shared_address(raw) & 1023);
  const Cluster cluster;
  Stream stream{shared, barriers};
  if (threadIdx.x == 0) stream.open();
  cluster.meet();
  kw::wait_for_previous_kernel();
  kw::let_next_kernel_start();

  const int first = blockIdx.x / Cluster::kBlocks, step = gridDim.x / Cluster::kBlocks;
  const int tiles = order.rows * order.cols, group = threadIdx.x / kw::kGroup;
  const auto origin = [&](int tile) {
    const int2 at = order.place(tile);
    return order.inside<BM, BN>((at.x * ROWS + cluster.row) * BM, (at.y * COLS + cluster.col) * BN);
  };
  if (group == 0) {
    if (GROUPS == 2) kw::give_registers<40>();
    if (threadIdx.x < 32 && kw::elected())
      for (int tile = first; tile < tiles; tile += step) {
        const int2 at = origin(tile);
        stream.load(a, b, at.x, at.y, 0, slabs, cluster);
      }
  } else {
    if (GROUPS == 2) kw::take_registers<232>();
    const int share = group - 1;
    Outbox outbox{shared + Stream::kBytes + share * Outbox::kBytes, group};
    for (int tile = first; tile < tiles; tile += step) {
      const int2 at = origin(tile);
      const typename Epilogue::template Columns<BN / 8> columns(epilogue,
                                                                at.y + kw::first_column());
      float d[Stream::kParts][BN / 2];
      stream.multiply(d, slabs, share, [] {});
#pragma unroll
      for (int p = 0; p < Stream::kParts; p++)
        outbox.send(d[p], c, at.x + (share * Stream::kParts + p) * 64, at.y, columns);
    }
    kw::tma_store_wait_read<0>();
  }
  cluster.part();
}

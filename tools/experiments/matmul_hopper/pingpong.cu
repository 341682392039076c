// C = A B on Hopper's tensor cores: two warp groups in turns, each with a tile of its own.
//
// Idea: as `persistent`, but while one group's results go through the epilogue and out, the other
// multiplies: the tensor cores do not stop between tiles. The slabs of their tiles follow each
// other in one ring.
// Traffic: as `persistent` with tiles that one group's registers hold, 128 x 192 at most.
// Why: at k = 768 an epilogue is a tenth of a tile's time, with gelu a third.
// Limit: power; a last wave of tiles that does not fill the machine.
#include "kw/matmul.cuh"

template <typename T, int BM, int BN, int STAGES, int BUFFERS, int ROWS, int COLS, bool A_K,
          bool B_K, typename Epilogue>
__global__ void __launch_bounds__(384, 1)
    matmul_pingpong(const __grid_constant__ kw::TensorMap a,
                    const __grid_constant__ kw::TensorMap b,
                    const __grid_constant__ kw::TensorMap c, kw::Order order, int slabs,
                    Epilogue epilogue) {
  using Cluster = kw::Cluster<ROWS, COLS>;
  using Stream = kw::Stream<T, BM, BN, STAGES, 1, Cluster, A_K, B_K>;
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
    kw::give_registers<40>();
    if (threadIdx.x < 32 && kw::elected())
      for (int tile = first; tile < tiles; tile += step) {
        const int2 at = origin(tile);
        stream.load(a, b, at.x, at.y, 0, slabs, cluster);
      }
  } else {
    kw::take_registers<232>();
    const int turn = group - 1;
    Outbox outbox{shared + Stream::kBytes + turn * Outbox::kBytes, group};
    stream.at.advance(turn * slabs);
    const auto mine = [&] { kw::meet(3 + turn, 2 * kw::kGroup); };
    const auto yours = [&] { kw::signal(4 - turn, 2 * kw::kGroup); };
    if (turn == 1) yours();
    for (int tile = first + turn * step; tile < tiles; tile += 2 * step) {
      const int2 at = origin(tile);
      const typename Epilogue::template Columns<BN / 8> columns(epilogue,
                                                                at.y + kw::first_column());
      float d[Stream::kParts][BN / 2];
      mine();  // a barrier's parity cannot tell a slab from one two turns of the ring before it
      stream.multiply(d, slabs, 0, [&] {
        if (tile + step < tiles) yours();
      });
      stream.at.advance(slabs);  // the other group's
#pragma unroll
      for (int p = 0; p < Stream::kParts; p++) outbox.send(d[p], c, at.x + p * 64, at.y, columns);
    }
    kw::tma_store_wait_read<0>();
  }
  cluster.part();
}

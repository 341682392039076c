// C = A B on Hopper's tensor cores where tiles do not fill whole waves: some are cut along k.
//
// Idea: as `persistent`, but the first `shared_tiles` tiles are laid end to end, slab after slab,
// and every cluster takes an equal stretch of them; the others follow in whole waves. The
// cluster that begins a tile finishes it: others leave their sums in a workspace and raise a flag.
// They do that first of all, and the sums are needed last, so that waits are short. Sums are added
// in the order of k: the same bits each time.
// Traffic: as `persistent`, and a tile of float32 sums a block, written and read in L2.
// Why: 144 tiles on 132 multiprocessors take the time of 264.
// Limit: some 5 us to hand sums over; blocks apart in k share no slabs, so operands must fit L2;
// the last tiles load rows from outside the matrix, which is slow (see Order::inside).
#include "kw/handover.cuh"
#include "kw/matmul.cuh"

template <typename T, int BM, int BN, int STAGES, int BUFFERS, int ROWS, int COLS, bool A_K,
          bool B_K, typename Epilogue>
__global__ void __launch_bounds__(384, 1)
    matmul_stream(const __grid_constant__ kw::TensorMap a, const __grid_constant__ kw::TensorMap b,
                  const __grid_constant__ kw::TensorMap c, float4 *sums, unsigned *flags,
                  kw::Order order, int slabs, int shared_tiles, Epilogue epilogue) {
  using Cluster = kw::Cluster<ROWS, COLS>;
  using Stream = kw::Stream<T, BM, BN, STAGES, 2, Cluster, A_K, B_K>;
  using Outbox = kw::Outbox<T, BUFFERS>;
  constexpr int kParts = Stream::kParts, kQuads = BN / 8;
  extern __shared__ unsigned char raw[];
  __shared__ typename Stream::Barriers barriers;
  unsigned char *shared = raw + (-kw::shared_address(raw) & 1023);
  const Cluster cluster;
  Stream stream{shared, barriers};
  if (threadIdx.x == 0) stream.open();
  cluster.meet();
  kw::wait_for_previous_kernel();
  kw::let_next_kernel_start();

  const int mine = blockIdx.x / Cluster::kBlocks, group = threadIdx.x / kw::kGroup;
  if (group == 0) {
    kw::give_registers<40>();
    kw::Schedule schedule(order.rows * order.cols, shared_tiles, slabs,
                          gridDim.x / Cluster::kBlocks, mine);
    if (threadIdx.x < 32 && kw::elected())
      for (kw::Work work; schedule.next(work);) {
        const int2 at = order.place(work.tile);
        stream.load(a, b, (at.x * ROWS + cluster.row) * BM, (at.y * COLS + cluster.col) * BN,
                    work.first, work.last, cluster);
      }
  } else {
    kw::take_registers<232>();
    const int half = group - 1;
    Outbox outbox{shared + Stream::kBytes + half * Outbox::kBytes, group};
    const kw::Handover<kParts * kQuads> handover{sums, flags, half, group};
    kw::Schedule schedule(order.rows * order.cols, shared_tiles, slabs,
                          gridDim.x / Cluster::kBlocks, mine);
    for (kw::Work work; schedule.next(work);) {
      const int2 at = order.place(work.tile);
      const int m0 = (at.x * ROWS + cluster.row) * BM, n0 = (at.y * COLS + cluster.col) * BN;
      const typename Epilogue::template Columns<BN / 8> columns(epilogue, n0 + kw::first_column());
      float d[kParts][BN / 2];
      stream.multiply(d, work.last - work.first, half, [] {});
      if (work.first > 0) {
#pragma unroll
        for (int p = 0; p < kParts; p++)
#pragma unroll
          for (int q = 0; q < kQuads; q++)
            handover.leave(blockIdx.x, p * kQuads + q,
                           {d[p][4 * q], d[p][4 * q + 1], d[p][4 * q + 2], d[p][4 * q + 3]});
        handover.raise(blockIdx.x);
        continue;
      }
      const unsigned tile_end = (work.tile + 1) * slabs;
      if (work.last < slabs)
        for (int other = mine + 1; schedule.begin(other) < tile_end; other++) {
          const int block = blockIdx.x + (other - mine) * Cluster::kBlocks;
          handover.await(block);
          const float4 *from = handover.of(block);
#pragma unroll
          for (int p = 0; p < kParts; p++)
#pragma unroll
            for (int q = 0; q < kQuads; q++) {
              const float4 v = __ldcg(from + (p * kQuads + q) * kw::kGroup);
              d[p][4 * q] += v.x;
              d[p][4 * q + 1] += v.y;
              d[p][4 * q + 2] += v.z;
              d[p][4 * q + 3] += v.w;
              if (q % 16 == 15) asm volatile("" ::: "memory");  // sixteen loads in flight
            }
        }
#pragma unroll
      for (int p = 0; p < kParts; p++)
        outbox.send(d[p], c, m0 + (half * kParts + p) * 64, n0, columns);
    }
    kw::tma_store_wait_read<0>();
  }
  cluster.part();
}

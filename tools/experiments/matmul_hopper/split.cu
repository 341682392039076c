// C = A B where tiles are few and k is long: the blocks of a cluster share a tile's k.
//
// Idea: as `persistent`, but each of SPLIT blocks multiplies its part of k. Each then owns a part
// of the columns, and sends the others' sums to their shared memory, where barriers count the
// bytes. It adds up its own in the order of the ranks: the same bits each time, no workspace.
// Traffic: A's rows and B's columns of a tile once; SPLIT - 1 of SPLIT sums cross the cluster.
// Why: 128 rows by 4,096 columns are 32 tiles of 128 x 128, a quarter of the machine.
// Limit: one tile a cluster: nothing overlaps its first loads and its last stores.
#include "kw/matmul.cuh"

namespace kw {

// Sums for this block, from each other block `quads` times 256 threads times four.
template <int QUADS, int SPLIT> struct Parcel {
  static constexpr int kThreads = 256, kMost = (QUADS + SPLIT - 1) / SPLIT;
  static constexpr int kBytes = (SPLIT - 1) * kMost * kThreads * 16;
  static __device__ __forceinline__ constexpr int owner(int quad) { return quad * SPLIT / QUADS; }
  static __device__ __forceinline__ constexpr int begin(int owner) {
    return (owner * QUADS + SPLIT - 1) / SPLIT;
  }
  unsigned char *box;
  int rank, thread;

  static __device__ __forceinline__ int offset(int from, int to, int quad, int thread) {
    const int sender = from < to ? from : from - 1;  // the owner sends itself nothing
    return ((sender * kMost + quad - begin(to)) * kThreads + thread) * 16;
  }
  __device__ __forceinline__ void send(Barrier *full, int to, int quad, float4 v) const {
    asm volatile(
        "{\n.reg .b32 there, barrier;\n"
        "mapa.shared::cluster.u32 there, %0, %2;\n"
        "mapa.shared::cluster.u32 barrier, %1, %2;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
        "[there], {%3, %4, %5, %6}, [barrier];\n}" ::"r"(
            shared_address(box + offset(rank, to, quad, thread))),
        "r"(shared_address(full)), "r"(to), "r"(__float_as_uint(v.x)), "r"(__float_as_uint(v.y)),
        "r"(__float_as_uint(v.z)), "r"(__float_as_uint(v.w))
        : "memory");
  }
  __device__ __forceinline__ float4 from(int sender, int to, int quad) const {
    return *reinterpret_cast<const float4 *>(box + offset(sender, to, quad, thread));
  }
};

}  // namespace kw

template <typename T, int BN, int STAGES, int SPLIT, bool A_K, bool B_K, typename Epilogue>
__global__ void __launch_bounds__(384, 1)
    matmul_split(const __grid_constant__ kw::TensorMap a, const __grid_constant__ kw::TensorMap b,
                 T *__restrict__ c, long long c_stride, kw::Order order, int slabs,
                 Epilogue epilogue) {
  using Cluster = kw::Cluster<1, 1>;  // none of them share a slab
  using Stream = kw::Stream<T, 128, BN, STAGES, 2, Cluster, A_K, B_K>;
  constexpr int kQuads = BN / 8;  // a thread's sums by fours, 8 columns apart
  using Parcel = kw::Parcel<kQuads, SPLIT>;
  extern __shared__ unsigned char raw[];
  __shared__ typename Stream::Barriers barriers;
  __shared__ kw::Barrier arrived;
  unsigned char *shared = raw + (-kw::shared_address(raw) & 1023);
  const int rank = kw::cluster_rank(), group = threadIdx.x / kw::kGroup;
  Stream stream{shared, barriers};
  if (threadIdx.x == 0) {
    arrived.init(1);
    arrived.expect((Parcel::begin(rank + 1) - Parcel::begin(rank)) * (SPLIT - 1) * 256 * 16);
    stream.open();
  }
  __syncthreads();
  kw::cluster_arrive();
  kw::wait_for_previous_kernel();
  kw::let_next_kernel_start();

  const int2 tile = order.place(blockIdx.x / SPLIT);
  const int2 at = order.inside<128, BN>(tile.x * 128, tile.y * BN);
  const int from = slabs * rank / SPLIT, to = slabs * (rank + 1) / SPLIT;  // slabs >= SPLIT
  if (group == 0) {
    kw::give_registers<40>();
    if (threadIdx.x < 32 && kw::elected()) stream.load(a, b, at.x, at.y, from, to, Cluster());
    __syncwarp();
    kw::cluster_wait();
  } else {
    kw::take_registers<232>();
    const int thread = threadIdx.x - kw::kGroup, lane = thread % 32;
    const Parcel parcel{shared + Stream::kBytes, rank, thread};
    const typename Epilogue::template Columns<kQuads> columns(epilogue, at.y + kw::first_column());
    float d[1][BN / 2];
    stream.multiply(d, to - from, group - 1, [] {});
    kw::cluster_wait();  // every block runs, and expects its sums
    const auto quad = [&](int q) {
      return float4{d[0][4 * q], d[0][4 * q + 1], d[0][4 * q + 2], d[0][4 * q + 3]};
    };
#pragma unroll
    for (int q = 0; q < kQuads; q++)
      if (Parcel::owner(q) != rank) parcel.send(&arrived, Parcel::owner(q), q, quad(q));
    arrived.wait_for_cluster(0);
    const int row = at.x + thread / 32 * 16 + lane / 4, col = at.y + kw::first_column();
#pragma unroll
    for (int q = 0; q < kQuads; q++) {
      if (Parcel::owner(q) != rank || col + 8 * q >= order.n) continue;
      float4 sum = {0, 0, 0, 0};
#pragma unroll
      for (int r = 0; r < SPLIT; r++) {
        const float4 v = r == Parcel::owner(q) ? quad(q) : parcel.from(r, Parcel::owner(q), q);
        sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
      }
      const float2 low = columns(make_float2(sum.x, sum.y), q);
      const float2 high = columns(make_float2(sum.z, sum.w), q);
      using Pair = kw::Pair<T>;
      const auto to = [&](int r) {
        return reinterpret_cast<typename Pair::type *>(c + r * c_stride + col + 8 * q);
      };
      if (row < order.m) *to(row) = Pair::from(low.x, low.y);
      if (row + 8 < order.m) *to(row + 8) = Pair::from(high.x, high.y);
    }
  }
}

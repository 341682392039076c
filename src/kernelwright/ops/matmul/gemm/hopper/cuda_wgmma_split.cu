// Few tiles and a long k: the blocks of a cluster divide a tile's k.
//
// Idea: as cuda_wgmma_persistent.cu, but each of SPLIT blocks multiplies its part of k. Each then
// owns a part of the columns, and sends its sums of the other columns to their owners' shared
// memory (st.async), where a barrier counts the bytes. An owner adds the sums in the order of the
// blocks: deterministic, without a workspace or a second kernel.
// Traffic: A's rows and B's columns of a tile once; SPLIT - 1 of SPLIT sums cross the cluster.
// Compared with `cuda_wgmma_persistent`: 128 rows by 4,096 columns are only 32 tiles of 128 x 128,
// which would occupy a quarter of the multiprocessors.
// Limit: one tile per cluster, whose first loads and last stores overlap with nothing.
#include "epilogue.cuh"
#include "pipeline.cuh"

// Sums for this block: `quads` times kThreads times four from each other block. A quad is four sums
// of a thread, in 8 columns of the tile.
template <int QUADS, int SPLIT, int THREADS> struct PartialSums {
  static constexpr int kMost = (QUADS + SPLIT - 1) / SPLIT;
  static constexpr int kQuadBytes = THREADS * 16;
  static __device__ __forceinline__ constexpr int owner(int quad) { return quad * SPLIT / QUADS; }
  static __device__ __forceinline__ constexpr int begin(int owner) {
    return (owner * QUADS + SPLIT - 1) / SPLIT;
  }
  static __device__ __forceinline__ int bytes(int owner) {
    return (begin(owner + 1) - begin(owner)) * (SPLIT - 1) * kQuadBytes;
  }
  unsigned char *buffer;
  int rank, thread;

  static __device__ __forceinline__ int offset(int from, int to, int quad, int thread) {
    const int sender = from < to ? from : from - 1;  // the owner sends nothing to itself
    return (sender * kMost + quad - begin(to)) * kQuadBytes + thread * 16;
  }
  __device__ __forceinline__ void send(kw::Barrier *arrived, int to, int quad, float4 v) const {
    asm volatile(
        "{\n.reg .b32 there, barrier;\n"
        "mapa.shared::cluster.u32 there, %0, %2;\n"
        "mapa.shared::cluster.u32 barrier, %1, %2;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
        "[there], {%3, %4, %5, %6}, [barrier];\n}" ::"r"(
            kw::shared_address(buffer + offset(rank, to, quad, thread))),
        "r"(kw::shared_address(arrived)), "r"(to), "r"(__float_as_uint(v.x)),
        "r"(__float_as_uint(v.y)), "r"(__float_as_uint(v.z)), "r"(__float_as_uint(v.w))
        : "memory");
  }
  __device__ __forceinline__ float4 from(int sender, int to, int quad) const {
    return *reinterpret_cast<const float4 *>(buffer + offset(sender, to, quad, thread));
  }
};

// Rows of results or of an operand of the epilogue, accessed two adjacent elements at a time; rows
// are `stride` elements apart.
template <typename T> struct Rows {
  T *first;
  long long stride;
  __device__ __forceinline__ unsigned load(int row, int col) const {
    return *reinterpret_cast<const unsigned *>(first + row * stride + col);
  }
  __device__ __forceinline__ void store(int row, int col, unsigned bits) const {
    *reinterpret_cast<unsigned *>(first + row * stride + col) = bits;
  }
};

template <typename T, int GROUPS, int BN, int STAGES, int SPLIT, bool A_K, bool B_K,
          typename Epilogue>
__device__ __forceinline__ void split(const kw::Operands &operands, const Rows<T> &c,
                                      const Rows<const T> &gate, const Rows<const T> &residual,
                                      const Rows<T> &z, const kw::TileOrder &order, int slices,
                                      const Epilogue &epilogue) {
  constexpr int kRows = 64 * GROUPS, kQuads = BN / 8;
  using Alone = kw::Cluster<1, 1>;  // the blocks of a cluster load different data
  using Pipeline = kw::Pipeline<T, kRows, BN, STAGES, GROUPS, Alone, A_K, B_K>;
  using Sums = PartialSums<kQuads, SPLIT, GROUPS * kw::kWarpGroup>;
  extern __shared__ unsigned char unaligned[];
  __shared__ typename Pipeline::Barriers barriers;
  __shared__ kw::Barrier arrived;
  unsigned char *shared = unaligned + (-kw::shared_address(unaligned) & 1023);
  const int rank = kw::cluster_rank(), group = threadIdx.x / kw::kWarpGroup;
  Pipeline pipeline{kw::shared_address(shared), barriers};
  if (threadIdx.x == 0) {
    arrived.init(1);
    arrived.expect(Sums::bytes(rank));
    pipeline.init();
  }
  __syncthreads();
  kw::cluster_arrive();

  const kw::Place place = order.place<kRows, BN, A_K>(blockIdx.x / SPLIT, Alone());
  const int from = slices * rank / SPLIT, to = slices * (rank + 1) / SPLIT;  // slices >= SPLIT
  if (group == 0) {
    if (threadIdx.x < 32 && kw::elect_one()) pipeline.load(operands, place, from, to, Alone());
    __syncwarp();
    kw::cluster_wait();
    return;
  }
  const int thread = threadIdx.x - kw::kWarpGroup, lane = thread % 32;
  const Sums sums{shared + Pipeline::kBytes, rank, thread};
  float d[1][BN / 2];
  pipeline.multiply(d, to - from, group - 1, [] {});
  kw::cluster_wait();  // every block runs and is ready to receive sums
  const auto quad = [&](int q) {
    return float4{d[0][4 * q], d[0][4 * q + 1], d[0][4 * q + 2], d[0][4 * q + 3]};
  };
#pragma unroll
  for (int q = 0; q < kQuads; q++)
    if (Sums::owner(q) != rank) sums.send(&arrived, Sums::owner(q), q, quad(q));
  arrived.wait_for_cluster(0);

  const int row = place.row + thread / 32 * 16 + lane / 4, col = place.col + kw::first_column();
  const auto store = [&](float2 v, int r, int x) {
    if (r >= order.m) return;
    unsigned times = 0, plus = 0;
    if constexpr (Epilogue::kGate) times = gate.load(r, x);
    if constexpr (Epilogue::kResidual) plus = residual.load(r, x);
    if constexpr (Epilogue::kKeep) z.store(r, x, kw::packed<T>(v));
    c.store(r, x, kw::packed<T>(epilogue(v, times, plus)));
  };
#pragma unroll
  for (int q = 0; q < kQuads; q++) {
    if (Sums::owner(q) != rank || col + 8 * q >= order.n) continue;
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int r = 0; r < SPLIT; r++) {
      const float4 v = r == Sums::owner(q) ? quad(q) : sums.from(r, Sums::owner(q), q);
      sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
    }
    const float2 bias = kw::unpacked<T>(kw::bias_of(epilogue, col + 8 * q));
    store({sum.x + bias.x, sum.y + bias.y}, row, col + 8 * q);
    store({sum.z + bias.x, sum.w + bias.y}, row + 8, col + 8 * q);
  }
}

template <typename T, int GROUPS, int BN, int STAGES, int SPLIT, bool A_K, bool B_K>
__global__ void __launch_bounds__((1 + GROUPS) * kw::kWarpGroup, 1)
    matmul_split(const __grid_constant__ kw::TensorMap a, const __grid_constant__ kw::TensorMap b,
                 T *c, int m, int n, int rows, int cols, int slices, int bytes) {
  const Rows<T> out{c, n};
  const Rows<const T> none{};
  split<T, GROUPS, BN, STAGES, SPLIT, A_K, B_K>(
      kw::Operands{a, b, bytes, 0, 0}, out, none, none, Rows<T>{},
      kw::TileOrder{unsigned(rows), unsigned(cols), unsigned(rows), m, n}, slices, kw::Plain{});
}

template <typename T, int GROUPS, int BN, int STAGES, int SPLIT, bool A_K, bool B_K, int ACTIVATION,
          bool BIAS, bool GATE, bool RESIDUAL, bool KEEP>
__global__ void __launch_bounds__((1 + GROUPS) * kw::kWarpGroup, 1)
    linear_split(const __grid_constant__ kw::TensorMap a, const __grid_constant__ kw::TensorMap b,
                 T *c, const T *gate, const T *residual, T *z, const T *bias, int m, int n,
                 int rows, int cols, int slices, int bytes, long long gate_stride,
                 long long residual_stride) {
  split<T, GROUPS, BN, STAGES, SPLIT, A_K, B_K>(
      kw::Operands{a, b, bytes, 0, 0}, Rows<T>{c, n}, Rows<const T>{gate, gate_stride},
      Rows<const T>{residual, residual_stride}, Rows<T>{z, n},
      kw::TileOrder{unsigned(rows), unsigned(cols), unsigned(rows), m, n}, slices,
      kw::Linear<T, ACTIVATION, BIAS, GATE, RESIDUAL, KEEP>{a, a, a, bias, n});
}

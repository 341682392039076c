// Groups of rows, each multiplied by its own matrix, on Hopper's tensor cores.
//
// Idea: cuda_wgmma_persistent.cu over the tiles of all groups: a block keeps the ends of the groups
// in shared memory and finds the group of each of its tiles. The copy engine can load rows from any
// group boundary; rows of the next group are multiplied too, but not stored. With `SWIGLU` a tile
// has as many columns of a gate as of values, so that silu(gate) value is computed in registers.
// Traffic: as one product; each matrix once per 128 rows of its group, from L2.
// Compared with a loop over groups: one launch, no partial wave per group, and the host does not
// have to know the ends of the groups.
// Limit: groups of few rows fill only part of a tile; then DRAM bandwidth is the limit.
#include "../gemm/hopper/direct_store.cuh"
#include "../gemm/hopper/pipeline.cuh"
#include "../gemm/hopper/tile_store.cuh"

constexpr int kMostGroups = 1024;

// A tile of a group: its position, its matrix, and the end of the group's rows.
struct GroupTile {
  kw::Place place;
  int end;
};

// Iterates over tiles in ascending order; within a group, column by column.
template <int BM, int BN> struct GroupWalk {
  const int *ends;  // of the rows of each group
  int groups, cols, last_col;
  int group = 0, begin = 0, first = 0;  // the current group, its first row, and its first tile

  __device__ __forceinline__ bool find(int tile, GroupTile &found) {
    for (; group < groups; begin = ends[group++]) {
      const int down = (ends[group] - begin + BM - 1) / BM;
      const int in_group = tile - first;
      if (in_group < down * cols) {
        const int col = in_group / down, row = in_group - col * down;
        found = {{begin + row * BM, min(col * BN, last_col), group}, ends[group]};
        return true;
      }
      first += down * cols;
    }
    return false;
  }
};

// Called by one thread: loads all slices of a tile. Half of its columns are those of a gate; the
// other half are the values, which are `n` rows of B further.
template <int BN, typename Pipeline>
__device__ __forceinline__ void load_halves(Pipeline &pipeline, const kw::TensorMap &a,
                                            const kw::TensorMap &b, const kw::Place &place, int n,
                                            int slices, int bytes) {
  constexpr int kA = Pipeline::A::kBytes, kHalf = Pipeline::B::kBytes / 2;
  for (int slice = 0; slice < slices; slice++, pipeline.at.advance()) {
    const int stage = pipeline.at.stage, k = slice * kw::kSlice;
    const unsigned to = pipeline.ring + stage * Pipeline::kStage;
    kw::Barrier *full = &pipeline.barriers.full[stage];
    pipeline.barriers.empty[stage].wait(pipeline.at.parity ^ 1);
    full->expect(bytes);
    kw::tma_load(to, a, full, k, place.row, 0);
    kw::tma_load(to + kA, b, full, k, place.col, place.batch);
    kw::tma_load(to + kA + kHalf, b, full, k, n + place.col, place.batch);
  }
}

// The first half of each row of sums becomes silu(first half) times the second half.
template <typename T, int PARTS, int N>
__device__ __forceinline__ void gate(const float (&d)[PARTS][N], float (&gated)[PARTS][N / 2]) {
#pragma unroll
  for (int p = 0; p < PARTS; p++)
#pragma unroll
    for (int i = 0; i < N / 2; i++) gated[p][i] = kw::silu<T>(d[p][i]) * d[p][i + N / 2];
}

// Stores a warp group's rows: by the copy engine if all belong to the group, else those that do.
template <typename T, typename Store, int PARTS, int N>
__device__ __forceinline__ void put(Store &store, const float (&d)[PARTS][N], T *c,
                                    const kw::Place &place, int end, int n) {
  if (place.row + 64 * PARTS <= end) {
    store.store(d, place);
    return;
  }
#pragma unroll
  for (int p = 0; p < PARTS; p++)
    kw::store_directly(d[p], c, place.row + 64 * p, place.col, end, n);
}

template <typename T, int BM, int BN, int STAGES, int BOXES, int GROUPS, bool B_K, bool SWIGLU>
__global__ void __launch_bounds__((1 + GROUPS) * kw::kWarpGroup, 1)
    matmul_grouped(const __grid_constant__ kw::TensorMap a, const __grid_constant__ kw::TensorMap b,
                   const __grid_constant__ kw::TensorMap c_map, T *__restrict__ c,
                   const int *__restrict__ offsets, int groups, int n, int cols, int slices,
                   int bytes) {
  static_assert(B_K || !SWIGLU, "gate and values are rows of a matrix");
  constexpr int kOut = SWIGLU ? BN / 2 : BN;  // columns of a tile's result
  using Cluster = kw::Cluster<1, 1>;
  using Pipeline = kw::Pipeline<T, BM, BN, STAGES, GROUPS, Cluster, true, B_K>;
  using Store = kw::TileStore<T, kOut, Pipeline::kParts, BOXES, kw::Plain>;
  extern __shared__ unsigned char unaligned[];
  __shared__ typename Pipeline::Barriers barriers;
  __shared__ typename Store::Shared store_shared[GROUPS];
  __shared__ int ends[kMostGroups];
  const unsigned shared = (kw::shared_address(unaligned) + 1023) & ~1023u;
  const int group = threadIdx.x / kw::kWarpGroup, share = group - 1;
  const Cluster cluster;
  const kw::Plain plain;
  Pipeline pipeline{shared, barriers};
  Store store{shared + Pipeline::kBytes + share * Store::kBytes, store_shared[max(share, 0)], group,
              c_map, plain};
  for (int i = threadIdx.x; i < groups; i += blockDim.x) ends[i] = offsets[i];
  if (threadIdx.x == 0) pipeline.init();
  cluster.sync();

  GroupWalk<BM, kOut> walk{ends, groups, cols, max(0, n - kOut)};
  GroupTile tile;
  if (group == 0) {
    if (GROUPS > 1) kw::decrease_registers<40>();
    if (threadIdx.x < 32 && kw::elect_one())
      for (int i = blockIdx.x; walk.find(i, tile); i += gridDim.x) {
        if constexpr (SWIGLU)
          load_halves<BN>(pipeline, a, b, tile.place, n, slices, bytes);
        else
          pipeline.load(kw::Operands{a, b, bytes, 0, 1}, tile.place, 0, slices, cluster);
      }
  } else {
    if (GROUPS > 1) kw::increase_registers<232>();
    for (int i = blockIdx.x; walk.find(i, tile); i += gridDim.x) {
      float d[Pipeline::kParts][BN / 2];
      pipeline.multiply(d, slices, share, [] {});
      kw::Place place{tile.place.row + share * Pipeline::kParts * 64, tile.place.col, 0};
      if constexpr (SWIGLU) {
        float gated[Pipeline::kParts][kOut / 2];
        gate<T>(d, gated);
        put<T>(store, gated, c, place, tile.end, n);
      } else {
        put<T>(store, d, c, place, tile.end, n);
      }
    }
    store.finish();
  }
}

// Stores a tile from registers to memory.
#pragma once
#include "epilogue.cuh"
#include "tiles.cuh"

namespace kw {

// A warp group's PARTS x 64 rows by BN columns are stored in pieces of 64 x 64 (the last one
// overlaps the one before it if BN is not a multiple of 64) through a ring of slots in shared
// memory, with one box per tensor that is loaded or stored. Threads write with stmatrix, swizzled
// as the copy engine reads it; one thread issues the store. The copy engine loads the epilogue's
// operands in advance, and the result takes their place.
template <typename T, int BN, int PARTS, int BOXES, typename Epilogue> struct TileStore {
  static constexpr int kBox = 64 * 128, kBytes = BOXES * kBox;
  static constexpr int kAcross = (BN + 63) / 64, kPieces = PARTS * kAcross;
  static constexpr int kLoads = Epilogue::kLoads, kKeep = Epilogue::kKeep;
  static constexpr int kPerSlot = (kLoads > 1 ? kLoads : 1) + kKeep, kSlots = BOXES / kPerSlot;
  static constexpr int kResult = kLoads > 1 ? 1 : 0, kKept = kPerSlot - 1;  // boxes per slot
  static_assert(kSlots > 0, "a slot needs more boxes");

  struct Shared {
    Barrier loaded[kLoads > 0 ? kSlots : 1];
    unsigned bias[Epilogue::kBias ? BN / 2 : 1];
  };
  unsigned boxes;  // shared_address() of the boxes
  Shared &shared;
  int named_barrier;  // barrier of the warp group
  const TensorMap &c;
  const Epilogue &epilogue;
  int slot = 0;
  unsigned parities = 0;  // parity of each slot's next load

  // Called by one thread, before all threads of the block synchronize.
  __device__ __forceinline__ void init() {
    if constexpr (kLoads > 0) {
      for (int s = 0; s < kSlots; s++) shared.loaded[s].init(1);
      fence_barrier_init();
    }
  }

  // Called before the product: starts loading the operands of the tile's first pieces, and its
  // bias.
  __device__ __forceinline__ void prefetch(const Place &tile) {
    if constexpr (Epilogue::kBias) {
      for (int i = threadIdx.x % kWarpGroup; i < BN / 2; i += kWarpGroup)
        shared.bias[i] = bias_of(epilogue, tile.col + 2 * i);
      named_barrier_sync(named_barrier, kWarpGroup);
    }
    if constexpr (kLoads > 0) {
      if (!issues()) return;
      tma_store_wait_read<0>();
#pragma unroll
      for (int i = 0; i < kSlots && i < kPieces; i++) load(i, (slot + i) % kSlots, tile);
    }
  }

  // Called after the product.
  template <int N>
  __device__ __forceinline__ void store(const float (&d)[PARTS][N], const Place &tile) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % kWarpGroup / 32 * 16 + lane % 16;
#pragma unroll
    for (int piece = 0; piece < kPieces; piece++) {
      if constexpr (kLoads > 0) {
        shared.loaded[slot].wait(parities >> slot & 1);
        parities ^= 1u << slot;
      }
#pragma unroll
      for (int j = 0; j < 4; j++)  // 16 columns
        convert(d[piece / kAcross], column(piece) / 8 + 2 * j,
                row * 128 + ((2 * j + lane / 16) ^ (row % 8)) * 16);
      fence_proxy_async();
      const bool issuing = issues();
      // the next slot has been read, so that after the barrier all threads may write to it
      if (issuing && kLoads == 0) tma_store_wait_read<(kSlots > 1 ? kSlots - 2 : 0)>();
      named_barrier_sync(named_barrier, kWarpGroup);
      if (issuing) {
        const int to_col = tile.col + column(piece), to_row = tile.row + piece / kAcross * 64;
        tma_store(c, box(slot, kResult), to_col, to_row, tile.batch);
        if constexpr (kKeep) tma_store(epilogue.z, box(slot, kKept), to_col, to_row, tile.batch);
        tma_store_commit();
        if (kSlots == 1) tma_store_wait_read<0>();
        if constexpr (kLoads > 0) load_ahead(piece, tile);
      }
      if (kSlots == 1 && kLoads == 0) named_barrier_sync(named_barrier, kWarpGroup);
      if (++slot == kSlots) slot = 0;
    }
  }

  // Called before the block exits: its shared memory must have been read.
  __device__ __forceinline__ void finish() {
    if (issues()) tma_store_wait_read<0>();
  }

 private:
  static __device__ __forceinline__ bool issues() {
    return threadIdx.x % kWarpGroup / 32 == 0 && elect_one();
  }
  static __device__ __forceinline__ constexpr int column(int piece) {
    return piece % kAcross * 64 < BN - 64 ? piece % kAcross * 64 : BN - 64;
  }
  __device__ __forceinline__ unsigned box(int slot, int i) const {
    return boxes + (slot * kPerSlot + i) * kBox;
  }

  // Called by the issuing thread: loads the operands of a piece of the tile.
  __device__ __forceinline__ void load(int piece, int to, const Place &tile) {
    const int col = tile.col + column(piece), row = tile.row + piece / kAcross * 64;
    shared.loaded[to].expect(kLoads * kBox);
    if constexpr (Epilogue::kGate)
      tma_load(box(to, 0), epilogue.gate, &shared.loaded[to], col, row, tile.batch);
    if constexpr (Epilogue::kResidual)
      tma_load(box(to, kResult), epilogue.residual, &shared.loaded[to], col, row, tile.batch);
  }
  // Loads the slot of a piece that has been stored again; if there are enough slots, that of the
  // previous piece, so that this one can be read in the meantime.
  __device__ __forceinline__ void load_ahead(int piece, const Place &tile) {
    if constexpr (kSlots == 1) {
      if (piece + 1 < kPieces) load(piece + 1, 0, tile);
    } else {
      if (piece == 0 || piece - 1 + kSlots >= kPieces) return;
      tma_store_wait_read<1>();
      load(piece - 1 + kSlots, (slot + kSlots - 1) % kSlots, tile);
    }
  }

  // Writes 16 columns of a piece, the first of which is 8 `pair`, at `offset` of a box.
  template <int N>
  __device__ __forceinline__ void convert(const float (&d)[N], int pair, int offset) const {
    unsigned result[4], gate[4] = {}, residual[4] = {};
    if constexpr (kKeep) {
#pragma unroll
      for (int i = 0; i < 4; i++) result[i] = packed<T>(sums(d, pair, i));
      store_matrices(box(slot, kKept) + offset, result);
    }
    if constexpr (Epilogue::kGate) load_matrices(gate, box(slot, 0) + offset);
    if constexpr (Epilogue::kResidual) load_matrices(residual, box(slot, kResult) + offset);
#pragma unroll
    for (int i = 0; i < 4; i++)
      result[i] = packed<T>(epilogue(sums(d, pair, i), gate[i], residual[i]));
    store_matrices(box(slot, kResult) + offset, result);
  }

  // Two adjacent elements of z: of matrix i of the four that start at column 8 `pair`.
  template <int N>
  __device__ __forceinline__ float2 sums(const float (&d)[N], int pair, int i) const {
    const int at = (pair + i / 2) * 4 + i % 2 * 2;
    if constexpr (!Epilogue::kBias) return {d[at], d[at + 1]};
    const float2 b = unpacked<T>(shared.bias[(pair + i / 2) * 4 + threadIdx.x % 4]);
    return {d[at] + b.x, d[at + 1] + b.y};
  }
};

}  // namespace kw

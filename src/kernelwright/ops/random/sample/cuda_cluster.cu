// A row in the registers and the shared memory of a cluster's blocks.
//
// Idea: `cuda_block`, with the blocks of a cluster sharing a row. A thread keeps its vectors, the
// first of them in registers; the others stay in shared memory, where no other thread reads them.
// What a pass finds goes through each other's shared memory, one word a block.
// Traffic: the row once from DRAM.
// Over `cuda_block`: passes cost instructions only, and few rows fill more of the GPU.
// Limit: exchanges between passes for few rows, instructions for many. Rows that eight blocks hold,
// and compute capability 9.0.
#include "rejection.cuh"

constexpr int kInRegisters = 2;  // vectors of a thread; more would be spilled

template <typename T, int VECS, int THREADS, int BLOCKS> struct KeptRow {
  static constexpr int kWidth = kw::kVecWidth<T>;
  static constexpr int kFew = VECS < kInRegisters ? VECS : kInRegisters;
  using Values = const float (&)[kWidth];
  using Piece = kw::Vec<T, kWidth>;
  const T *row;
  Piece *rest;  // the thread's vectors in shared memory
  Piece kept[kFew];

  __device__ __forceinline__ void load(int columns, bool aligned) {
#pragma unroll
    for (int v = 0; v < kFew; ++v) kept[v] = kw::load_logits(row, place(v), columns, aligned);
#pragma unroll 4
    for (int v = kFew; v < VECS; ++v)
      rest[(v - kFew) * THREADS] = kw::load_logits(row, place(v), columns, aligned);
  }
  template <typename F> __device__ __forceinline__ void each(const F &f) const {
    float x[kWidth];
#pragma unroll
    for (int v = 0; v < kFew; ++v) {
      kw::to_logits<T>(kept[v], x);
      f(place(v), x);
    }
#pragma unroll 1
    for (int v = kFew; v < VECS; ++v) {
      kw::to_logits<T>(rest[(v - kFew) * THREADS], x);
      f(place(v), x);
    }
  }
  __device__ __forceinline__ float at(unsigned col) const {
    return kw::logit(kw::to_float(row[col]));
  }
  static __device__ __forceinline__ int place(int v) {
    return ((blockIdx.x % BLOCKS * VECS + v) * THREADS + threadIdx.x) * kWidth;
  }
};

template <typename T, int VECS, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS)
    sample_cluster(const T *logits, const long long *state, const float *each, long long *token,
                   int columns, long long stride, int aligned, float temperature, float top_k,
                   float top_p, float min_p) {
  extern __shared__ uint4 dynamic_shared[];
  using Row = KeptRow<T, VECS, THREADS, BLOCKS>;
  using Team = kw::Team<THREADS / 32, BLOCKS>;
  __shared__ typename Team::Shared shared;
  Team team(shared);
  const long long row = blockIdx.x / BLOCKS;
  Row x;
  x.row = logits + row * stride;
  x.rest = reinterpret_cast<typename Row::Piece *>(dynamic_shared) + threadIdx.x;
  x.load(columns, aligned);
  const kw::How how = kw::how_of(each, row, {temperature, top_k, top_p, min_p});
  const kw::Stream stream(state);
  team.ready();
  const long long found = kw::draw_token<T>(x, team, stream, row, how, unsigned(columns));
  if (threadIdx.x == 0 && blockIdx.x % BLOCKS == 0) token[row] = found;
}

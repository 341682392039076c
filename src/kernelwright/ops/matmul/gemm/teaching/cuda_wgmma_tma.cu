// TMA loads, several slices ahead.
//
// Idea: as cuda_wgmma.cu, but one thread requests whole boxes from the copy engine, which computes
// addresses, swizzles, writes zeros for elements outside, and counts bytes in a barrier in shared
// memory (mbarrier) on which all wait. One of STAGES slices is multiplied while others arrive.
// Traffic: as `cuda_wgmma`.
// Compared with `cuda_wgmma`: threads compute no addresses and hold no operands in transit; memory
// accesses and tensor cores overlap.
// Limit: a slice is requested only after all threads have synchronized; a block's first loads and
// last stores overlap only with the work of another block.
#include "../hopper/direct_store.cuh"
#include "../hopper/pipeline.cuh"

template <typename T, int BN, int STAGES, bool A_K, bool B_K>
__global__ void __launch_bounds__(256)
    matmul_wgmma_tma(const __grid_constant__ kw::TensorMap a,
                     const __grid_constant__ kw::TensorMap b, T *c, int m, int n, int slices,
                     int bytes, int a_batched, int b_batched) {
  using A = kw::OperandTile<A_K, 128, 1>;
  using B = kw::OperandTile<B_K, BN, 1>;
  constexpr int kStage = A::kBytes + B::kBytes;
  extern __shared__ unsigned char unaligned[];
  __shared__ kw::Barrier full[STAGES];
  const unsigned shared = (kw::shared_address(unaligned) + 1023) & ~1023u;
  const int group = threadIdx.x / kw::kWarpGroup;
  const int row = blockIdx.y * 128, col = blockIdx.x * BN, batch = blockIdx.z;
  const auto load = [&](int slice) {
    const int stage = slice % STAGES;
    const unsigned to = shared + stage * kStage;
    full[stage].expect(bytes);
    A::load(to, a, &full[stage], row, slice * kw::kSlice, batch * a_batched, 0, 0);
    B::load(to + A::kBytes, b, &full[stage], col, slice * kw::kSlice, batch * b_batched, 0, 0);
  };
  if (threadIdx.x == 0) {
    for (auto &barrier : full) barrier.init(1);
    kw::fence_barrier_init();
    for (int slice = 0; slice < STAGES && slice < slices; slice++) load(slice);
  }
  __syncthreads();

  kw::RingPosition<STAGES> at;
  float d[BN / 2];
  for (int slice = 0; slice < slices; slice++, at.advance()) {
    full[at.stage].wait(at.parity);
    const unsigned from = shared + at.stage * kStage;
    const auto of_a = kw::Operand<A_K>::descriptor(from + group * 64 * 128);
    const auto of_b = kw::Operand<B_K>::descriptor(from + A::kBytes);
    kw::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++)
      kw::Wgmma<T, BN>::template mma<A_K, B_K>(d, of_a + kw::Operand<A_K>::step(i),
                                               of_b + kw::Operand<B_K>::step(i),
                                               slice > 0 || i > 0);
    kw::wgmma_commit();
    kw::wgmma_wait<1>();  // the previous slice has been read
    __syncthreads();
    if (threadIdx.x == 0 && slice > 0 && slice - 1 + STAGES < slices) load(slice - 1 + STAGES);
  }
  kw::wgmma_wait<0>();
  kw::pin(d);
  kw::store_directly(d, c + static_cast<long long>(batch) * m * n, row + group * 64, col, m, n);
}

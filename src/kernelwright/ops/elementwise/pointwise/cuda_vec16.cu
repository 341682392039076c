// 16-byte vectors, several in flight: float4 and half8.
//
// Idea: each thread loads UNROLL independent vectors of every operand before it uses the first, so
// that an SM has its 30 KB in flight; addresses are computed once a vector.
// Traffic: every operand read once, every result written once, four 128-byte lines to a warp's
// instruction.
// Over `triton_block`: full vectors at any size, and loads that the compiler does not reorder.
// Limit: DRAM. STREAM adds an evict-first hint to each access.
#include "formulas.cuh"

template <typename F, typename T, int BLOCK, int UNROLL, bool STREAM, typename... Pointers>
__global__ void __launch_bounds__(BLOCK) elementwise_vec16(long long n, Pointers... p) {
  kw::map_flat<F, T, BLOCK, UNROLL, STREAM>({p...}, n);
}

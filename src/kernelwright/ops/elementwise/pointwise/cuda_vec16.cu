// 16-byte vectors, several in flight: float4 and half8.
//
// Idea: each thread loads UNROLL independent vectors of every operand before it uses the first, so
// that an SM has the 30 KB in flight that it needs; addresses are computed once per vector.
// Traffic: every operand read once, every result written once; an instruction of a warp accesses
// four 128-byte lines.
// Compared with `triton_block`: whole vectors for any size, and loads that the compiler does not
// reorder.
// Limit: DRAM bandwidth. STREAM adds an evict-first hint to each access.
#include "formulas.cuh"

template <typename F, typename T, int BLOCK, int UNROLL, bool STREAM, typename... Pointers>
__global__ void __launch_bounds__(BLOCK) elementwise_vec16(long long n, Pointers... p) {
  kw::map_flat<F, T, BLOCK, UNROLL, STREAM>({p...}, n);
}

// The keys of a head shared by a cluster of blocks (compute capability 9.0).
//
// Idea: with few sequences a head's keys are split among up to eight blocks, so that all SMs read.
// Their means meet in the shared memory of the cluster's first block. Traffic: as cuda_block's.
// Over splitting with a second kernel that merges (Flash-Decoding): one launch, and no partial
// result in global memory. Limit: eight blocks for a head; the latency of a load, of the merge and
// of the launch where a sequence is short.
#include "decode.cuh"

template <typename T, int LANES, int R, int WARPS, int CLUSTER, int UNROLL>
__global__ void __launch_bounds__(WARPS * 32)
    decode_cluster(const T *q, const T *k, const T *v, T *k_cache, T *v_cache,
                   const long long *lengths, T *y, decode::Call c, float scale) {
  decode::attend<T, LANES, R, WARPS, CLUSTER, UNROLL>(q, k, v, k_cache, v_cache, lengths, y, c,
                                                      scale);
}

// The keys of a head divided among the blocks of a cluster (compute capability 9.0).
//
// Idea: if there are few sequences, the keys of a head are divided among up to eight blocks, so
// that all SMs read. Their weighted means are merged in the shared memory of the cluster's first
// block.
// Traffic: as `cuda_block`.
// Compared with `cuda_block`: up to eight blocks per head. Compared with a second kernel that
// merges (Flash-Decoding): one launch, and no partial results in global memory.
// Limit: eight blocks per head; for short sequences, the latency of a load, of the merge and of the
// launch.
#include "decode.cuh"

template <typename T, int LANES, int R, int WARPS, int CLUSTER, int UNROLL>
__global__ void __launch_bounds__(WARPS * 32)
    decode_cluster(const T *q, const T *k, const T *v, T *k_cache, T *v_cache,
                   const long long *lengths, T *y, decode::Call c, float scale) {
  decode::attend<T, LANES, R, WARPS, CLUSTER, UNROLL>(q, k, v, k_cache, v_cache, lengths, y, c,
                                                      scale);
}

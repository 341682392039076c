// One block per head of the cache and up to R of its queries, in one launch that stores the new
// token and computes attention.
//
// Idea: a single query is not enough for a tensor core tile, so lanes multiply. A few lanes hold a
// key as 16-byte vectors, a warp has several keys, and each lane has several loads in flight. Every
// warp keeps a running maximum and rescales (online softmax); the weighted means of the warps are
// merged in shared memory.
// Traffic: the occupied part of the cache once.
// Compared with `native`: one kernel instead of four, no mask, and positions after a sequence's end
// are not read.
// Limit: with few sequences, one block per sequence and head has too few loads in flight.
#include "decode.cuh"

template <typename T, int LANES, int R, int WARPS, int UNROLL>
__global__ void __launch_bounds__(WARPS * 32)
    decode_block(const T *q, const T *k, const T *v, T *k_cache, T *v_cache,
                 const long long *lengths, T *y, decode::Call c, float scale) {
  decode::attend<T, LANES, R, WARPS, 1, UNROLL>(q, k, v, k_cache, v_cache, lengths, y, c, scale);
}

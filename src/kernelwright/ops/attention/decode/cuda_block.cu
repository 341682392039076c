// One block for each head of the cache and up to R of its queries: one launch that stores the new
// token and attends.
//
// Idea: a query of one token is no tile for tensor cores, so lanes multiply. A few lanes hold a key
// as 16-byte vectors, a warp has several keys, and several loads of each lane are under way at
// once. Every warp keeps a running maximum and rescales (online softmax); the warps' means are
// merged in shared memory. Traffic: the occupied part of the cache once. Over `native`: one kernel
// for four, no mask, and nothing beyond a sequence's length is read. Limit: one block for a
// sequence's head cannot keep enough loads under way where there are few sequences.
#include "decode.cuh"

template <typename T, int LANES, int R, int WARPS, int UNROLL>
__global__ void __launch_bounds__(WARPS * 32)
    decode_block(const T *q, const T *k, const T *v, T *k_cache, T *v_cache,
                 const long long *lengths, T *y, decode::Call c, float scale) {
  decode::attend<T, LANES, R, WARPS, 1, UNROLL>(q, k, v, k_cache, v_cache, lengths, y, c, scale);
}

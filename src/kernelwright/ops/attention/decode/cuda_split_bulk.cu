// Persistent blocks take equal shares of all keys; the copy engine fills their rings.
//
// Idea: one block on each multiprocessor takes an equal share of all sequences' keys, computed on
// the GPU from their lengths. Producer warps start bulk copies (cp.async.bulk) of whole strips:
// 16 positions of one head, or a position of up to 8 heads. They are stages ahead, across
// sequences; barriers count bytes. The other warps multiply on tensor cores as in `cuda_split_mma`.
// The last block of a sequence's head merges its parts. Traffic: the occupied part of the cache
// once, and for each block up to two results in L2. Over `cuda_split_mma`: long requests without
// registers or instructions of the warps that multiply, no gaps between blocks, and equal work
// where lengths differ. Limit: the cache's bytes; heads or positions must be contiguous in memory.
#include "../paged/split/stream.cuh"

// Positions of a sequence's heads, of which the last, the new token's, is not read from the cache.
struct CacheRows {
  static constexpr bool kNew = true;
  const char *k, *v, *new_k, *new_v;
  long long k_row, v_row;  // bytes

  __device__ __forceinline__ const char *key(int token) const { return k + token * k_row; }
  __device__ __forceinline__ const char *value(int token) const { return v + token * v_row; }
};

template <class G> struct CacheCall {
  using S = typename G::S;
  using T = typename S::T;
  const T *q, *k, *v;
  T *k_cache, *v_cache, *y;
  float *sums;
  split::State *states;
  unsigned *arrived;
  long long q_b, q_h, k_b, k_h, v_b, v_h, k_cache_b, k_cache_h, k_row, v_cache_b, v_cache_h, v_row;
  long long positions;
  int heads, group, chunks;

  // An item is a set of heads and a chunk of each head's queries.
  __device__ __forceinline__ long long head(const split::Piece &p) const {
    return static_cast<long long>(p.item / chunks) * G::kHeads;
  }
  __device__ __forceinline__ int first(const split::Piece &p) const {
    return p.item % chunks * S::kQueries;
  }
  __device__ __forceinline__ CacheRows rows(const split::Piece &p) const {
    const auto bytes = [](const T *p) { return reinterpret_cast<const char *>(p); };
    return {bytes(k_cache + p.sequence * k_cache_b + head(p) * k_cache_h),
            bytes(v_cache + p.sequence * v_cache_b + head(p) * v_cache_h),
            bytes(k + p.sequence * k_b + head(p) * k_h),
            bytes(v + p.sequence * v_b + head(p) * v_h),
            2 * k_row,
            2 * v_row};
  }
  __device__ __forceinline__ const T *queries(const split::Piece &p) const {
    return q + p.sequence * q_b + ((head(p) + G::head()) * group + first(p)) * q_h;
  }
  __device__ __forceinline__ long long next_query() const { return q_h; }
  __device__ __forceinline__ int mine(const split::Piece &p) const {
    return min(S::kQueries, group - first(p));
  }
  __device__ __forceinline__ split::Target<T> target(const split::Piece &p) const {
    const long long sequence = p.sequence, query = (sequence * heads + head(p)) * group + first(p);
    const long long item = sequence * (heads / G::kHeads * chunks) + p.item;
    return {y + query * S::kDv, nullptr, sums, states, arrived + item, mine(p), group, 1.0f, false};
  }
  // The new token's row is stored by the block that begins the sequence's first chunk of queries.
  __device__ __forceinline__ void before(const split::Piece &p) const {
    assert(p.tokens > 0 && p.tokens <= positions &&
           "cache_seqlens: a sequence has no position left");
    constexpr int kUnits = S::kD / 8;
    if (p.begin || p.item % chunks) return;
    const long long to = p.tokens - 1;
    for (int i = threadIdx.x; i < G::kHeads * kUnits; i += 32 * S::kWarps) {
      const long long of = head(p) + i / kUnits;
      const int at = i % kUnits * 8;
      kw::store(k_cache + p.sequence * k_cache_b + of * k_cache_h + to * k_row + at,
                kw::load<T, 8>(k + p.sequence * k_b + of * k_h + at));
      kw::store(v_cache + p.sequence * v_cache_b + of * v_cache_h + to * v_row + at,
                kw::load<T, 8>(v + p.sequence * v_b + of * v_h + at));
    }
  }
};

// Strides in elements.
template <class G, int BLOCKS>
__global__ void __launch_bounds__(G::kThreads, BLOCKS)
    decode_split_bulk(const typename G::S::T *q, const typename G::S::T *k,
                      const typename G::S::T *v, typename G::S::T *k_cache,
                      typename G::S::T *v_cache, const long long *lengths, typename G::S::T *y,
                      float *sums, split::State *states, unsigned *arrived, long long q_b,
                      long long q_h, long long k_b, long long k_h, long long v_b, long long v_h,
                      long long k_cache_b, long long k_cache_h, long long k_row,
                      long long v_cache_b, long long v_cache_h, long long v_row,
                      long long positions, int sequences, int heads, int group, int chunks,
                      float scale) {
  extern __shared__ uint4 dynamic_shared[];
  const CacheCall<G> call = {q,         k,         v,         k_cache, v_cache,   y,         sums,
                             states,    arrived,   q_b,       q_h,     k_b,       k_h,       v_b,
                             v_h,       k_cache_b, k_cache_h, k_row,   v_cache_b, v_cache_h, v_row,
                             positions, heads,     group,     chunks};
  split::stream<G>(reinterpret_cast<char *>(dynamic_shared),
                   split::Lengths<long long>{lengths, sequences, 1}, call,
                   heads / G::kHeads * chunks, scale);
}

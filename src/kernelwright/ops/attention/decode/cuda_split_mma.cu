// Keys split among blocks and warps, products on tensor cores, the parts merged in the same launch.
//
// Idea: query heads that share a head of the cache are rows and then columns of mma.sync, 8 or a
// multiple, so that 16 bytes of a key are multiplied once for all of them.
// cp.async copies whole rows of keys and values to rings in shared memory of which each warp has
// its own, several tiles ahead. The last block of a head merges the parts.
// Traffic: the occupied part of the cache once, and for each split a result of float32 in L2.
// Over `cuda_cluster`: no multiplications and shuffles of lanes for each query, more bytes in
// flight, and as many blocks for a head as fill the GPU.
// Limit: the cache's bytes; with short sequences the latency of a launch and of the merge.
#include "../paged/split/attend.cuh"

// A sequence's positions, of which the last, the new token's, is not read from the cache.
struct Positions {
  const char *k, *v, *new_k, *new_v;
  int k_row, v_row, last;

  __device__ __forceinline__ int place(int) const { return 0; }
  __device__ __forceinline__ void find(int first, int, long long &of_k, long long &of_v) const {
    of_k = static_cast<long long>(first) * k_row;
    of_v = static_cast<long long>(first) * v_row;
  }
  __device__ __forceinline__ const char *key(const char *from, int token, int at) const {
    return token == last ? new_k + at : from;
  }
  __device__ __forceinline__ const char *value(const char *from, int token, int at) const {
    return token == last ? new_v + at : from;
  }
};

// Strides in elements.
template <class S, int BLOCKS>
__global__ void __launch_bounds__(S::kWarps * 32, BLOCKS)
    decode_split_mma(const typename S::T *q, const typename S::T *k, const typename S::T *v,
                     typename S::T *k_cache, typename S::T *v_cache, const long long *lengths,
                     typename S::T *y, float *sums, split::State *states, unsigned *arrived,
                     long long q_b, long long q_h, long long k_b, long long k_h, long long v_b,
                     long long v_h, long long k_cache_b, long long k_cache_h, long long k_row,
                     long long v_cache_b, long long v_cache_h, long long v_row, long long positions,
                     int heads, int group, int chunks, int splits, float scale) {
  extern __shared__ uint4 dynamic_shared[];
  using T = typename S::T;
  const int chunk = blockIdx.x % chunks, part = blockIdx.x / chunks % splits;
  const long long pair = blockIdx.x / chunks / splits;  // of a sequence and a head of the cache
  const int head = pair % heads, first = chunk * S::kQueries;
  const long long b = pair / heads, item = pair * chunks + chunk, length = lengths[b];
  const long long query = pair * group + first, parts = item * splits * S::kQueries;
  assert(length >= 0 && length < positions && "cache_seqlens: a sequence has no position left");
  k += b * k_b + head * k_h;
  v += b * v_b + head * v_h;
  k_cache += b * k_cache_b + head * k_cache_h;
  v_cache += b * v_cache_b + head * v_cache_h;
  if (part == 0 && chunk == 0 && threadIdx.x < S::kD / 8) {
    const int at = threadIdx.x * 8;
    kw::store(k_cache + length * k_row + at, kw::load<T, 8>(k + at));
    kw::store(v_cache + length * v_row + at, kw::load<T, 8>(v + at));
  }
  const auto bytes = [](const T *p) { return reinterpret_cast<const char *>(p); };
  const Positions rows = {bytes(k_cache),
                          bytes(v_cache),
                          bytes(k),
                          bytes(v),
                          static_cast<int>(2 * k_row),
                          static_cast<int>(2 * v_row),
                          static_cast<int>(length)};
  const split::Results<T> results = {y + query * S::kDv,
                                     nullptr,
                                     sums + parts * S::kDv,
                                     states + parts,
                                     arrived + item,
                                     min(S::kQueries, group - first),
                                     splits,
                                     part,
                                     1.0f,
                                     false};
  split::decode<S>(reinterpret_cast<char *>(dynamic_shared),
                   q + b * q_b + (head * group + first) * q_h, q_h, rows,
                   static_cast<int>(length) + 1, scale, results);
}

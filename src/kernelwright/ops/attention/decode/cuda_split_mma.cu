// Keys split among blocks and warps, products on tensor cores, the parts merged in the same launch.
//
// Idea: query heads that share a head of the cache are rows and then columns of mma.sync, 8 or a
// multiple, so that 16 bytes of a key are multiplied once for all of them.
// cp.async copies keys and values to rings in shared memory of which each lane has its own, several
// tiles ahead. The last block of a head merges the parts.
// Traffic: the occupied part of the cache once, and for each split a result of float32 in L2.
// Over `cuda_cluster`: no multiplications and shuffles of lanes for each query, more bytes in
// flight, and as many blocks for a head as fill the GPU.
// Limit: the cache's bytes; with short sequences the latency of a launch and of the merge.
#include "../paged/split/attend.cuh"

// Elements from one sequence, head and position to the next.
struct Strides {
  long long b, h, row;
};
struct Call {
  Strides q, k, v, k_cache, v_cache;
  long long positions;
  int heads, group, chunks, splits;
};

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

template <class S, int BLOCKS>
__global__ void __launch_bounds__(S::kWarps * 32, BLOCKS)
    decode_split_mma(const typename S::T *q, const typename S::T *k, const typename S::T *v,
                     typename S::T *k_cache, typename S::T *v_cache, const long long *lengths,
                     typename S::T *y, float *sums, split::State *states, unsigned *arrived, Call c,
                     float scale) {
  using T = typename S::T;
  extern __shared__ uint4 dynamic_shared[];
  const int chunk = blockIdx.x % c.chunks, part = blockIdx.x / c.chunks % c.splits;
  const long long pair = blockIdx.x / c.chunks / c.splits;  // of a sequence and a head of the cache
  const int head = pair % c.heads, first = chunk * S::kQueries;
  const long long b = pair / c.heads, item = pair * c.chunks + chunk;
  const long long query = pair * c.group + first, length = lengths[b];
  assert(length >= 0 && length < c.positions && "cache_seqlens: a sequence has no position left");
  k += b * c.k.b + head * c.k.h;
  v += b * c.v.b + head * c.v.h;
  k_cache += b * c.k_cache.b + head * c.k_cache.h;
  v_cache += b * c.v_cache.b + head * c.v_cache.h;
  if (part == 0 && chunk == 0 && threadIdx.x < S::kD / 8) {
    const int at = threadIdx.x * 8;
    kw::store(k_cache + length * c.k_cache.row + at, kw::load<T, 8>(k + at));
    kw::store(v_cache + length * c.v_cache.row + at, kw::load<T, 8>(v + at));
  }
  const auto bytes = [](const T *p) { return reinterpret_cast<const char *>(p); };
  const Positions rows = {
      bytes(k_cache),    bytes(v_cache),          bytes(k), bytes(v), c.k_cache.row * 2,
      c.v_cache.row * 2, static_cast<int>(length)};
  const long long parts = item * c.splits * S::kQueries;
  const split::Results<T> results = {y + query * S::kDv,
                                     nullptr,
                                     sums + parts * S::kDv,
                                     states + parts,
                                     arrived + item,
                                     min(S::kQueries, c.group - first),
                                     c.splits,
                                     part,
                                     1.0f,
                                     false};
  split::decode<S>(reinterpret_cast<char *>(dynamic_shared),
                   q + b * c.q.b + (head * c.group + first) * c.q.h, c.q.h, rows,
                   static_cast<int>(length) + 1, scale, results);
}

// Persistent blocks take equal shares of all keys; the copy engine fills their rings.
//
// Idea: one block on each multiprocessor takes an equal share of all sequences' keys, computed on
// the GPU from their lengths. Producer warps start bulk copies (cp.async.bulk) of whole strips: a
// token's rows of up to 8 heads, or 16 rows of one head. They are stages ahead, across sequences;
// barriers count bytes. The other warps multiply on tensor cores as in `cuda_split_mma`. A second
// launch, which starts as blocks exit, merges the parts of each query.
// Traffic: the cache once, and for each block up to two results of float32, which stay in L2.
// Over `cuda_split_mma`: long requests without registers or instructions of the warps that
// multiply, no gaps between blocks, and equal work where lengths differ.
// Limit: the cache's bytes; heads or rows must be contiguous in memory.
#include <kw/divisor.cuh>

#include "split/parts.cuh"

// Rows of a sequence's pages. Strips do not cross pages.
struct PagedRows {
  static constexpr bool kNew = false;
  const char *k, *v;
  const int *table;
  long long k_page, v_page, k_row, v_row;  // bytes
  kw::Divisor page;

  __device__ __forceinline__ const char *key(int token) const {
    unsigned left = token;
    const int row = page.divide(left);
    return k + table[left] * k_page + row * k_row;
  }
  __device__ __forceinline__ const char *value(int token) const {
    unsigned left = token;
    const int row = page.divide(left);
    return v + table[left] * v_page + row * v_row;
  }
};

template <class G> struct PagedCall {
  using S = typename G::S;
  using T = typename S::T;
  const T *q;
  const char *k, *v;
  const int *table;
  T *y;
  float *lse, *sums;
  split::State *states;
  long long q_b, q_h, table_b, k_page, k_row, k_head, v_page, v_row, v_head;
  int heads, group, chunks;
  kw::Divisor page;
  float v_scale;

  // An item is a set of heads and a chunk of each head's queries.
  __device__ __forceinline__ long long head(const split::Piece &p) const {
    return static_cast<long long>(p.item / chunks) * G::kHeads;
  }
  __device__ __forceinline__ int first(const split::Piece &p) const {
    return p.item % chunks * S::kQueries;
  }
  __device__ __forceinline__ PagedRows rows(const split::Piece &p) const {
    return {k + head(p) * k_head,
            v + head(p) * v_head,
            table + p.sequence * table_b,
            k_page,
            v_page,
            k_row,
            v_row,
            page};
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
    return {y + query * S::kDv, lse + query, sums, states, nullptr, mine(p), group, v_scale, true};
  }
};

// Strides of q and of the table in elements, of the cache in bytes.
template <class G, int BLOCKS>
__global__ void __launch_bounds__(G::kThreads, BLOCKS)
    paged_split_bulk(const typename G::S::T *q, const char *k, const char *v, const int *table,
                     const int *lengths, typename G::S::T *y, float *lse, float *sums,
                     split::State *states, long long q_b, long long q_h, long long table_b,
                     long long k_page, long long k_row, long long k_head, long long v_page,
                     long long v_row, long long v_head, int sequences, int heads, int group,
                     int chunks, kw::Divisor page, float scale, float k_scale, float v_scale) {
  extern __shared__ uint4 dynamic_shared[];
  const PagedCall<G> call = {q,      k,     v,       table,  y,     lse,    sums,   states,
                             q_b,    q_h,   table_b, k_page, k_row, k_head, v_page, v_row,
                             v_head, heads, group,   chunks, page,  v_scale};
  split::stream_parts<G>(reinterpret_cast<char *>(dynamic_shared),
                         split::Lengths<int>{lengths, sequences, 0}, call,
                         heads / G::kHeads * chunks, scale * k_scale);
}

// A block for each query.
template <class G, int WARPS>
__global__ void __launch_bounds__(32 * WARPS)
    paged_merge_bulk(const int *lengths, typename G::S::T *y, float *lse, float *sums,
                     split::State *states, int sequences, int heads, int group, int chunks,
                     int blocks, float v_scale) {
  constexpr int kQueries = G::S::kQueries;
  const int of_sequence = blockIdx.x % (heads * group), sequence = blockIdx.x / (heads * group);
  const int head = of_sequence / group, of_head = of_sequence % group;
  const int item = head / G::kHeads * chunks + of_head / kQueries;
  const auto parts =
      split::ItemParts::of<G::kTokens>(split::Lengths<int>{lengths, sequences, 0}, sequence, item,
                                       heads / G::kHeads * chunks, blocks);
  kw::wait_for_launch_before();  // for the parts; a grid that does not wait could end before it
  if (parts.count == 1) return;  // a block had all of it
  split::merge<G, WARPS>({y, lse, sums, states, nullptr, group, group, v_scale, true}, parts,
                         head % G::kHeads * kQueries + of_head % kQueries, blockIdx.x);
}

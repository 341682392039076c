// Keys split among blocks and warps, products on tensor cores, the parts merged in the same launch.
//
// Idea: query heads that share a head of the cache are rows and then columns of mma.sync, 8 or a
// multiple. cp.async copies whole rows of keys and values to rings in shared memory of which each
// warp has its own, several tiles ahead; the page of a tile is looked up a step before its copy.
// 8-bit elements become float16 in registers. The last block of a head merges the parts.
// Traffic: the cache once, and for each split a result of float32, which stays in L2.
// Over `triton_split`: one launch, more bytes in flight, no pass of converted values or of weights
// through shared memory, and no rows of a tile for query heads that do not exist.
// Limit: the cache's bytes; with one sequence the latency of a launch and of the merge.
#include <kw/divisor.cuh>

#include "split/attend.cuh"

// Where a sequence's tokens lie. 16 tokens are in one page.
struct Pages {
  const char *k, *v;
  const int *table;
  long long k_page, v_page;  // bytes
  int k_row, v_row;
  kw::Divisor page;

  __device__ __forceinline__ int place(int first) const { return table[page.quotient(first)]; }
  __device__ __forceinline__ void find(int first, int of_table, long long &of_k,
                                       long long &of_v) const {
    unsigned left = first;
    const int row = page.divide(left);
    of_k = of_table * k_page + static_cast<long long>(row) * k_row;
    of_v = of_table * v_page + static_cast<long long>(row) * v_row;
  }
  __device__ __forceinline__ const char *key(const char *from, int, int) const { return from; }
  __device__ __forceinline__ const char *value(const char *from, int, int) const { return from; }
};

// Strides of q and of the table in elements, of the cache in bytes.
template <class S, int BLOCKS>
__global__ void __launch_bounds__(S::kWarps * 32, BLOCKS)
    paged_split_mma(const typename S::T *q, const char *k, const char *v, const int *table,
                    const int *lengths, typename S::T *y, float *lse, float *sums,
                    split::State *states, unsigned *arrived, long long q_b, long long q_h,
                    long long table_b, long long k_page, long long k_row, long long k_head,
                    long long v_page, long long v_row, long long v_head, int heads, int group,
                    int chunks, int splits, kw::Divisor page, float scale, float k_scale,
                    float v_scale) {
  extern __shared__ uint4 dynamic_shared[];
  const int chunk = blockIdx.x % chunks, part = blockIdx.x / chunks % splits;
  const long long pair = blockIdx.x / chunks / splits;  // of a sequence and a head of the cache
  const int head = pair % heads, first = chunk * S::kQueries;
  const long long b = pair / heads, item = pair * chunks + chunk;
  const long long query = pair * group + first, parts = item * splits * S::kQueries;
  const Pages rows = {k + head * k_head,
                      v + head * v_head,
                      table + b * table_b,
                      k_page,
                      v_page,
                      static_cast<int>(k_row),
                      static_cast<int>(v_row),
                      page};
  const split::Results<typename S::T> results = {y + query * S::kDv,
                                                 lse + query,
                                                 sums + parts * S::kDv,
                                                 states + parts,
                                                 arrived + item,
                                                 min(S::kQueries, group - first),
                                                 splits,
                                                 part,
                                                 v_scale,
                                                 true};
  split::decode<S>(reinterpret_cast<char *>(dynamic_shared),
                   q + b * q_b + (head * group + first) * q_h, q_h, rows, lengths[b],
                   scale * k_scale, results);
}

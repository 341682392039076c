// A block sorts its rows in shared memory by a bitonic network.
//
// Idea: an element's order and its position form a unique key, so that a network, which is not
// stable, sorts stably. It compares pairs at distance 1, then 2 and 1, then 4, 2 and 1, and so on.
// A warp processes 64 adjacent keys: pairs at distances up to 32 stay within it and need no
// barrier.
// Traffic: x read once, a second time from L1; results written once: the minimum.
// Compared with `native`: rows need no additional row numbers, and do not go through memory once
// per digit.
// Limit: log2(n)^2 / 2 steps through shared memory, and rows that fit in it.
#include "order.cuh"

template <typename U> struct Entry {
  U order;
  unsigned place;
  __device__ __forceinline__ bool after(const Entry &other) const {
    return order > other.order || (order == other.order && place > other.place);
  }
};

// `size`: a power of two that holds a row; a block has max(size, 2 * BLOCK) / size rows. Results
// that are not needed are null.
template <typename T, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    sort_bitonic(const kw::bits_t<T> *x, kw::bits_t<T> *values, long long *indices, long long rows,
                 int n, int size, long long stride, int descending) {
  using U = kw::bits_t<T>;
  extern __shared__ uint4 dynamic_shared[];
  Entry<U> *entries = reinterpret_cast<Entry<U> *>(dynamic_shared);
  const int count = max(size, 2 * BLOCK), shift = 31 - __clz(size);
  const long long first = (long long)blockIdx.x * (count >> shift);
  for (int i = threadIdx.x; i < count; i += BLOCK) {
    const long long row = first + (i >> shift);
    const unsigned place = i & (size - 1);
    const bool inside = row < rows && place < n;  // others are sorted after a row's elements
    entries[i] = {inside ? kw::order_of<T>(x[row * stride + place], descending) : U(~U(0)), place};
  }
  int last = size;
  for (int width = 2; width <= size; width *= 2)
    for (int step = width / 2; step > 0; last = step, step /= 2) {
      if (step > 32 || last > 32 || width == 2)
        __syncthreads();
      else
        __syncwarp();
      for (int i = threadIdx.x; i < count / 2; i += BLOCK) {
        const int low = 2 * i - (i & (step - 1)), high = low + step;
        const bool descends = low & width & (size - 1);
        const Entry<U> a = entries[low], b = entries[high];
        if (a.after(b) != descends) entries[low] = b, entries[high] = a;
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += BLOCK) {
    const long long row = first + (i >> shift);
    const int at = i & (size - 1);
    if (row < rows && at < n) {
      const unsigned place = entries[i].place;
      if (values) values[row * n + at] = x[row * stride + place];
      if (indices) indices[row * n + at] = place;
    }
  }
}

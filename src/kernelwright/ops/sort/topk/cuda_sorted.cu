// A block sorts its row in shared memory and keeps the first k elements.
//
// Idea: elements become keys in the order of the result, each with its position, and a bitonic
// network sorts them: pairs at distance 1, 2 and 1, 4, 2 and 1, and so on.
// Traffic: x read once, k results written.
// Compared with a sort of the whole tensor: only the needed elements are written.
// Limit: log2(n)^2 / 2 steps with one barrier each, mostly for elements that are not needed, and
// rows that fit in shared memory.
#include <kw/radix.cuh>

template <typename T, bool LARGEST, int SIZE, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    topk_sorted(const T *x, T *values, long long *indices, int columns, int k, long long stride) {
  __shared__ kw::Key keys[SIZE];
  const T *row = x + blockIdx.x * stride;
  for (int i = threadIdx.x; i < SIZE; i += BLOCK) {
    const unsigned bits = i < columns ? kw::ordered(row[i]) : 0;
    keys[i] = i < columns ? kw::key_of(LARGEST ? bits : ~bits, i) : 0;
  }
  for (int width = 2; width <= SIZE; width *= 2)
    for (int step = width / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < SIZE / 2; i += BLOCK) {
        const int low = i / step * 2 * step + i % step, high = low + step;
        const kw::Key a = keys[low], b = keys[high];
        if ((low & width) ? a > b : a < b) keys[low] = b, keys[high] = a;
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < k; i += BLOCK) {
    const unsigned at = kw::index_of(keys[i]);
    values[(long long)blockIdx.x * k + i] = row[at];
    indices[(long long)blockIdx.x * k + i] = at;
  }
}

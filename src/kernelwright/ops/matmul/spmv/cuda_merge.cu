// Nonzeros and ends of rows, merged: every thread has the same number of them.
//
// Idea: a traversal of the matrix has m + nonzeros steps, each of which processes a nonzero or ends
// a row. These steps are divided into equal parts, first among blocks and then among threads; a
// binary search finds where a part begins (merge path). A thread adds its part from shared memory;
// sums of a row that threads or blocks share are combined by a segmented scan and a second launch.
// Traffic: as `cuda_warp`, and some bytes per block.
// Compared with `cuda_warp`: equal work for any distribution of row lengths.
// Limit: gathers of x, each of which moves a sector for one element unless x is in a cache.
#include "kw/reduce.cuh"
#include "kw/types.cuh"

constexpr int kThreads = 256, kItems = 8, kPart = kThreads * kItems;

// The number of rows that have ended after `step` steps of the path over `m` rows and `nonzeros`;
// the ends of the rows are given minus `before`.
template <typename E>
__device__ __forceinline__ int rows_before(const E *ends, long long before, long long step, int m,
                                           long long nonzeros) {
  long long low = max(0ll, step - nonzeros), high = min(step, static_cast<long long>(m));
  while (low < high) {
    const long long middle = (low + high) / 2;
    if (ends[middle] - before <= step - middle - 1)
      low = middle + 1;
    else
      high = middle;
  }
  return static_cast<int>(low);
}

// The sum of the values from the last thread with `starts` up to this one, itself included.
__device__ __forceinline__ float sum_since_start(float v, bool starts) {
  __shared__ float of_warps[kThreads / 32];
  __shared__ bool started[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int flag = starts;
#pragma unroll
  for (int far = 1; far < 32; far *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, v, far);
    const int theirs = __shfl_up_sync(0xffffffffu, flag, far);
    if (lane >= far && !flag) v += other, flag = theirs;
  }
  if (lane == 31) of_warps[warp] = v, started[warp] = flag;
  __syncthreads();
  float before = 0.0f;
  for (int w = 0; w < warp; w++) before = of_warps[w] + (started[w] ? 0.0f : before);
  return flag ? v : v + before;
}

// Results of each block: the row within which it ends and its sum for it; and, if the first row
// that ends in the block began in an earlier one, this block's sum for that row.
template <typename T, typename I>
__global__ void __launch_bounds__(kThreads)
    spmv_merge(const I *__restrict__ rows, const I *__restrict__ columns,
               const T *__restrict__ values, const T *__restrict__ x, T *__restrict__ y,
               float *tail, float *head, int *tail_row, int *head_row, int m, long long nonzeros) {
  __shared__ float products[kPart];
  __shared__ int ends[kPart + 1], bounds[2];
  __shared__ float shared_tail[kThreads];
  const int t = threadIdx.x;
  const long long first = static_cast<long long>(blockIdx.x) * kPart;
  const long long last = min(first + kPart, m + nonzeros);
  if (t == 0) head_row[blockIdx.x] = -1;
  if (t < 2) bounds[t] = rows_before(rows + 1, 0, t ? last : first, m, nonzeros);
  __syncthreads();
  const int top = bounds[0], high = bounds[1] - top;
  const long long from = first - top;
  const int wide = static_cast<int>(last - bounds[1] - from);
  for (int i = t; i <= high; i += kThreads)  // the row after the last one has no end here
    ends[i] =
        top + i < m ? static_cast<int>(min(rows[top + i + 1] - from, kPart + 1ll)) : kPart + 1;
  for (int i = t; i < wide; i += kThreads)
    products[i] = kw::to_float(values[from + i]) * kw::to_float(x[columns[from + i]]);
  __syncthreads();

  const int all = high + wide, begin = min(t * kItems, all), end = min(begin + kItems, all);
  int row = rows_before(ends, 0, begin, high, wide), i = begin - row;
  const int first_row = row;
  float sum = 0.0f, first_sum = 0.0f;
  for (int step = begin; step < end; step++) {
    if (i < ends[row]) {
      sum += products[i++];
    } else {
      if (row == first_row)
        first_sum = sum;
      else
        y[top + row] = kw::from_float<T>(sum);
      sum = 0.0f, row++;
    }
  }
  // the sum that earlier threads have for the row that this one ends first
  const float since = sum_since_start(sum, row > first_row);
  shared_tail[t] = since;
  __syncthreads();
  if (row > first_row) {
    const float total = first_sum + (t > 0 ? shared_tail[t - 1] : 0.0f);
    if (first_row == 0 && rows[top] < from)
      head[blockIdx.x] = total, head_row[blockIdx.x] = top;
    else
      y[top + first_row] = kw::from_float<T>(total);
  }
  if (t == kThreads - 1) tail[blockIdx.x] = since, tail_row[blockIdx.x] = top + high;
}

// One warp per block: adds the sums of earlier blocks for a row that ended in it.
template <typename T>
__global__ void spmv_merge_ends(const float *__restrict__ tail, const float *__restrict__ head,
                                const int *__restrict__ tail_row, const int *__restrict__ head_row,
                                T *__restrict__ y, int blocks) {
  const int block = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (block >= blocks) return;
  const int row = head_row[block];
  if (row < 0) return;
  float sum = 0.0f;
  for (int last = block - 1;; last -= 32) {
    const int mine = last - lane;
    const bool same = mine >= 0 && tail_row[mine] == row;
    if (same) sum += tail[mine];
    if (!__all_sync(0xffffffffu, same)) break;
  }
  sum = kw::warp_reduce<kw::Sum>(sum);
  if (lane == 0) y[row] = kw::from_float<T>(sum + head[block]);
}

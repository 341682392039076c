// One read of x: a block keeps candidates for the k largest elements in a buffer.
//
// Idea: a block reads its part of a row and stores the elements above the k-th largest so far in
// shared memory; when the buffer is full, a radix select finds the k-th largest of them. Of n
// random elements about k ln(n / k) are stored. If there are few rows, several blocks share a row,
// and a second launch selects among their candidates.
// Traffic: x read once, k results written.
// Compared with `cuda_sorted`: rows of any length; all other elements cost one comparison each.
// Limit: DRAM bandwidth. In ascending rows every element is a candidate, and selections are
// frequent.
#include <kw/radix.cuh>
#include <kw/vec.cuh>

constexpr int kRoom = 4096;

template <typename T, bool LARGEST> __device__ __forceinline__ kw::Key element(T x, unsigned at) {
  const unsigned bits = kw::ordered(x);
  return kw::key_of(LARGEST ? bits : ~bits, at);
}

// Whether an element may be above the limit: cheaper than its key, and true for NaN.
template <typename T, bool LARGEST> __device__ __forceinline__ bool may_be_above(T x, float limit) {
  return LARGEST ? !(kw::to_float(x) < limit) : !(kw::to_float(x) > limit);
}

// Selects from columns [first, last) of a row.
template <typename T, bool LARGEST, int VEC, int VECS, int BLOCK>
__device__ __forceinline__ void read_row(kw::Largest<BLOCK, kRoom> &best, const T *row,
                                         unsigned first, unsigned last, unsigned k) {
  best.open();
  for (unsigned start = first; start < last; start += BLOCK * VEC * VECS) {
    kw::Vec<T, VEC> v[VECS];
    unsigned inside = 0;
#pragma unroll
    for (int j = 0; j < VECS; ++j) {
      const unsigned at = start + (j * BLOCK + threadIdx.x) * VEC;
      if (at + VEC <= last) {
        v[j] = kw::load<T, VEC>(row + at);
        inside |= ((1u << VEC) - 1) << (j * VEC);
      } else {
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          if (at + i < last) v[j][i] = row[at + i], inside |= 1u << (j * VEC + i);
      }
    }
    const auto make = [&](int i) -> kw::Key {
      const unsigned at = start + (i / VEC * BLOCK + threadIdx.x) * VEC + i % VEC;
      return element<T, LARGEST>(v[i / VEC][i % VEC], at);
    };
    if (start == first && k <= BLOCK) {
      kw::Key largest = 0;
#pragma unroll
      for (int i = 0; i < VEC * VECS; ++i)
        if (inside >> i & 1) largest = max(largest, make(i));
      best.set_limit(largest, k);
    }
    const unsigned above = unsigned(best.limit >> 32);
    const float limit = kw::from_ordered(LARGEST ? above : ~above);
    if (best.limit)
#pragma unroll
      for (int i = 0; i < VEC * VECS; ++i)
        if (!may_be_above<T, LARGEST>(v[i / VEC][i % VEC], limit)) inside &= ~(1u << i);
    best.template offer<VEC * VECS>(inside, k, make);
  }
}

template <typename T, bool LARGEST, int BLOCK>
__device__ __forceinline__ void write_row(const kw::Largest<BLOCK, kRoom> &best, const T *row,
                                          T *values, long long *indices, int k) {
  for (int i = threadIdx.x; i < k; i += BLOCK) {
    const unsigned at = kw::index_of(best.keys[i]);
    values[i] = row[at];
    indices[i] = at;
  }
}

// SIZE: the smallest power of two that is at least k.
template <typename T, bool LARGEST, int VEC, int VECS, int SIZE, int BLOCK>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    topk_select(const T *x, T *values, long long *indices, unsigned columns, int k,
                long long stride) {
  __shared__ kw::Largest<BLOCK, kRoom> best;
  const T *row = x + blockIdx.x * stride;
  read_row<T, LARGEST, VEC, VECS>(best, row, 0, columns, k);
  best.template close<SIZE>(k);
  const long long to = (long long)blockIdx.x * k;
  write_row<T, LARGEST>(best, row, values + to, indices + to, k);
}

// Part blockIdx.y of a row: `length` columns, a multiple of VEC. Its k largest elements are written
// to `kept`, followed by zeros if there are fewer.
template <typename T, bool LARGEST, int VEC, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    topk_select_part(const T *x, kw::Key *kept, unsigned columns, unsigned length, int k,
                     long long stride) {
  __shared__ kw::Largest<BLOCK, kRoom> best;
  const unsigned first = blockIdx.y * length;
  read_row<T, LARGEST, VEC, VECS>(best, x + blockIdx.x * stride, first,
                                  min(columns, first + length), k);
  __syncthreads();
  best.keep(min(best.count, best.valid), k);
  kept += ((long long)blockIdx.x * gridDim.y + blockIdx.y) * k;
  for (int i = threadIdx.x; i < k; i += BLOCK) kept[i] = i < best.count ? best.keys[i] : 0;
}

// Selects the k largest of the n elements that a row's blocks have kept.
template <typename T, bool LARGEST, int SIZE, int BLOCK>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    topk_select_merge(const T *x, const kw::Key *kept, T *values, long long *indices, int n, int k,
                      long long stride) {
  __shared__ kw::Largest<BLOCK, kRoom> best;
  constexpr int EACH = 8;
  kept += (long long)blockIdx.x * n;
  best.open();
  for (int start = 0; start < n; start += BLOCK * EACH) {
    kw::Key key[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int at = start + i * BLOCK + threadIdx.x;
      key[i] = at < n ? kept[at] : 0;
    }
    best.template offer<EACH>((1u << EACH) - 1, k, [&](int i) -> kw::Key { return key[i]; });
  }
  best.template close<SIZE>(k);
  const long long to = (long long)blockIdx.x * k;
  write_row<T, LARGEST>(best, x + blockIdx.x * stride, values + to, indices + to, k);
}

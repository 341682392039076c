// The box of a padded tensor that contains x.
#pragma once
#include "../permute_copy/places.cuh"

namespace kw {

constexpr int kDims = 4, kRow = kDims - 1;

// Dimensions, outermost first: elements of y, of x, before x in y; distance of two elements in x.
struct Box {
  long long size[kDims], inside[kDims], before[kDims], stride[kDims];
};

// An element of y: its coordinates in the dimensions around its row, its column in x (negative
// before x), and its position in x, which is valid if it is inside.
struct Walk {
  long long at[kRow], column, end, from;
  bool in_rows;

  // Element i of y.
  __device__ __forceinline__ Walk(const Box &box, long long i)
      : column(divide(i, box.size[kRow]) - box.before[kRow]),
        end(box.size[kRow] - box.before[kRow]) {
#pragma unroll
    for (int d = kRow - 1; d >= 0; --d) at[d] = box.size[d] == 1 ? 0 : divide(i, box.size[d]);
    find_row(box);
  }

  // Moves on by `step` elements, within the row or to the beginning of the next one.
  __device__ __forceinline__ void advance(const Box &box, int step) {
    column += step;
    from += step * box.stride[kRow];
    if (column < end) return;
    column = -box.before[kRow];
#pragma unroll
    for (int d = kRow - 1; d >= 0; --d) {
      if (++at[d] < box.size[d]) break;
      at[d] = 0;
    }
    find_row(box);
  }

  __device__ __forceinline__ bool inside(const Box &box) const {
    return in_rows && (unsigned long long)column < (unsigned long long)box.inside[kRow];
  }

 private:
  __device__ __forceinline__ void find_row(const Box &box) {
    from = column * box.stride[kRow];
    in_rows = true;
#pragma unroll
    for (int d = 0; d < kRow; ++d) {
      const long long i = at[d] - box.before[d];
      in_rows &= i >= 0 && i < box.inside[d];
      from += i * box.stride[d];
    }
  }
};

}  // namespace kw

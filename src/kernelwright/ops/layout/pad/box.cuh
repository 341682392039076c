// The box of a padded tensor that is x.
#pragma once
#include "../permute_copy/places.cuh"

namespace kw {

constexpr int kDims = 4;

// Dimensions, outermost first: elements of y, of x, before x in y; between two of x.
struct Box {
  long long size[kDims], inside[kDims], before[kDims], stride[kDims];
};

// An element of y by its coordinates, and the row of x in which it lies, if it does.
struct Walk {
  long long at[kDims], row;
  bool in_rows;

  // Element i of y.
  __device__ __forceinline__ Walk(const Box &box, long long i) {
#pragma unroll
    for (int d = kDims - 1; d >= 0; --d) at[d] = box.size[d] == 1 ? 0 : divide(i, box.size[d]);
    find_row(box);
  }

  // `step` elements further, of which none lies in the next row but the last one's successor.
  __device__ __forceinline__ void advance(const Box &box, int step) {
    at[kDims - 1] += step;
    if (at[kDims - 1] < box.size[kDims - 1]) return;
    at[kDims - 1] = 0;
#pragma unroll
    for (int d = kDims - 2; d >= 0; --d) {
      if (++at[d] < box.size[d]) break;
      at[d] = 0;
    }
    find_row(box);
  }

  // Whether the element is in x; `from` is then its place there.
  __device__ __forceinline__ bool inside(const Box &box, long long &from) const {
    const long long column = at[kDims - 1] - box.before[kDims - 1];
    from = row + column * box.stride[kDims - 1];
    return in_rows && column >= 0 && column < box.inside[kDims - 1];
  }

 private:
  __device__ __forceinline__ void find_row(const Box &box) {
    row = 0;
    in_rows = true;
#pragma unroll
    for (int d = 0; d < kDims - 1; ++d) {
      const long long i = at[d] - box.before[d];
      in_rows &= i >= 0 && i < box.inside[d];
      row += i * box.stride[d];
    }
  }
};

}  // namespace kw
